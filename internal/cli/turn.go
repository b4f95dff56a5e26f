package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/terminal"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Screen shows events. Its methods are called by one goroutine at a time.
type Screen interface {
	// Event shows one event.
	Event(*agentdv1.RunResponse) error
	// Hold(true) keeps the events that follow until Hold(false), so that a person can be
	// asked.
	Hold(bool) error
}

// Person answers questions, one at a time. [terminal.Prompter] is one who reads a terminal. An error is
// [terminal.ErrNobody] if nobody answers, or the cause of ctx's end.
type Person interface {
	// Prompt asks what a turn asks.
	Prompt(ctx context.Context, in *client.Interaction) (*client.Resolution, error)
	// Say shows a line.
	Say(text string)
}

var _ Person = (*terminal.Prompter)(nil)

// Turn follows one turn, once, runs its tools and asks its questions.
type Turn struct {
	// Conn is the daemon.
	Conn *Conn
	// Tools run in this process; may be nil. See AddTool.
	Tools *client.ToolSet
	// Builtins do too; of two of the same name the later counts, and before all of these one of Tools.
	Builtins []*client.ToolSet
	// Screen shows what happens.
	Screen Screen
	// Person is asked; nil: nobody is there to be asked.
	Person Person
	// Connected is told that the connection is lost, and that it is there again; may be nil.
	Connected func(bool)
	// Note tells a person what is no event; several goroutines call it.
	Note func(format string, args ...any)

	session, turn atomic.Pointer[string] // as soon as they are known
	asked         atomic.Pointer[questions]
	goal          atomic.Pointer[client.Goal] // of Work, once there is one
	once          sync.Once
	found         chan struct{} // see begun
}

// toolSets are the tools of the turn; of two of the same name the later counts.
func (t *Turn) toolSets() []*client.ToolSet { return append(slices.Clip(t.Builtins), t.Tools) }

// begun is closed when the turn is known.
func (t *Turn) begun() chan struct{} {
	t.once.Do(func() { t.found = make(chan struct{}) })
	return t.found
}

// Prompt is what starts a turn.
type Prompt struct {
	// Agent is the tree, and Kept names one that the daemon keeps. Without both: that of the session's last turn.
	Agent *client.Agent
	Kept  client.AgentRef
	// Session is continued; "" is a new one. With Create it is made if there is none.
	Session string
	Create  bool
	// Text is what the user says, and Parts the files behind it.
	Text  string
	Parts []client.Part
	// Raw asks for the responses of providers, as they came.
	Raw bool
	// Instruction comes behind that of each agent; "" is none.
	Instruction string
	// PlanMode keeps tools that change something from being run.
	PlanMode bool
	// State are keys of the session's state to set; nil: none.
	State map[string]any
	// Budget bounds what the turn may spend; zero: no bound.
	Budget client.Budget
	// OnBusy says what happens if the session runs a turn; 0 is what the daemon does then.
	OnBusy client.OnBusy
	// Traceparent and Tracestate are the trace that the turn is part of, as the headers of W3C's Trace Context have it.
	Traceparent, Tracestate string
}

// options are those of the turn's start.
func (p *Prompt) options() []client.SendOption {
	out := []client.SendOption{client.WithIdempotencyKey(rand.Text()), client.WithParts(p.Parts...)}
	if p.Kept != (client.AgentRef{}) {
		out = append(out, client.WithAgentRef(p.Kept))
	}
	if p.Raw {
		out = append(out, client.WithRawPayloads())
	}
	if p.Instruction != "" {
		out = append(out, client.WithInstruction(p.Instruction))
	}
	if p.PlanMode {
		out = append(out, client.WithPlanMode())
	}
	if p.OnBusy != 0 {
		out = append(out, client.WithOnBusy(p.OnBusy))
	}
	if p.State != nil {
		out = append(out, client.WithInitialState(p.State))
	}
	if p.Budget != (client.Budget{}) {
		out = append(out, client.WithBudget(p.Budget))
	}
	if p.Traceparent != "" {
		out = append(out,
			client.WithHeader("Traceparent", p.Traceparent), client.WithHeader("Tracestate", p.Tracestate))
	}
	return out
}

// Ending is how a turn ended.
type Ending struct {
	// Session is the turn's.
	Session string
	// End is the turn's last event.
	End *agentdv1.RunResponse_EndResponse
	// Err is what the turn failed with; nil when it did not fail.
	Err *agentdv1.RunResponse_ErrorResponse
	// Took is how long it was followed.
	Took time.Duration
}

// Session is the turn's session, "" before it is known. It may be called from any
// goroutine.
func (t *Turn) Session() string { return known(&t.session) }

func known(p *atomic.Pointer[string]) string {
	if s := p.Load(); s != nil {
		return *s
	}
	return ""
}

// Start starts a turn and follows it to its end. Its errors are *Error.
func (t *Turn) Start(ctx context.Context, prompt Prompt) (*Ending, error) {
	created, err := t.Create(ctx, prompt)
	if err != nil {
		return nil, err
	}
	return t.Follow(ctx, created)
}

// Create starts a turn, or has its prompt wait, and does not follow it. Its errors are *Error.
// It does so once: when the reply to the request is lost, the request is
// repeated under its idempotency key.
func (t *Turn) Create(ctx context.Context, prompt Prompt) (*client.Turn, error) {
	var session *client.Session
	switch {
	case prompt.Session == "":
		session = t.Conn.NewSession(prompt.Agent)
	case prompt.Create:
		session = t.Conn.SessionOrNew(prompt.Session, client.WithAgent(prompt.Agent))
	default:
		session = t.Conn.Client.Session(prompt.Session, client.WithAgent(prompt.Agent))
	}
	opts := prompt.options()
	for _, set := range t.toolSets() {
		opts = append(opts, client.WithTools(set))
	}
	begun, lost := time.Now(), false
	more := func(e *Error) bool {
		lost = lost || e.unknownOutcome()
		if lost && time.Since(begun) > patience {
			e.Message += "; whether the turn was started is not known, agentd turns list tells"
			return false
		}
		return lost
	}
	return retry(ctx, t, more, func(ctx context.Context) (*client.Turn, error) {
		return session.Start(ctx, prompt.Text, opts...)
	})
}

// Attach follows a session's last turn from its beginning to its end. Its errors are
// *Error.
func (t *Turn) Attach(ctx context.Context, session string) (*Ending, error) {
	last, err := Call(ctx, t.Conn, func(ctx context.Context) (*client.Turn, error) {
		return t.Conn.Client.Session(session).Turn(ctx, "")
	})
	if err != nil {
		return nil, err
	}
	return t.Follow(ctx, last)
}

// Result is the turn as the daemon has it, after its end. Its errors are *Error.
func (t *Turn) Result(ctx context.Context) (*agentdv1.Turn, error) {
	more := func(*Error) bool { return true }
	turn, err := retry(ctx, t, more, func(ctx context.Context) (*client.Turn, error) {
		return t.Conn.Client.Session(t.Session()).Turn(ctx, known(&t.turn))
	})
	if err != nil {
		return nil, err
	}
	return turn.Proto(), nil
}

// Withdraw takes back the question that is open; no other one is asked. It may be called
// from any goroutine.
func (t *Turn) Withdraw() {
	if q := t.asked.Load(); q != nil {
		q.close()
	}
}

// Cancel asks the daemon to cancel the turn, as soon as it is known which one that is;
// Start or Attach then returns by itself. It may be called from any goroutine.
func (t *Turn) Cancel(ctx context.Context, reason string) error {
	select {
	case <-t.begun():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err := Call(ctx, t.Conn, func(ctx context.Context) (*client.Turn, error) {
		return t.Conn.Client.Session(t.Session()).CancelTurn(ctx, known(&t.turn), reason)
	})
	return err
}

// Follow follows a turn to its end. Its errors are *Error.
func (t *Turn) Follow(ctx context.Context, turn *client.Turn) (*Ending, error) {
	start := time.Now()
	t.session.Store(&turn.SessionID)
	t.turn.Store(&turn.ID)
	close(t.begun())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asked := newQuestions(ctx, t)
	t.asked.Store(asked)
	defer asked.close()
	var opts []client.AttachOption
	for _, set := range t.toolSets() {
		opts = append(opts, client.WithTools(set))
	}
	if t.Person != nil {
		opts = append(opts, client.WithPrompter(asked))
	}
	lost := func(err error) {
		t.connected(false)
		t.Note("%v; trying again", err)
	}
	f := Following{
		Session: turn.SessionID, Turn: turn.ID, Patient: true, Lost: lost, Restored: func() { t.connected(true) },
	}

	children := t.below(ctx)
	defer children.over()
	ending := &Ending{Session: turn.SessionID}
	tools := map[string]string{} // names of the tools that were called, by call; the turn bounds them
	for event, err := range t.Conn.Follow(ctx, f, opts...) {
		if err != nil {
			asked.close()
			return nil, err
		}
		children.see(event)
		if !t.react(event, asked, tools) {
			continue
		}
		message := event.Proto()
		if message == nil {
			continue // package client says it, not the daemon
		}
		if e := message.GetError(); e != nil {
			ending.Err = e
		}
		if message.GetEnd() != nil {
			asked.close()
			ending.End, ending.Took = message.GetEnd(), time.Since(start)
			if ending.End.GetCompleted() || ending.End.GetReceipt() != nil {
				ending.Err = nil // it was about something else
			}
		}
		if err := asked.show(message); err != nil {
			asked.close()
			return nil, &Error{Message: fmt.Sprintf("write: %v", err), Err: err}
		}
	}
	if ending.End == nil {
		return nil, &Error{Message: "the daemon has not said how the turn ended"}
	}
	return ending, nil
}

func (t *Turn) connected(is bool) {
	if t.Connected != nil {
		t.Connected(is)
	}
}

// react does what an event asks for, and reports whether the event is to be shown: what
// package client says itself is not.
func (t *Turn) react(event *client.Event, asked *questions, tools map[string]string) (show bool) {
	switch d := event.Data.(type) {
	case *client.TurnStarted:
		if event.TurnID != "" {
			t.turn.Store(&event.TurnID) // an injected prompt becomes part of another turn
		}
	case *client.ToolCall:
		tools[d.ID] = d.Name
	case *client.InteractionRequested:
		if t.Person == nil {
			asked.leave(d.Interaction)
		}
	case *client.InteractionResolved:
		asked.resolved(d.Interaction)
	case *client.Error:
		switch {
		case d.ToolCallID != "" && event.Seq == 0:
			t.Note("the result of tool %s was refused: %v", Clean(tools[d.ToolCallID]), t.Conn.explain(d))
			return false
		case event.Proto() == nil:
			asked.failed(t.Conn.explain(d))
			return false
		}
	}
	return true
}
