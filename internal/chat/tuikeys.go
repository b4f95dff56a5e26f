package chat

import (
	"context"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/apzuk3/agentd/internal/cli"
)

const again = "press Ctrl+C again within 1s to exit"

// typing is the text that keys change: an answer, or the next message.
func (u *tui) typing() *editor {
	if len(u.asks) > 0 && u.asks[0].armed && u.asks[0].keys == nil {
		return &u.asks[0].answer
	}
	return &u.input
}

// key does what a key says.
func (u *tui) key(k tea.KeyPressMsg) tea.Cmd {
	if u.leaving {
		return nil
	}
	u.typed = time.Now()
	if u.hint != again {
		u.hint = ""
	}
	key := k.String()
	switch key {
	case "ctrl+c":
		return u.interrupt()
	case "esc":
		return u.escape()
	case "ctrl+z":
		return tea.Suspend
	case "ctrl+l":
		return tea.ClearScreen
	case "ctrl+t":
		u.unfold = !u.unfold
		u.hint = "thoughts are folded"
		if u.unfold {
			u.hint = "thoughts are shown from now on"
		}
		return nil
	}
	if u.picker != nil {
		return u.picker.key(u, key)
	}
	if len(u.asks) > 0 && u.asks[0].armed {
		return u.answers(u.asks[0], k)
	}
	if key != "tab" {
		u.offers = nil
	}
	switch key {
	case "enter":
		return u.enter(false)
	case "alt+enter":
		return u.enter(true)
	case "tab":
		u.complete()
	case "up", "ctrl+p":
		if !u.input.vertical(-1, u.width-2) || key == "ctrl+p" {
			u.sent.show(&u.input, -1)
		}
	case "down", "ctrl+n":
		if !u.input.vertical(1, u.width-2) || key == "ctrl+n" {
			u.sent.show(&u.input, 1)
		}
	case "ctrl+d":
		if len(u.input.text) == 0 {
			return u.leave()
		}
		u.input.key(k)
	default:
		u.input.key(k)
	}
	return nil
}

// interrupt cancels the turn, or drops what is typed; soon behind another one it leaves.
func (u *tui) interrupt() tea.Cmd {
	now := time.Now()
	if now.Sub(u.chat.last) < twice {
		return u.leave()
	}
	u.chat.last = now
	u.picker, u.offers = nil, nil
	u.typing().set("")
	u.hint = again
	fade := tea.Tick(twice, func(time.Time) tea.Msg { return hintMsg(again) })
	return tea.Batch(u.cancel(), fade)
}

// escape closes what is open, or cancels the turn.
func (u *tui) escape() tea.Cmd {
	switch {
	case u.picker != nil:
		u.picker = nil
	case u.offers != nil:
		u.offers = nil
	case u.live != nil:
		u.hint, u.chat.last = again, time.Now()
		return tea.Batch(u.cancel(), tea.Tick(twice, func(time.Time) tea.Msg { return hintMsg(again) }))
	}
	return nil
}

// cancel asks the server to cancel the turn, once.
func (u *tui) cancel() tea.Cmd {
	l := u.live
	if l == nil || l.canceled {
		return nil
	}
	l.canceled = true
	return func() tea.Msg {
		l.turn.Withdraw()
		ctx, stop := context.WithTimeout(u.ctx, cancelTime)
		defer stop()
		if err := l.turn.Cancel(ctx, "interrupted at the terminal"); err != nil && u.ctx.Err() == nil {
			return noteMsg(cli.Clean(err.Error()))
		}
		return nil
	}
}

// enter takes what was typed.
func (u *tui) enter(inject bool) tea.Cmd {
	text := strings.TrimSpace(u.input.String())
	if text == "" {
		return nil
	}
	u.sent.add(text)
	u.input.set("")
	if cmd, ok := u.command(text); ok {
		return cmd
	}
	prompt, ok := u.chat.command(text)
	if u.chat.left {
		return u.leave()
	}
	if !ok || prompt == "" {
		return nil
	}
	return u.submit(prompt, text, inject)
}

// command does what the commands of a screen say, and reports whether the text is one.
func (u *tui) command(text string) (tea.Cmd, bool) {
	name, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	switch name {
	case "/queue":
		if rest == "clear" {
			return u.withdraw(), true
		}
		lines := u.waiting()
		if len(lines) == 0 {
			lines = []string{"nothing waits"}
		}
		for _, line := range lines {
			u.note(line)
		}
		return nil, true
	case "/compact":
		session := u.chat.Prompt.Session
		return func() tea.Msg { return noteMsg(u.chat.compact(u.ctx, session, rest)) }, true
	case "/resume":
		return u.resume(rest), true
	case "/fork":
		return u.fork(), true
	}
	if server, prompt, ok := strings.Cut(strings.TrimPrefix(name, "/"), ":"); ok && strings.HasPrefix(name, "/") {
		if u.chat.Prompts == nil {
			return nil, false
		}
		return u.ofServer(server, prompt, rest, text), true
	}
	return nil, false
}
