package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
)

// childMark stands in the id of a child's session, between that of its parent and the child's name.
const childMark = ":sub:bg."

// Serve runs the tools of the client, and those of [WithTools], for the background agents below a session, however
// deep and whoever has started them, until ctx ends: also those that are spawned later, and after the turn that
// spawned them. A gate that asks somebody names the agent that asks, see [Call.Child]. [WithProgress] sees the events
// of their turns, each with the [Event].SessionID of its child and a [Lineage], from several goroutines, one for each
// child. [WithOnAlert] sees what they report. Other options are those of [Client.FollowGoal].
//
// It returns when ctx ends, with no error; or why it cannot go on: what was lost is tried again before, as
// [WithReconnect] says. It has two goroutines for each child that is at work, which have ended by then.
func (c *Client) Serve(ctx context.Context, sessionID string, opts ...GoalOption) error {
	run, end, err := c.withServers(ctx)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &server{c: run, opts: opts, stop: cancel}
	rc := &runConfig{}
	for _, o := range opts {
		o.applyGoal(rc)
	}
	s.alert, s.progress = rc.onAlert, rc.goalProgress
	s.below(ctx, sessionID, false)
	s.wg.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) &&
		!errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// WithOnAlert has f see what background agents report to [Client.Serve], in the order of their parent's session:
// alerts, and how they have ended. It is called by one goroutine for each session that has children, which waits for
// it.
func WithOnAlert(f func(*ChildEvent)) GoalOption {
	return option{0, func(c *runConfig) { c.onAlert = f }}
}

// server is one run of Serve.
type server struct {
	c        *Client
	opts     []GoalOption
	alert    func(*ChildEvent)
	progress func(int, *Event)
	stop     context.CancelCauseFunc
	wg       sync.WaitGroup
}

// below serves the children of a session until ctx ends, or with ends until the goals of the session and of its
// children have ended.
func (s *server) below(ctx context.Context, sessionID string, ends bool) {
	known := map[string]*ChildEvent{} // those that were spawned and have not begun
	working, over := 0, false
	for event, err := range s.c.Session(sessionID).Watch(ctx) {
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, ErrSessionNotFound) {
				s.stop(err)
			}
			return
		}
		g, is := event.Data.(*GoalEvent)
		if !is {
			continue
		}
		switch child := g.Child; {
		case child == nil:
			over = g.Kind == GoalEventEnded || over && g.Kind != GoalEventStarted
		case g.Kind == GoalEventChildSpawned:
			known[child.Name] = child
		case child.Report == "started":
			spawned := known[child.Name]
			delete(known, child.Name)
			working++
			s.wg.Go(func() { s.child(ctx, child.SessionID, spawned) })
			s.wg.Go(func() { s.below(ctx, child.SessionID, true) })
		default:
			if child.Ended {
				working--
			}
			if s.alert != nil {
				s.alert(child)
			}
		}
		if ends && over && working <= 0 {
			return
		}
	}
}

// child serves the goal of a child to its end.
func (s *server) child(ctx context.Context, sessionID string, spawned *ChildEvent) {
	lineage := &Lineage{ParentSessionID: sessionID[:strings.LastIndex(sessionID, childMark)]}
	if spawned != nil {
		lineage.Branch, lineage.Depth = spawned.Branch, spawned.Depth
	}
	opts := append(slices.Clip(s.opts), WithProgress(func(turn int, event *Event) {
		if s.progress == nil {
			return
		}
		if event.Lineage == nil {
			event.Lineage = lineage
		}
		s.progress(turn, event)
	}))
	g, err := s.c.FollowGoal(ctx, GoalSpec{SessionID: sessionID}, opts...)
	if err == nil {
		_, err = g.Wait(ctx)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrSessionNotFound) && !errors.Is(err, ErrNotFound) {
		s.stop(err)
	}
}
