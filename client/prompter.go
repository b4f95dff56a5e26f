package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// Prompter puts the questions of turns to a person; see [WithPrompter].
type Prompter interface {
	// Prompt returns what a person says to an interaction, made by [Approve], [Edit],
	// [Deny] or [Answer]; in is the prompter's own. It is called on a goroutine of its own, concurrently
	// with itself for other interactions. ctx ends when nobody is asked any more,
	// with the cause [ErrInteractionOver], or with the run, with [ErrRunEnded] or
	// the caller's own cause; what is returned then is dropped. With nil the
	// interaction stays open for others. So it does with an error, which is yielded
	// as [Event].Error, unless it is io.EOF: the input is at its end, nobody is
	// there, and that is no answer.
	//
	// What the server cannot take, such as arguments that do not fit the tool's schema, is
	// asked again, with the reason in [Interaction].Refused, up to 10 times. When the
	// prompter has nothing else to say then, the reason is yielded as [Event].Error.
	Prompt(ctx context.Context, in *Interaction) (*Resolution, error)
}

// PrompterFunc is a function as a [Prompter].
type PrompterFunc func(ctx context.Context, in *Interaction) (*Resolution, error)

// Prompt calls f.
func (f PrompterFunc) Prompt(ctx context.Context, in *Interaction) (*Resolution, error) {
	return f(ctx, in)
}

// ErrInteractionOver is the cause with which a prompt's context ends when
// somebody else has resolved the interaction, or nobody waits for it any more.
var ErrInteractionOver = errors.New("the interaction is over")

const (
	// maxPrompts is how many prompts of one run are open at a time; maxQuestions is
	// how many more interactions may wait for their prompt.
	maxPrompts   = 16
	maxQuestions = 1024
	// maxRefused is how many resolutions of one interaction the server may refuse.
	maxRefused = 10
	// requestTimeout bounds one request outside of a stream.
	requestTimeout = 30 * time.Second
)

// prompts are the prompts of one run. It owns their goroutines until stop; those
// of prompters that ignore their contexts for longer than the grace outlive it.
type prompts struct {
	run    *run
	ctx    context.Context         // parent of all prompts' contexts
	cancel context.CancelCauseFunc // ends ctx
	room   chan struct{}           // holds one for each prompt that is open

	mu      sync.Mutex                         // protects the fields below
	open    map[string]context.CancelCauseFunc // by interaction, those that wait too
	stopped bool
	idle    chan struct{} // closed once stopped and open is empty
}

// newPrompts returns nil for a run without a Prompter; all methods do nothing
// then.
func newPrompts(ctx context.Context, r *run) *prompts {
	if r.rc.prompter == nil {
		return nil
	}
	p := &prompts{
		run:  r,
		room: make(chan struct{}, maxPrompts),
		open: make(map[string]context.CancelCauseFunc),
		idle: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	return p
}

// ask has a person asked, unless one is being asked. It takes in over, and does
// not block.
func (p *prompts) ask(in *Interaction, replayed bool) {
	if p == nil {
		return
	}
	id := in.ID
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped || p.open[id] != nil || len(p.open) >= maxPrompts+maxQuestions {
		return
	}
	if in.SessionID == "" {
		in.SessionID = *p.run.session.Load()
	}
	ctx, cancel := context.WithCancelCause(p.ctx)
	p.open[id] = cancel
	go p.perform(ctx, in, replayed)
}

// over says that nobody waits for an interaction any more.
func (p *prompts) over(id string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if cancel := p.open[id]; cancel != nil {
		cancel(ErrInteractionOver)
	}
}

// stop ends all prompts and lets no new one begin.
func (p *prompts) stop() {
	if p == nil {
		return
	}
	p.cancel(ErrRunEnded)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.stopped = true
		if len(p.open) == 0 {
			close(p.idle)
		}
	}
}

// wait waits until the prompters have returned, at most for the grace. stop must
// have been called.
func (p *prompts) wait(grace time.Duration) {
	if p != nil {
		p.run.await(p.idle, grace)
	}
}

// perform asks for one interaction; it is the body of its goroutine.
func (p *prompts) perform(ctx context.Context, in *Interaction, replayed bool) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.open[in.ID](nil)
		delete(p.open, in.ID)
		if p.stopped && len(p.open) == 0 {
			close(p.idle)
		}
	}()
	select {
	case p.room <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-p.room }()
	if replayed && p.isOver(ctx, in) {
		return
	}
	if err := p.resolve(ctx, in); err != nil && ctx.Err() == nil {
		failure, ok := errors.AsType[*Error](err)
		if !ok {
			failure = errorf(ErrInternal, "interaction %q: the prompter failed: %w", in.ID, err)
		}
		event := newEvent(failure)
		event.TurnID = in.TurnID
		p.run.tools.report(event)
	}
}

// resolve prompts until the server accepts a resolution or the prompter returns none.
func (p *prompts) resolve(ctx context.Context, in *Interaction) error {
	var refused *Error
	for range maxRefused {
		said, err := p.prompt(ctx, in.asked(refused))
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx) // the question was withdrawn
		case errors.Is(err, io.EOF), err == nil && said == nil: // there is no resolution
			if refused != nil {
				return refused
			}
			return nil
		case err != nil:
			return err
		}
		err = p.send(ctx, in, said)
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Code != ErrInvalidRequest && e.Code != ErrLimitExceeded {
			return err
		}
		refused = e
	}
	return refused
}

// prompt calls the prompter; a panic is an error.
func (p *prompts) prompt(ctx context.Context, in *Interaction) (said *Resolution, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	defer func() {
		if v := recover(); v != nil {
			said, err = nil, fmt.Errorf("it panicked: %v", v)
			p.run.client.cfg.logger.LogAttrs(context.WithoutCancel(ctx), slog.LevelDebug, "prompter panicked",
				slog.String("interaction_id", in.ID), slog.String("stack", string(debug.Stack())))
		}
	}()
	return p.run.rc.prompter.Prompt(ctx, in)
}

// isOver reports whether a replayed interaction is resolved. The events that follow
// would show it too, but only after the person was asked.
func (p *prompts) isOver(ctx context.Context, in *Interaction) (over bool) {
	err := p.run.retry(ctx, func(ctx context.Context) error {
		now, err := p.run.client.interaction(ctx, p.run.rc.header, in.SessionID, in.ID)
		over = now != nil && now.Status != InteractionStatusPending
		return err
	})
	return over || err != nil && ctx.Err() != nil
}

// send sends a resolution to the server. It is no error if the interaction is resolved
// already.
func (p *prompts) send(ctx context.Context, in *Interaction, said *Resolution) error {
	msg, err := said.checked()
	if err != nil {
		return errorf(ErrInvalidRequest, "interaction %q: %w", in.ID, err)
	}
	if msg.GetIdempotencyKey() == "" {
		msg.IdempotencyKey = rand.Text() // a lost request is sent again
	}
	err = p.run.retry(ctx, func(ctx context.Context) error {
		_, err := p.run.client.resolve(ctx, p.run.rc.header, in.SessionID, in.ID, msg)
		return err
	})
	if errors.Is(err, ErrPrecondition) {
		return nil
	}
	return err
}
