package chat

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/apzuk3/agentd/client/terminal"
	"github.com/apzuk3/agentd/internal/cli"
)

const (
	// maxTail is how many rows of what is being said are shown, and maxShownQueue how many prompts that wait.
	maxTail, maxShownQueue = 12, 3
)

func (u *tui) dim(text string) string { return u.style.Paint(text, "2") }

// wrap breaks a line, whose words are moved where they can be.
func (u *tui) wrap(line string) []string {
	if ansi.StringWidth(line) <= u.width {
		return []string{line}
	}
	return strings.Split(ansi.Wrap(line, u.width, ""), "\n")
}

// fit cuts a line.
func (u *tui) fit(line string) string { return ansi.Truncate(line, u.width-1, "…") }

// View is that of tea.Model: the lines below what was printed. It has never more rows than the terminal.
func (u *tui) View() tea.View {
	if u.leaving && u.live == nil {
		return tea.NewView("")
	}
	below, row, column := u.below()
	room := max(u.height-len(below)-1, 0)
	lines := u.saying(min(room, maxTail))
	lines = append(lines, u.pending(room-len(lines))...)
	if room > len(lines) {
		lines = append([]string{""}, lines...)
	}
	v := tea.NewView("")
	if row >= 0 {
		v.Cursor = tea.NewCursor(min(column, u.width-1), len(lines)+row)
	}
	v.SetContent(strings.Join(append(lines, below...), "\n"))
	return v
}

// saying is the end of what is being said or thought.
func (u *tui) saying(most int) (lines []string) {
	l := u.live
	if l == nil || most <= 0 {
		return nil
	}
	if !l.thinking.IsZero() {
		return []string{u.dim("thinking " + seconds(l.thinking))}
	}
	if len(l.messages) == 0 {
		return nil
	}
	text, _ := l.messages[len(l.messages)-1].stream.Rest()
	text = strings.ReplaceAll(strings.Trim(text, "\n"), "\t", "    ")
	if text == "" {
		return nil
	}
	if n := most * u.width * 4; len(text) > n {
		text = strings.ToValidUTF8(text[len(text)-n:], "")
	}
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, u.wrap(line)...)
	}
	return lines[max(len(lines)-most, 0):]
}

// pending are the prompts that wait.
func (u *tui) pending(most int) []string {
	lines := u.waiting()
	n := min(maxShownQueue, most-1)
	if n < 0 {
		return nil
	}
	if len(lines) > n {
		lines = append(lines[:n], fmt.Sprintf("%d more wait: /queue shows them", len(lines)-n))
	}
	for i, line := range lines {
		lines[i] = u.dim(u.fit(line))
	}
	return lines
}

// below are the lines of what is typed, or chosen, and the state. Row -1: there is no cursor.
func (u *tui) below() (lines []string, row, column int) {
	row = -1
	add := func(e *editor, mark string) {
		rows, r, c := e.rows(u.width - 2)
		first := max(min(r-maxInputRows/2, len(rows)-maxInputRows), 0)
		most := max(min(maxInputRows, u.height-len(lines)-3), 1)
		if r >= first+most {
			first = r - most + 1
		}
		rows = rows[first:min(first+most, len(rows))]
		for i, text := range rows {
			if i > 0 {
				mark = "  "
			}
			rows[i] = mark + text
		}
		row, column = len(lines)+r-first, c+2
		lines = append(lines, rows...)
	}
	switch {
	case u.picker != nil:
		lines = append(lines, u.picker.rows(u)...)
	case len(u.asks) > 0:
		a := u.asks[0]
		for _, line := range u.wrap(a.prompt) {
			lines = append(lines, u.style.Paint(line, "1;33"))
		}
		lines = lines[max(len(lines)-max(u.height-4, 1), 0):]
		switch {
		case !a.armed:
			add(&u.input, "> ")
		case a.keys == nil:
			add(&a.answer, "= ")
		}
	default:
		add(&u.input, "> ")
	}
	if len(u.offers) > 0 {
		lines = append(lines, u.dim(u.fit(strings.Join(u.offers, "  "))))
	}
	if u.hint != "" {
		lines = append(lines, u.fit(u.hint))
	}
	return append(lines, u.dim(u.fit(u.status()))), row, column
}

// state says what goes on.
func (u *tui) state() string {
	l := u.live
	switch {
	case l == nil && u.leaving:
		return "leaving"
	case l == nil && len(u.queue) > 0:
		return "sending"
	case l == nil:
		return "ready"
	case u.leaving:
		return "leaving"
	case l.lost:
		return "reconnecting… " + seconds(l.begun)
	case l.canceled:
		return "canceling " + seconds(l.begun)
	case len(u.asks) > 0 && u.asks[0].keys == nil && len(l.waits) > 0:
		return "waiting for an answer " + seconds(l.begun)
	case len(u.asks) > 0 || len(l.waits) > 0:
		return "waiting for approval " + seconds(l.begun)
	case !l.started:
		return "sending " + seconds(l.begun)
	case len(l.open) > 0:
		var names []string
		for _, o := range l.open[:min(len(l.open), 3)] {
			names = append(names, terminal.Line(o.name, 40))
		}
		if more := len(l.open) - len(names); more > 0 {
			names = append(names, fmt.Sprintf("%d more", more))
		}
		return "running " + strings.Join(names, ", ") + " " + seconds(l.begun)
	}
	return "running " + seconds(l.begun)
}

func seconds(since time.Time) string { return time.Since(since).Truncate(time.Second).String() }

// status is the last line.
func (u *tui) status() string {
	t := u.chat.totals
	in, out, cost, unpriced := t.InputTokens, t.OutputTokens, t.Cost, t.unpriced || t.Turns == 0
	if l := u.live; l != nil {
		in, out, cost = in+l.in, out+l.out, cost+l.cost
		unpriced = t.unpriced || l.unpriced || t.Turns == 0 && l.in == 0
	}
	price := fmt.Sprintf("$%.4f", cost)
	if unpriced {
		price = "$—"
	}
	parts := []string{
		u.state(), u.chat.Model, fmt.Sprintf("↑%d ↓%d", in, out), price, u.context, u.modeName(), u.chat.Prompt.Session,
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return cli.Clean(strings.Join(parts, " · "))
}

// modeName is the mode of the gate, if it is not the one that asks.
func (u *tui) modeName() string {
	if u.chat.Modes == nil || u.chat.Modes.Mode() == "ask" {
		return ""
	}
	return "mode " + u.chat.Modes.Mode()
}
