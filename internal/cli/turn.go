package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/client/terminal"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/toolcmd"
)

// Screen shows events. Its methods are called by one goroutine at a time.
type Screen interface {
	// Event shows one event.
	Event(*agentdv1.RunResponse) error
	// Hold keeps what comes from now on until it is called with false, so that a
	// person can be asked.
	Hold(bool) error
}

// Turn follows one turn, once, runs its tools and asks its questions.
type Turn struct {
	// Conn is the daemon.
	Conn *Conn
	// Tools are run by this process, by name.
	Tools map[string]toolcmd.Command
	// Screen shows what happens.
	Screen Screen
	// Person is asked; nil: nobody is there to be asked.
	Person *terminal.Prompter
	// Note tells a person what is no event; called from several goroutines.
	Note func(format string, args ...any)

	session, turn atomic.Pointer[string] // as soon as they are known
	asked         atomic.Pointer[questions]
	once          sync.Once
	found         chan struct{} // see begun
}

// begun is closed when the turn is known.
func (t *Turn) begun() chan struct{} {
	t.once.Do(func() { t.found = make(chan struct{}) })
	return t.found
}

// Ending is how a turn has ended.
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
func (t *Turn) Start(ctx context.Context, execute *agentdv1.RunRequest_ExecuteRequest) (*Ending, error) {
	created, err := t.create(ctx, execute)
	if err != nil {
		return nil, err
	}
	return t.follow(ctx, Following{Session: created.GetSessionId(), Turn: created.GetId(), Patient: true})
}

// create starts a turn, once: a request whose answer was lost is made again under
// its idempotency key.
func (t *Turn) create(ctx context.Context, execute *agentdv1.RunRequest_ExecuteRequest) (*agentdv1.Turn, error) {
	if execute.GetIdempotencyKey() == "" {
		execute = proto.CloneOf(execute)
		execute.IdempotencyKey = rand.Text()
	}
	begun, lost := time.Now(), false
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		resp, err := Call(ctx, t.Conn, t.Conn.CreateTurn, &agentdv1.CreateTurnRequest{Execute: execute})
		if err == nil {
			return resp.GetTurn(), nil
		}
		e := t.Conn.explain(err)
		if ctx.Err() != nil || !mayPass(e) || !lost && !unknownOutcome(e) {
			return nil, e
		}
		if time.Since(begun) > patience {
			e.Message += "; whether the turn was started is not known, agentd turns list tells"
			return nil, e
		}
		if !lost {
			t.Note("%v; trying again", e)
		}
		if lost = true; !pause(ctx, max(wait, min(e.RetryAfter, patience))) {
			return nil, e
		}
	}
}

// Attach follows a session's last turn from its beginning to its end. Its errors
// are *Error.
func (t *Turn) Attach(ctx context.Context, session string) (*Ending, error) {
	resp, err := Call(ctx, t.Conn, t.Conn.GetTurn, &agentdv1.GetTurnRequest{SessionId: session})
	if err != nil {
		return nil, err
	}
	return t.follow(ctx, Following{Session: session, Turn: resp.GetTurn().GetId(), Patient: true})
}

// Result is the turn as the daemon has it, after its end. Its errors are *Error.
func (t *Turn) Result(ctx context.Context) (*agentdv1.Turn, error) {
	req := &agentdv1.GetTurnRequest{SessionId: t.Session(), TurnId: known(&t.turn), UserParts: true}
	resp, err := persist(ctx, t, t.Conn.GetTurn, req)
	return resp.GetTurn(), err
}

// Withdraw takes back the question that is open; no other one is asked. It may be
// called from any goroutine.
func (t *Turn) Withdraw() {
	if q := t.asked.Load(); q != nil {
		q.close()
	}
}

// Cancel asks the daemon to stop the turn, as soon as it is known which one that
// is; what follows it then ends by itself. It may be called from any goroutine.
func (t *Turn) Cancel(ctx context.Context, reason string) error {
	select {
	case <-t.begun():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err := Call(ctx, t.Conn, t.Conn.CancelTurn, &agentdv1.CancelTurnRequest{SessionId: t.Session(), TurnId: known(&t.turn), Reason: reason})
	return err
}

func (t *Turn) follow(ctx context.Context, f Following) (*Ending, error) {
	start := time.Now()
	t.session.Store(&f.Session)
	t.turn.Store(&f.Turn)
	close(t.begun())
	f.Tools = slices.Sorted(maps.Keys(t.Tools))
	f.Lost = func(err error) { t.Note("%v; trying again", err) }
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tools := newToolbox(ctx, t, f.Session, func() string { return known(&t.turn) })
	defer tools.close()
	asked := t.questions(ctx)
	t.asked.Store(asked)
	defer asked.close()

	// One goroutine shows; a question that is open holds the screen.
	ending := &Ending{Session: f.Session}
	for event, err := range t.Conn.Follow(ctx, f) {
		if err != nil {
			asked.close()
			return nil, err
		}
		if id := event.GetTurnId(); id != "" && event.GetExecute() != nil {
			t.turn.Store(&id) // of an injected prompt it is another one
		}
		if !t.react(event, tools, asked) {
			continue
		}
		if e := event.GetError(); e != nil {
			ending.Err = e
		}
		if event.GetEnd() != nil {
			asked.close()
			ending.End, ending.Took = event.GetEnd(), time.Since(start)
			if ending.End.GetCompleted() || ending.End.GetReceipt() != nil {
				ending.Err = nil // it was about something else
			}
		}
		if err := asked.show(event); err != nil {
			return nil, &Error{Message: fmt.Sprintf("write: %v", err), Err: err}
		}
	}
	if ending.End == nil {
		return nil, &Error{Message: "the turn's end was not told", Err: errors.ErrUnsupported}
	}
	return ending, nil
}

// react does what an event asks for, and tells whether it is to be shown: a call
// that is asked for again is not.
func (t *Turn) react(event *agentdv1.RunResponse, tools *toolbox, asked *questions) bool {
	switch {
	case event.GetToolCall() != nil:
		return tools.call(event.GetToolCall())
	case event.GetToolCallCanceled() != nil:
		tools.cancel(event.GetToolCallCanceled().GetToolCallId())
	case event.GetInteractionRequested() != nil:
		asked.ask(event.GetInteractionRequested().GetInteraction())
	case event.GetInteractionResolved() != nil:
		asked.resolved(event.GetInteractionResolved().GetInteraction())
	}
	return true
}
