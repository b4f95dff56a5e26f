package gestalt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	gestaltv1 "github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1"
)

// driveWait is the longest wait before a turn that cannot be followed is followed again.
const driveWait = 5 * time.Second

// admit reserves a place among the turns that are under way. The caller calls begin, once, which drives the turn in the
// background, or gives the place back.
func (p *Provider) admit(t *Turn) (begin func(bool), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return nil, connect.NewError(connect.CodeUnavailable, errStopping)
	}
	if p.driven >= MaxTurns {
		return nil, exhaustedf("%d turns are under way, the most that may be", MaxTurns)
	}
	p.driven++
	p.drivers.Add(1)
	return func(driven bool) {
		own := *t
		if !driven {
			p.leave(&own)
			return
		}
		go func() { // ends with the turn, or with p.driving
			defer p.leave(&own)
			p.drive(p.driving, &own)
		}()
	}, nil
}

func (p *Provider) leave(t *Turn) {
	p.follows(t, false)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.driven--
	p.drivers.Done()
}

// follows notes whether the tool calls of a turn are taken, and wakes turns that wait for it.
func (p *Provider) follows(t *Turn, does bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if does == p.following[t.ID] && does {
		return
	}
	if delete(p.following, t.ID); does {
		p.following[t.ID] = true
	}
	close(p.moved)
	p.moved = make(chan struct{})
}

// behind waits until each turn of the session that was made before is over, or its tool calls are taken: turns begin in
// the order of the host, and a turn that waits for its client gives way to the next one.
func (p *Provider) behind(ctx context.Context, t *Turn) error {
	for {
		p.mu.Lock()
		moved := p.moved
		p.mu.Unlock()
		open, err := p.store.OpenTurns(ctx, t.SessionID)
		if err != nil {
			return err
		}
		if p.next(t, open) {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// next reports whether all that a turn has to wait for among the open turns of its session is followed. One that is not
// open any more waits for nothing.
func (p *Provider) next(t *Turn, open []*Turn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.IndexFunc(open, func(o *Turn) bool { return o.ID == t.ID })
	return !slices.ContainsFunc(open[:max(at, 0)], func(o *Turn) bool { return !p.following[o.ID] })
}

// drive brings a turn to its end: it lists the tools of the host, has the daemon start the turn, and runs its tool
// calls. What fails for now is tried again until ctx ends.
func (p *Provider) drive(ctx context.Context, t *Turn) {
	for try := 0; ctx.Err() == nil; try++ {
		done, err := p.step(ctx, t)
		if done || ctx.Err() != nil {
			return
		}
		if err != nil {
			p.log.Warn("a turn is tried again", slog.String("turn", t.ID), slog.String("error", err.Error()))
		}
		timer := time.NewTimer(min(50*time.Millisecond<<min(try, 10), driveWait))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		now, err := p.store.Turn(ctx, t.ID)
		if err == nil {
			*t = *now
		}
	}
}

// step does what a turn needs next and reports whether it is over.
func (p *Provider) step(ctx context.Context, t *Turn) (done bool, err error) {
	switch t.Phase {
	case Waiting:
		return p.begin(ctx, t)
	case Running:
		return p.follow(ctx, t)
	default:
		return true, nil
	}
}

// begin lists the tools of a turn that waits for them.
func (p *Provider) begin(ctx context.Context, t *Turn) (done bool, err error) {
	said := &gestaltv1.CreateTurnRequest{}
	p.decode(t.Request, said)
	grant, err := p.store.Grant(ctx, t.ID)
	if err != nil {
		return false, err
	}
	tools, err := p.listTools(ctx, t, said.GetTools())
	if left := ctx.Err(); left != nil {
		return false, left
	}
	if err != nil {
		return p.fail(ctx, t, Waiting, redact(err.Error(), grant))
	}
	data, err := json.Marshal(tools)
	if err != nil {
		return p.fail(ctx, t, Waiting, err.Error())
	}
	if err := p.behind(ctx, t); err != nil {
		return false, err
	}
	was, err := p.store.BeginTurn(ctx, t.ID, data)
	if err != nil || !was { // it was canceled
		return err == nil, err
	}
	t.Phase, t.Tools = Running, data
	return p.follow(ctx, t)
}

// fail ends a turn that the daemon does not have.
func (p *Provider) fail(ctx context.Context, t *Turn, from Phase, why string) (done bool, err error) {
	t.Message = why
	if _, err := p.endBefore(ctx, t, Failed, from); err != nil {
		return false, err
	}
	return true, nil
}

// follow has the daemon start a turn, unless it has, and runs its tool calls until the turn is over.
func (p *Provider) follow(ctx context.Context, t *Turn) (done bool, err error) {
	tools, err := readTools(t)
	if err != nil {
		return p.fail(ctx, t, Running, err.Error())
	}
	switch d, err := p.daemonTurn(ctx, t); {
	case err == nil && isOver(d.GetStatus()):
		return true, p.over(ctx, t)
	case missing(err):
		if err := p.behind(ctx, t); err != nil {
			return false, err
		}
		if refused, err := p.start(ctx, t, tools); err != nil || refused {
			return refused, err
		}
	case err != nil:
		return false, err
	}
	set := client.NewToolSet()
	for i := range tools {
		tool := &tools[i]
		run := func(ctx context.Context, arguments json.RawMessage) (string, error) {
			c := &call{turn: t, tool: tool, id: client.CallFrom(ctx).ID()}
			c.trace, c.state = client.CallFrom(ctx).Trace()
			return p.execute(ctx, c, arguments)
		}
		err := client.AddRawTool(set, tool.Name, tool.Description, run, client.ToolTimeout(tool.Timeout))
		if err != nil {
			return p.fail(ctx, t, Running, err.Error())
		}
	}
	for _, err = range p.client.Attach(ctx, t.SessionID, client.WithTurnID(t.ID), client.WithTools(set),
		client.WithHeader(subjectHeader, encodeSubject(t.Subject))) {
		if err == nil {
			p.follows(t, true)
		}
	}
	p.follows(t, false)
	d, failed := p.daemonTurn(ctx, t)
	switch {
	case failed != nil:
		return false, errors.Join(err, failed)
	case isOver(d.GetStatus()):
		return true, p.over(ctx, t)
	default:
		return false, err
	}
}

// start has the daemon start a turn, or queue it behind others of its session. It reports whether the daemon refuses it
// for good; the turn has failed then.
func (p *Provider) start(ctx context.Context, t *Turn, tools []hostTool) (refused bool, err error) {
	said := &gestaltv1.CreateTurnRequest{}
	p.decode(t.Request, said)
	known := p.now().trees
	ex, err := known.request(said)
	if err != nil { // the file of the agents is another one by now
		return p.fail(ctx, t, Running, textOf(err))
	}
	known.withTools(ex, tools)
	if err := known.check(ex.GetAgent(), ex.GetTools()); err != nil {
		return p.fail(ctx, t, Running, err.Error())
	}
	req := as(t.Subject, &agentdv1.CreateTurnRequest{Execute: ex})
	if t.Trace != "" {
		req.Header().Set("traceparent", t.Trace)
	}
	_, err = p.sessions.CreateTurn(ctx, req)
	switch {
	case err == nil:
		return false, nil
	case ctx.Err() != nil, passes(err):
		return false, fmt.Errorf("the daemon does not start the turn: %w", err)
	default:
		return p.fail(ctx, t, Running, textOf(err))
	}
}

// passes reports whether a request may succeed later.
func passes(err error) bool {
	switch codeOf(err) {
	case agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE, agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED,
		agentdv1.ErrorCode_ERROR_CODE_TIMEOUT, agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY:
		return true
	case agentdv1.ErrorCode_ERROR_CODE_UNSPECIFIED: // it did not come from the daemon
		return true
	default:
		return false
	}
}
