package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/terminal"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// questions is the client.Prompter of a turn: it asks the turn's person one question at a
// time. The screen holds while a question is open.
type questions struct {
	turn *Turn
	ctx  context.Context //nolint:containedctx // of the turn: a question ends with it
	free chan struct{}   // holds one: whoever has put it there may ask

	mu     sync.Mutex // protects the fields below, and is held to show something
	closed bool
	open   map[string]*question // by interaction; until it is resolved
	// shown are closed when the screen has the request of an interaction, by its id, or a tool call, by ofCall;
	// the turn bounds them.
	shown  map[string]chan struct{}
	asking sync.WaitGroup // grows only while closed is false
}

// question is one that was put, or waits for those before it.
type question struct {
	in     *client.Interaction
	cancel context.CancelCauseFunc // takes it back
	said   *client.Resolution      // what the person said to it; nil: nothing yet
}

// errOver takes back a question that nobody has resolved elsewhere.
var errOver = errors.New("no longer asked")

func newQuestions(ctx context.Context, t *Turn) *questions {
	return &questions{
		turn:  t,
		ctx:   ctx,
		free:  make(chan struct{}, 1),
		open:  map[string]*question{},
		shown: map[string]chan struct{}{},
	}
}

// close takes back the question that is open and asks no more. It returns when the screen
// is free, and may be called from any goroutine, more than once.
func (q *questions) close() {
	q.mu.Lock()
	q.closed = true
	for _, open := range q.open {
		open.cancel(errOver)
	}
	q.mu.Unlock()
	q.asking.Wait()
}

// show shows an event. A question is asked when its request was shown, and so all that
// came before it.
func (q *questions) show(event *agentdv1.RunResponse) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	asks := event.GetInteractionRequested().GetInteraction().GetId()
	if call := event.GetToolCall().GetToolCallId(); call != "" {
		asks = ofCall(call)
	}
	if asks != "" {
		select {
		case <-q.requestLocked(asks):
		default:
			defer close(q.requestLocked(asks))
		}
	}
	return q.turn.Screen.Event(event)
}

// ofCall is the id in shown of a tool call, about which the gate may ask.
func ofCall(id string) string { return "call " + id }

// requestLocked returns what is closed when the request of an interaction, or a tool call, was shown.
func (q *questions) requestLocked(id string) chan struct{} {
	if q.shown[id] == nil {
		q.shown[id] = make(chan struct{})
	}
	return q.shown[id]
}

// request is requestLocked for a caller without mu.
func (q *questions) request(id string) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.requestLocked(id)
}

// leave says who may answer in this person's place.
func (q *questions) leave(in *client.Interaction) {
	q.turn.Note("the turn waits for a person: agentd interactions resolve %s %s approve|deny|answer",
		in.SessionID, in.ID)
}

// Prompt asks the person. Without an answer it returns io.EOF, by which the interaction
// stays open, and notes who may answer.
func (q *questions) Prompt(ctx context.Context, in *client.Interaction) (*client.Resolution, error) {
	asked, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	if !q.register(ctx, &question{in: in, cancel: cancel}) {
		return nil, io.EOF // the interaction stays open
	}
	defer q.asking.Done()
	// Why an interaction is over, its event says: see resolved.
	unwatch := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, client.ErrInteractionOver) {
			cancel(cause)
		}
	})
	defer unwatch()
	unleave := context.AfterFunc(q.ctx, func() { cancel(context.Cause(q.ctx)) })
	defer unleave()
	said, err := q.put(asked, in)
	switch {
	case asked.Err() != nil:
		return nil, io.EOF // nobody waits for an answer
	case errors.Is(err, terminal.ErrNobody):
		q.leave(in)
		return nil, io.EOF // the interaction stays open
	case err != nil:
		q.turn.Note("%v", err)
		q.leave(in)
		return nil, io.EOF // the interaction stays open
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if open := q.open[in.ID]; open != nil {
		open.said = said
	}
	return said, nil
}

// register notes a question that is to be put, and reports whether it may be.
func (q *questions) register(ctx context.Context, asked *question) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return false
	case q.closed:
		q.leave(asked.in)
		return false
	}
	q.open[asked.in.ID] = asked
	q.asking.Add(1)
	return true
}

// put asks when the questions before are answered.
func (q *questions) put(ctx context.Context, in *client.Interaction) (*client.Resolution, error) {
	select {
	case <-q.request(in.ID):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case q.free <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-q.free }()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := q.hold(true); err != nil {
		return nil, err
	}
	defer func() { _ = q.hold(false) }() // a screen that cannot be written says so with the next event
	return q.turn.Person.Prompt(ctx, in)
}

func (q *questions) hold(hold bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.turn.Screen.Hold(hold)
}

// resolved takes a question back, and tells the person when somebody else was first. The
// event of the person's own answer may come before the daemon's reply to it.
func (q *questions) resolved(in *client.Interaction) {
	q.mu.Lock()
	defer q.mu.Unlock()
	open := q.open[in.ID]
	if open == nil {
		return
	}
	delete(q.open, in.ID)
	switch {
	case in.Status == client.InteractionStatusCanceled, open.said != nil && sameDecision(open.said, in.Resolution):
		open.cancel(errOver)
	case open.said == nil:
		open.cancel(terminal.ErrElsewhere)
	default:
		q.sayElsewhere()
	}
}

// sayElsewhere says that an answer came too late, unless a question is open. mu is held.
func (q *questions) sayElsewhere() {
	select {
	case q.free <- struct{}{}:
		defer func() { <-q.free }()
	default:
		return
	}
	if err := q.turn.Screen.Hold(true); err == nil {
		q.turn.Person.Say("(" + terminal.ErrElsewhere.Error() + ")")
		_ = q.turn.Screen.Hold(false) // a screen that cannot be written says so with the next event
	}
}

// sameDecision compares what a person said with what an event says, which may write JSON
// in another way.
func sameDecision(a, b *client.Resolution) bool {
	return b == nil || a.Kind == b.Kind && a.Reason == b.Reason && a.Answer == b.Answer &&
		(a.ToolInput == nil) == (b.ToolInput == nil) && plainJSON(a.ToolInput) == plainJSON(b.ToolInput)
}

func plainJSON(text json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return string(text)
	}
	return b.String()
}

// failed notes that what the person said could not be sent, and who may answer.
func (q *questions) failed(err error) {
	q.turn.Note("%v", err)
	q.mu.Lock()
	defer q.mu.Unlock()
	for id, open := range q.open {
		if open.said != nil {
			delete(q.open, id)
			q.leave(open.in)
		}
	}
}
