package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/terminal"
	"github.com/apzuk3/agentd/internal/cli"
)

const (
	// maxBody is how many lines of what is asked about are shown at first, maxWhole how many there are at most.
	maxBody, maxWhole = 60, 5000
)

// ask is a question to a person. The program's goroutine owns it once it was sent.
type ask struct {
	title  []string // printed above
	body   []string // what it is about, printed below the title
	left   []string // of the body, what was left out
	prompt string   // beside what is typed
	keys   []string // that answer it; nil: a text does
	check  func(text string) error

	armed  bool // it takes keys
	answer editor
	reply  chan string // holds one
}

type (
	askMsg  struct{ ask *ask }
	armMsg  struct{ ask *ask }
	goneMsg struct {
		ask   *ask
		cause error
	}
)

// person is the one before the screen. It is a cli.Person.
type person struct{ u *tui }

var _ cli.Person = (*person)(nil)

// Say is that of cli.Person.
func (p *person) Say(text string) { p.u.send(noteMsg(text)) }

// change is the change that a call of a tool would make, nil if it is not known.
func (p *person) change(call string) []string {
	l := p.u.following.Load()
	if l == nil {
		return nil
	}
	c := l.call(call)
	if c == nil {
		return nil
	}
	return changeOf(p.u.chat.Root, c)
}

// Prompt is that of cli.Person.
func (p *person) Prompt(ctx context.Context, in *client.Interaction) (*client.Resolution, error) {
	var title []string
	if in.Refused != nil {
		title = append(title, "This was refused: "+cli.Clean(in.Refused.Message))
	}
	who := "agent"
	if n := len(in.AgentPath); n > 0 {
		who = terminal.Line(in.AgentPath[n-1], 200)
	}
	if in.Kind == client.InteractionApproval && in.N > 0 {
		return p.permission(ctx, in, title)
	}
	if in.Kind == client.InteractionApproval {
		return p.approval(ctx, in, append(title, who+" wants to call "+terminal.Line(in.ToolName, 200)))
	}
	a := &ask{title: append(title, who+" asks:"), prompt: "Answer (empty to give none): "}
	a.about(bars(visible(in.Question)))
	for i, c := range in.Choices {
		a.body = append(a.body, fmt.Sprintf("  %d. %s", i+1, terminal.Line(c, 200)))
	}
	if len(in.Choices) > 0 {
		a.prompt = "Answer, or the number of a choice (empty to give none): "
	}
	said, err := p.put(ctx, a)
	if err != nil {
		return nil, err
	}
	if said = strings.TrimSpace(said); said == "" {
		return client.Deny("no answer"), nil
	}
	if n, err := strconv.Atoi(said); err == nil && n >= 1 && n <= len(in.Choices) {
		said = in.Choices[n-1]
	}
	return client.Answer(said), nil
}

// permission asks whether a tool that runs may do something, and how far that holds.
func (p *person) permission(
	ctx context.Context, in *client.Interaction, title []string,
) (*client.Resolution, error) {
	asked := terminal.PermissionOf(in)
	a := &ask{prompt: strings.TrimSpace(asked.Prompt), keys: asked.Keys}
	whole := visible(asked.Text)
	if len(whole) == 1 {
		asked.Asks += whole[0]
	} else {
		a.about(bars(whole))
	}
	a.title = slices.Concat(title, []string{strings.TrimSpace(asked.Asks)})
	if change := p.change(in.ToolCallID); change != nil {
		a.about(change)
	}
	said, err := p.put(ctx, a)
	if err != nil {
		return nil, err
	}
	return asked.Said(said), nil
}

// approval asks whether a tool may be called.
func (p *person) approval(ctx context.Context, in *client.Interaction, title []string) (*client.Resolution, error) {
	a := &ask{title: title, prompt: "Approve? [y]es, [n]o, [e]dit the arguments", keys: []string{"y", "n", "e"}}
	a.about(bars(visible(pretty(in.ToolInput))))
	call := &client.ToolCall{Name: in.ToolName, Input: in.ToolInput}
	if change := changeOf(p.u.chat.Root, call); change != nil {
		a.about(change)
	}
	said, err := p.put(ctx, a)
	if err != nil {
		return nil, err
	}
	switch said {
	case "y":
		return client.Approve(), nil
	case "e":
		a = &ask{prompt: "Arguments, a JSON object: ", check: isObject, armed: true}
		a.answer.set(cli.Clean(string(in.ToolInput)))
		said, err := p.put(ctx, a)
		if err != nil {
			return nil, err
		}
		return &client.Resolution{Kind: client.ResolutionApproval, ToolInput: json.RawMessage(said)}, nil
	default:
		why, err := p.put(ctx, &ask{prompt: "Why? (may be empty) ", armed: true})
		if err != nil {
			return nil, err
		}
		return client.Deny(strings.TrimSpace(why)), nil
	}
}

func isObject(text string) error {
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil || object == nil {
		return fmt.Errorf("that is no JSON object (%v)", err)
	}
	return nil
}

// put asks, and returns what is said. When ctx ends the question is taken back, and its cause returned.
func (p *person) put(ctx context.Context, a *ask) (string, error) {
	a.reply = make(chan string, 1)
	p.u.send(askMsg{a})
	select {
	case said := <-a.reply:
		return said, nil
	case <-ctx.Done():
		p.u.send(goneMsg{a, context.Cause(ctx)})
		return "", context.Cause(ctx)
	case <-p.u.ctx.Done():
		return "", terminal.ErrNobody
	}
}

// about adds lines to what is asked about.
func (a *ask) about(lines []string) {
	lines = lines[:min(len(lines), maxWhole)]
	n := min(len(lines), max(maxBody-len(a.body), 0))
	a.body, a.left = append(a.body, lines[:n]...), append(a.left, lines[n:]...)
}

// visible are the lines of a text, with each of their characters.
func visible(text string) (lines []string) {
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, terminal.Visible(line))
	}
	return lines
}

// bars marks lines that somebody else has written: they cannot look like a question.
func bars(lines []string) (out []string) {
	for _, line := range lines {
		out = append(out, "│ "+line)
	}
	return out
}

// pretty is JSON in lines.
func pretty(text json.RawMessage) string {
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) == nil {
		if out, err := json.MarshalIndent(object, "", "  "); err == nil {
			return string(out)
		}
	}
	return string(text)
}

// asked adds a question, which is asked when those before it are answered.
func (u *tui) asked(a *ask) tea.Cmd {
	if u.live == nil || u.leaving {
		return nil // its context ends
	}
	if u.asks = append(u.asks, a); len(u.asks) > 1 {
		return nil
	}
	return u.openAsk()
}

// openAsk shows the first question.
func (u *tui) openAsk() tea.Cmd {
	if len(u.asks) == 0 {
		return nil
	}
	a := u.asks[0]
	if u.live != nil {
		u.finish(u.live, "")
	}
	for _, line := range a.title {
		u.put(kindNote, u.style.Paint("? "+line, "1;33"))
	}
	u.body(a.body)
	if len(a.left) > 0 {
		u.put(kindNote, fmt.Sprintf("%d lines are left out: [m] shows them.", len(a.left)))
	}
	if a.armed { // it goes on with the one before
		return nil
	}
	return u.settle(a)
}

// body prints what is asked about.
func (u *tui) body(lines []string) {
	for _, line := range lines {
		code := ""
		switch {
		case strings.HasPrefix(line, "│ -"):
			code = "31"
		case strings.HasPrefix(line, "│ +"):
			code = "32"
		}
		for _, part := range u.wrap(line) {
			u.put(kindNote, u.style.Paint(part, code))
		}
	}
}

// settle waits until nobody types: what was typed before a question answers nothing.
func (u *tui) settle(a *ask) tea.Cmd {
	u.typed = time.Now()
	return tea.Tick(settle, func(time.Time) tea.Msg { return armMsg{a} })
}

// arm lets a question take keys.
func (u *tui) arm(a *ask) tea.Cmd {
	if len(u.asks) == 0 || u.asks[0] != a || a.armed {
		return nil
	}
	if rest := settle - time.Since(u.typed); rest > 10*time.Millisecond || len(u.above) > 0 {
		return tea.Tick(max(rest, settle/10), func(time.Time) tea.Msg { return armMsg{a} })
	}
	a.armed = true
	return nil
}

// answers takes a key for a question.
func (u *tui) answers(a *ask, k tea.KeyPressMsg) tea.Cmd {
	key := k.String()
	if a.keys == nil {
		if key != "enter" {
			a.answer.key(k)
			return nil
		}
		text := a.answer.String()
		if a.check != nil {
			if err := a.check(text); err != nil {
				u.hint = terminal.Line(err.Error(), 200)
				return nil
			}
		}
		return u.reply(a, text)
	}
	key = strings.ToLower(key)
	if key == "enter" {
		key = "n"
	}
	switch {
	case slices.Contains(a.keys, key):
		return u.reply(a, key)
	case key == "m" && len(a.left) > 0:
		u.body(a.left)
		a.left = nil
	default:
		u.hint = "please answer " + strings.Join(a.keys, ", ")
	}
	return nil
}

// reply gives an answer, and asks the next question.
func (u *tui) reply(a *ask, said string) tea.Cmd {
	a.reply <- said
	u.put(kindNote, u.dim("answered: "+cli.Clean(said)))
	u.hint = ""
	u.asks = u.asks[1:]
	return u.openAsk()
}

// gone takes a question back.
func (u *tui) gone(m goneMsg) tea.Cmd {
	i := slices.Index(u.asks, m.ask)
	if i < 0 {
		return nil
	}
	u.asks = slices.Delete(u.asks, i, i+1)
	if i > 0 {
		return nil
	}
	if errors.Is(m.cause, terminal.ErrElsewhere) {
		u.note("(" + m.cause.Error() + ")")
	} else {
		u.note("(no longer asked)")
	}
	return u.openAsk()
}
