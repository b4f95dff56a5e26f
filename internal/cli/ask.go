package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/terminal"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// questions puts the questions of a turn to its person, one after the other. The
// screen holds while one is open.
type questions struct {
	turn *Turn
	ctx  context.Context //nolint:containedctx // of the goroutine; ends with close
	stop context.CancelFunc
	wake chan struct{} // holds one signal: todo has grown
	done chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex // protects the fields below, and is held to show something
	todo   []*agentdv1.Interaction
	open   string // the id of the one that is asked; "" for none
	cancel context.CancelCauseFunc
	said   *agentdv1.Resolution // what the person has said to it; nil: nothing yet
}

var (
	// errOver says that nobody waits for an answer any more.
	errOver = errors.New("no longer asked")
)

func (t *Turn) questions(ctx context.Context) *questions {
	q := &questions{turn: t, wake: make(chan struct{}, 1), done: make(chan struct{})}
	q.ctx, q.stop = context.WithCancel(ctx)
	go q.loop()
	return q
}

// close takes back the question that is open and asks no more. It may be called
// from any goroutine, more than once.
func (q *questions) close() {
	q.stop()
	<-q.done
}

func (q *questions) show(event *agentdv1.RunResponse) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.turn.Screen.Event(event)
}

// ask has a question asked when those before it are answered. A turn has as many
// as it has tool calls.
func (q *questions) ask(i *agentdv1.Interaction) {
	if q.turn.Person == nil || q.ctx.Err() != nil {
		q.leave(i)
		return
	}
	q.mu.Lock()
	q.todo = append(q.todo, i)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// leave says who may answer in this person's place.
func (q *questions) leave(i *agentdv1.Interaction) {
	q.turn.Note("the turn waits for a person: agentd interactions resolve %s %s approve|deny|answer", i.GetSessionId(), i.GetId())
}

// resolved takes a question back. The event of the person's own answer may come
// before the answer to their request: then that is all there is to know.
func (q *questions) resolved(i *agentdv1.Interaction) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n, waiting := range q.todo {
		if waiting.GetId() == i.GetId() {
			q.todo = append(q.todo[:n], q.todo[n+1:]...)
			return
		}
	}
	switch {
	case q.open != i.GetId():
	case i.GetStatus() == agentdv1.InteractionStatus_INTERACTION_STATUS_CANCELED, q.said != nil && sameDecision(q.said, i.GetResolution()):
		q.cancel(errOver)
	default:
		q.cancel(terminal.ErrElsewhere)
	}
}

func sameDecision(a, b *agentdv1.Resolution) bool {
	return proto.Equal(&agentdv1.Resolution{Decision: a.GetDecision()}, &agentdv1.Resolution{Decision: b.GetDecision()})
}

func (q *questions) loop() {
	defer close(q.done)
	for {
		select {
		case <-q.wake:
		case <-q.ctx.Done():
			return
		}
		for q.next() {
		}
	}
}

// next asks the first question that waits, if there is one.
func (q *questions) next() bool {
	q.mu.Lock()
	if len(q.todo) == 0 || q.ctx.Err() != nil {
		q.mu.Unlock()
		return false
	}
	i := q.todo[0]
	q.todo = q.todo[1:]
	ctx, cancel := context.WithCancelCause(q.ctx)
	defer cancel(nil)
	q.open, q.cancel, q.said = i.GetId(), cancel, nil
	q.mu.Unlock()

	// What is read from the log may have been answered long ago.
	c := q.turn.Conn
	now, err := persist(ctx, q.turn, c.GetInteraction, &agentdv1.GetInteractionRequest{SessionId: i.GetSessionId(), InteractionId: i.GetId()})
	if err == nil && now.GetInteraction().GetStatus() == agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING {
		err = q.put(ctx, i)
	}
	q.mu.Lock()
	q.open, q.said = "", nil
	q.mu.Unlock()
	switch e, _ := errors.AsType[*Error](err); {
	case err == nil || ctx.Err() != nil:
	case e != nil && e.Code == agentdv1.ErrorCode_ERROR_CODE_FAILED_PRECONDITION: // somebody else was first
		q.turn.Note("%v", err)
	case errors.Is(err, terminal.ErrNobody):
		q.leave(i)
	default:
		q.turn.Note("%v", err)
		q.leave(i)
	}
	return true
}

// put asks, and sends what the person says; what the daemon finds invalid is asked
// again.
func (q *questions) put(ctx context.Context, i *agentdv1.Interaction) error {
	q.mu.Lock()
	err := q.turn.Screen.Hold(true)
	q.mu.Unlock()
	if err != nil {
		return err
	}
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		_ = q.turn.Screen.Hold(false) // what cannot be written is told with the next event
	}()
	person := q.turn.Person
	asked := client.InteractionOf(i)
	for {
		r, err := person.Prompt(ctx, asked)
		if err != nil {
			return err
		}
		err = q.send(ctx, i, r.Proto())
		e, _ := errors.AsType[*Error](err)
		switch {
		case errors.Is(context.Cause(ctx), terminal.ErrElsewhere):
			person.Say("(" + terminal.ErrElsewhere.Error() + ")")
			return err
		case ctx.Err() != nil || e == nil || !invalid(e):
			return err
		}
		asked.Refused = &client.Error{Code: client.Code(e.Code), Message: e.Message}
	}
}

// invalid tells whether another answer may be taken.
func invalid(e *Error) bool {
	return e.Code == agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST || e.Code == agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED
}

// send sends an answer until it has arrived or nobody waits for it.
func (q *questions) send(ctx context.Context, i *agentdv1.Interaction, r *agentdv1.Resolution) error {
	q.mu.Lock()
	q.said = r
	q.mu.Unlock()
	r.IdempotencyKey = rand.Text()
	c := q.turn.Conn
	req := &agentdv1.ResolveInteractionRequest{SessionId: i.GetSessionId(), InteractionId: i.GetId(), Resolution: r}
	_, err := persist(ctx, q.turn, c.ResolveInteraction, req)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.said = nil
	return err
}
