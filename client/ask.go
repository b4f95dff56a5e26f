package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// maxAsked is how many questions one call may ask; the protocol's.
const maxAsked = 64

// Question is what a tool asks a person; see [Call.Ask].
type Question struct {
	// Kind is what is asked. An approval is approved or denied, anything else answered or
	// denied.
	Kind InteractionKind
	// Text is the question, of at most 65,536 bytes; only an approval may have none.
	Text string
	// Choices are answers to suggest, at most 100 of at most 1,024 bytes. On an approval they
	// are the scopes that mean something to the tool; see [Resolution].Scope.
	Choices []string
	// Source says in whose name the tool asks, such as that of a sub-agent, in at most 256
	// bytes; empty: the agent's that calls.
	Source string
}

// Ask has a person asked about the call, and returns what was said. The question is an
// [Interaction] of the turn: any client may resolve it, the [Prompter] of this run as well
// as a page or another terminal, and it outlives this program. If the call is asked again
// later, of this program or another one, the same questions in the same order get what was
// said, and nobody is asked twice.
//
// The server lets the call's time stand still meanwhile; a [ToolTimeout] and
// [WithToolTimeout] go on in this program. ctx is the handler's. The error says why nobody
// has answered: the cause of ctx's end, [ErrInteractionOver], or an [*Error], such as
// INVALID_REQUEST or LIMIT_EXCEEDED for a question that no server takes. It matches
// [errors.ErrUnsupported] where the server does not know such questions, and for a nil Call.
func (c *Call) Ask(ctx context.Context, q Question) (*Resolution, error) {
	if c == nil || c.ask == nil {
		return nil, fmt.Errorf("client.Call.Ask: this context is not that of a tool call: %w", errors.ErrUnsupported)
	}
	return c.ask(ctx, q)
}

// asking are the questions of one call; most calls ask none.
type asking struct {
	raising sync.Mutex // held while a question gets its number
	asked   uint32     // the last number; protected by raising

	mu       sync.Mutex              // protects the fields below
	resolved map[string]*Interaction // those that are over, by id; at most maxAsked
	changed  chan struct{}           // closed when one is over; nil: nobody waits
}

// over notes that a question of the call is over.
func (a *asking) over(in *Interaction) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.resolved) >= maxAsked {
		return
	}
	if a.resolved == nil {
		a.resolved = make(map[string]*Interaction)
	}
	a.resolved[in.ID] = in
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// await returns a question of the call when it is over.
func (a *asking) await(ctx context.Context, id string) (*Interaction, error) {
	for {
		in, changed := a.look(id)
		if in != nil {
			return in, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// look returns a question that is over, or what is closed when another one is.
func (a *asking) look(id string) (*Interaction, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.resolved[id], a.changed
}

// ask is [Call.Ask].
func (t *toolRunner) ask(ctx context.Context, c *call, q Question) (*Resolution, error) {
	in, err := t.raise(ctx, c, q)
	if err != nil {
		return nil, err
	}
	if in.Status == InteractionStatusPending {
		if in, err = c.asks.await(ctx, in.ID); err != nil {
			return nil, err
		}
	}
	if in.Resolution == nil {
		return nil, fmt.Errorf("nobody has answered: %w", ErrInteractionOver)
	}
	return in.Resolution, nil
}

// raise asks the next question of the call, and returns it as it is then. A question that was asked before under its
// number and is another one, since the tool knows by now what it has asked first, is passed over.
func (t *toolRunner) raise(ctx context.Context, c *call, q Question) (in *Interaction, err error) {
	kind := numberOf(string(q.Kind), "INTERACTION_KIND_", agentdv1.InteractionKind_value)
	asked := &agentdv1.Interaction{
		Kind:     agentdv1.InteractionKind(kind),
		Question: validUTF8(q.Text), Source: validUTF8(q.Source),
	}
	for _, choice := range q.Choices {
		asked.Choices = append(asked.Choices, validUTF8(choice))
	}
	c.asks.raising.Lock()
	defer c.asks.raising.Unlock()
	for c.asks.asked < maxAsked {
		msg := &agentdv1.RaiseInteractionRequest{
			SessionId: c.req.GetSessionId(), ToolCallId: c.req.GetToolCallId(), N: c.asks.asked + 1, Interaction: asked,
		}
		if in, err = t.send(ctx, msg); err != nil {
			return nil, err
		}
		c.asks.asked++
		had := in.message
		if had.GetKind() == asked.GetKind() && had.GetQuestion() == asked.GetQuestion() &&
			slices.Equal(had.GetChoices(), asked.GetChoices()) {
			return in, nil
		}
	}
	return nil, fmt.Errorf("the call has asked %d questions, which is all that one call may ask", maxAsked)
}

// send raises a question.
func (t *toolRunner) send(ctx context.Context, msg *agentdv1.RaiseInteractionRequest) (in *Interaction, err error) {
	err = t.run.retry(ctx, func(ctx context.Context) error {
		req := connect.NewRequest(msg)
		maps.Copy(req.Header(), t.run.rc.header)
		resp, err := t.run.client.sessions.RaiseInteraction(ctx, req)
		switch {
		case connect.CodeOf(err) == connect.CodeUnimplemented && refusalOf(err) == nil:
			return fmt.Errorf("the server takes no questions of tools: %w", errors.ErrUnsupported)
		case err != nil:
			return fromUnary(ctx, err)
		}
		in = InteractionOf(resp.Msg.GetInteraction())
		return nil
	})
	return in, err
}

// answered notes that an interaction is over, for the call that has asked it.
func (t *toolRunner) answered(in *Interaction) {
	t.mu.Lock()
	c := t.calls[in.ToolCallID]
	t.mu.Unlock()
	if c != nil {
		c.asks.over(in)
	}
}

// retry makes a request, and repeats it by the reconnect policy while the server
// cannot be reached.
func (r *run) retry(ctx context.Context, request func(context.Context) error) error {
	out := outage{policy: r.client.cfg.reconnect}
	for {
		try, cancel := context.WithTimeout(ctx, requestTimeout)
		err := request(try)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrTimeout) {
			return err
		}
		var asked time.Duration
		if e, ok := errors.AsType[*Error](err); ok {
			asked = e.RetryAfter
		}
		delay, ok := out.next(time.Now(), asked)
		if !ok || out.policy.Off {
			return err
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}
