package chat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/console"
	"github.com/apzuk3/agentd/client/terminal"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/markdown"
)

const (
	// maxThought is how much of a thought is kept, in bytes, while it comes.
	maxThought = 64 << 10
	// maxCallLine is how many characters of a note are shown on its line.
	maxCallLine = 500
)

// liveTurn is the turn that is followed. But for calls the program's goroutine owns it.
type liveTurn struct {
	text    string
	typed   string       // what stands for it on the screen
	attach  bool         // the session's last turn is followed
	created *client.Turn // set: it waits on the server
	turn    *cli.Turn
	cancel  context.CancelCauseFunc
	begun   time.Time

	started  bool // the server has said something
	canceled bool // a cancel was asked for
	lost     bool // the connection

	said     bytes.Buffer // for the transcript
	messages []*spoken    // which are being written
	speaker  string       // who has spoken last
	thinking time.Time    // since when; zero: nobody thinks
	thought  strings.Builder
	waits    []string // interactions that are open
	open     []openCall
	calls    *console.Printer
	rest     terminal.Printer // of all other events
	buf      bytes.Buffer     // what calls and rest write to
	in, out  int64            // tokens of calls that have ended
	cost     float64
	unpriced bool

	mu     sync.Mutex // protects byCall
	byCall map[string]*client.ToolCall
}

type openCall struct{ id, name string }

// spoken is what an agent is saying.
type spoken struct {
	id, who string
	stream  markdown.Stream
	from    int  // where in what was said it begins
	printed bool // some of it was
}

type (
	// eventMsg is an event of the turn that is followed. Done is closed when there is room for more.
	eventMsg struct {
		of    *liveTurn
		event *agentdv1.RunResponse
		done  chan struct{}
	}
	connectedMsg struct {
		of *liveTurn
		is bool
	}
	endedMsg struct {
		of     *liveTurn
		ending *cli.Ending
		err    error
	}
)

// begin follows a turn, which it starts unless it runs or waits already.
func (u *tui) begin(l *liveTurn) tea.Cmd {
	ctx, cancel := context.WithCancelCause(u.ctx)
	l.cancel = cancel
	l.prepare()
	if l.turn == nil {
		l.turn = u.chat.Start()
	}
	l.turn.Screen, l.turn.Person = shown{u, l}, &person{u}
	l.turn.Note = func(format string, args ...any) { u.send(noteMsg(fmt.Sprintf(format, args...))) }
	l.turn.Connected = func(is bool) { u.send(connectedMsg{l, is}) }
	if u.chat.Serve != nil {
		u.chat.Serve(l.turn)
	}
	u.live = l
	u.following.Store(l)
	if l.typed != "" {
		u.said(l.typed)
	}
	prompt := u.chat.Prompt
	prompt.Text = l.text
	session := u.chat.Prompt.Session
	u.others.Go(func() { // ends with the turn, or with ctx
		m := endedMsg{of: l}
		switch {
		case l.attach:
			m.ending, m.err = l.turn.Attach(ctx, session)
		case l.created != nil:
			m.ending, m.err = l.turn.Follow(ctx, l.created)
		default:
			m.ending, m.err = l.turn.Start(ctx, prompt)
		}
		cancel(nil)
		u.send(m)
	})
	return u.tick()
}

// prepare makes what events are shown with.
func (l *liveTurn) prepare() {
	l.begun, l.byCall = time.Now(), map[string]*client.ToolCall{}
	l.calls = console.New(io.Discard, &l.buf)
	l.rest = terminal.Printer{Out: &l.buf, HideQuestions: true}
}

// said prints what the person has said.
func (u *tui) said(text string) {
	lines := strings.Split(cli.Clean(text), "\n")
	for i, line := range lines {
		mark := "> "
		if i > 0 {
			mark = "  "
		}
		lines[i] = u.style.Paint(mark+line, "1")
	}
	u.put(kindUser, lines...)
}

// shown is the cli.Screen of a turn: it hands events to the program, and waits while too much is to be printed.
type shown struct {
	u *tui
	l *liveTurn
}

// Event is that of cli.Screen.
func (s shown) Event(event *agentdv1.RunResponse) error {
	if event.GetHeartbeat() != nil {
		return nil
	}
	if event.GetToolCall() != nil {
		if call, ok := client.EventOf(event).Data.(*client.ToolCall); ok {
			s.l.mu.Lock()
			s.l.byCall[call.ID] = call
			s.l.mu.Unlock()
		}
	}
	done := make(chan struct{})
	s.u.send(eventMsg{s.l, event, done})
	select {
	case <-done:
	case <-s.u.ctx.Done():
	}
	return nil
}

// Hold is that of cli.Screen. What comes while a person is asked is shown above.
func (shown) Hold(bool) error { return nil }

// call returns an open call of a tool, nil if it is not known.
func (l *liveTurn) call(id string) *client.ToolCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byCall[id]
}

// event shows an event.
func (u *tui) event(m eventMsg) tea.Cmd {
	if len(u.above) > maxAbove {
		u.blocked = append(u.blocked, m.done)
	} else {
		defer close(m.done)
	}
	l := m.of
	if l != u.live {
		return nil
	}
	first := !l.started
	l.started, l.lost = true, false
	event := client.EventOf(m.event)
	if _, ok := event.Data.(*client.OutputChunk); !ok {
		u.thought(l)
	}
	u.show(l, event)
	if first {
		if id := l.turn.Session(); id != "" {
			u.chat.Prompt.Session = id
		}
		return u.enqueue()
	}
	return nil
}

func (u *tui) show(l *liveTurn, event *client.Event) {
	switch d := event.Data.(type) {
	case *client.OutputChunk:
		u.chunk(l, d)
		return
	case *client.MessageCompleted:
		u.finish(l, d.MessageID)
		return
	case *client.MessageRetracted:
		u.retract(l, d.MessageID)
		return
	case *client.ToolCall:
		l.open = slices.DeleteFunc(l.open, func(o openCall) bool { return o.id == d.ID }) // it may come twice
		l.open = append(l.open, openCall{d.ID, d.Name})
	case *client.ToolCallAnswered:
		u.closed(l, d.ID)
	case *client.ToolCallCanceled:
		u.closed(l, d.ID)
	case *client.InteractionRequested:
		l.waits = append(l.waits, d.Interaction.ID)
	case *client.InteractionResolved:
		l.waits = slices.DeleteFunc(l.waits, func(id string) bool { return id == d.Interaction.ID })
	case *client.ModelCallEnded:
		u.used(l, d)
		return
	case *client.HistoryCompacted:
		u.context = ""
	case *client.MessageInjected:
		u.injected(d)
		return
	case *client.TurnStarted, *client.StateUpdate, *client.Error, *client.End, *client.TurnQueued:
		return // the status line, or the last line of the turn, says it
	}
	u.finish(l, "")
	k := kindNote
	switch event.Data.(type) {
	case *client.ToolCall, *client.ToolCallAnswered:
		_ = l.calls.Print(event) // a Buffer takes everything
		k = kindTool
	default:
		_ = l.rest.Print(event)
	}
	text := l.buf.String()
	l.buf.Reset()
	for line := range strings.Lines(text) {
		if line = terminal.Line(line, maxCallLine); line != "" && k == kindTool {
			u.put(k, u.style.Paint(line, "36"))
		} else if line != "" {
			u.put(k, u.dim(line))
		}
	}
}

// closed notes that a call of a tool is open no longer.
func (u *tui) closed(l *liveTurn, id string) {
	l.open = slices.DeleteFunc(l.open, func(o openCall) bool { return o.id == id })
	l.mu.Lock()
	delete(l.byCall, id)
	l.mu.Unlock()
}

// chunk shows a piece of what an agent says or thinks.
func (u *tui) chunk(l *liveTurn, c *client.OutputChunk) {
	text := cli.Clean(c.Content)
	if c.IsThought {
		if l.thinking.IsZero() {
			l.thinking = time.Now()
		}
		if l.thought.Len()+len(text) <= maxThought {
			l.thought.WriteString(text)
		}
		return
	}
	if text == "" {
		return
	}
	u.thought(l)
	i := slices.IndexFunc(l.messages, func(m *spoken) bool { return m.id == c.MessageID })
	if i < 0 {
		i = len(l.messages)
		l.messages = append(l.messages, &spoken{id: c.MessageID, who: speaker(c.AgentPath), from: l.said.Len()})
	}
	m := l.messages[i]
	if l.said.Len()+len(text) <= maxText {
		l.said.WriteString(text)
	}
	u.blocks(l, m, m.stream.Add(text))
}

// speaker is the agent at the end of a path; "" for the root.
func speaker(path []string) string {
	if len(path) < 2 {
		return ""
	}
	return terminal.Line(path[len(path)-1], 80)
}

// blocks prints what is complete of a message.
func (u *tui) blocks(l *liveTurn, m *spoken, done []markdown.Block) {
	for _, b := range done {
		m.printed = true
		if m.who != l.speaker {
			l.speaker = m.who
			if m.who != "" {
				u.put(kindNote, u.dim("["+m.who+"]"))
			}
		}
		k := kindText
		if b.Code {
			k = kindCode
		}
		u.put(k, u.style.Lines(b)...)
	}
}

// finish prints the rest of a message, or of all with an empty id.
func (u *tui) finish(l *liveTurn, id string) {
	l.messages = slices.DeleteFunc(l.messages, func(m *spoken) bool {
		if id != "" && m.id != id {
			return false
		}
		u.blocks(l, m, m.stream.Close())
		return true
	})
}

// retract drops what is not printed of a message, and says that the rest is void.
func (u *tui) retract(l *liveTurn, id string) {
	printed := false
	l.messages = slices.DeleteFunc(l.messages, func(m *spoken) bool {
		if id != "" && m.id != id {
			return false
		}
		printed = printed || m.printed
		if l.said.Len() > m.from {
			l.said.Truncate(m.from)
		}
		return true
	})
	if printed {
		u.put(kindNote, u.dim("(what was said last is void)"))
	}
}

// thought says how long an agent has thought, when it does no longer.
func (u *tui) thought(l *liveTurn) {
	if l.thinking.IsZero() {
		return
	}
	u.put(kindNote, u.dim(fmt.Sprintf("thought for %s", time.Since(l.thinking).Round(time.Second))))
	if u.unfold {
		for line := range strings.Lines(l.thought.String()) {
			u.put(kindNote, u.dim("  "+strings.TrimRight(line, "\n")))
		}
	}
	l.thinking = time.Time{}
	l.thought.Reset()
}

// used adds what a model call took, and notes how much of the model's context is used.
func (u *tui) used(l *liveTurn, d *client.ModelCallEnded) {
	if d.Usage == nil {
		return
	}
	l.in += d.Usage.PromptTokens
	l.out += d.Usage.CompletionTokens
	l.unpriced = l.unpriced || d.Usage.UnpricedCalls > 0
	if d.Usage.CostUSD != nil {
		l.cost += *d.Usage.CostUSD
	}
	if d.Outcome == client.OutcomeSummarized || len(d.AgentPath) > 1 {
		return
	}
	_, bare, _ := strings.Cut(d.Model, "/")
	for _, name := range []string{d.Model, d.ServedModel, bare} {
		if window := u.windows[name]; window > 0 {
			used := d.Usage.PromptTokens + d.Usage.CompletionTokens
			u.context = fmt.Sprintf("context %d%%", min(used*100/window, 100))
			return
		}
	}
}

// ended notes what came of a turn, and follows the next one that waits.
func (u *tui) ended(m endedMsg) tea.Cmd {
	l := m.of
	if l != u.live {
		return nil
	}
	u.thought(l)
	u.finish(l, "")
	u.live = nil
	u.asks = nil // their contexts have ended
	if m.err != nil && l.turn.Session() == "" && u.input.String() == "" && !u.leaving {
		u.input.set(l.typed) // it was not sent
	}
	u.chat.note(l.turn, [2]string{l.text, l.said.String()}, m.ending, m.err)
	switch {
	case errors.Is(m.err, errLeft) || u.leaving:
		return nil
	case m.err != nil && u.chat.Prompt.Session == "":
		u.unsent()
		return nil
	}
	return u.next()
}
