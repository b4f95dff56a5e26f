package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/team"
	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// A child is a goal in a session of its own, see package team. Each session writes its own log alone: the server that
// has the parent in memory starts its children, and reads in their rows and logs what they have reported. So a report
// needs neither a call from server to server nor a record of its delivery, and comes once: the parent's log says up to
// where the child's was read.

// lookAtChildren is how often children are looked at that run on other servers.
const lookAtChildren = 500 * time.Millisecond

// Below does to goals of children that another server owns what this one cannot.
type Below interface {
	// ControlGoal and Inject are those of the Manager of the server at an address, for the principal of ctx.
	ControlGoal(ctx context.Context, address, sessionID string, action agentdv1.GoalAction) error
	Inject(ctx context.Context, address, sessionID, text, key string) error
}

// Tend implements live.Host.
func (h host) Tend(ctx context.Context, s *live.Session) { h.tendChildrenNow(ctx, s) }

// Childless implements live.Host.
func (h host) Childless() string {
	switch {
	case h.noBackground:
		return "this server has no background agents"
	case h.childless == nil:
		return ""
	default:
		return h.childless()
	}
}

// StopChild implements live.Host.
func (h host) StopChild(ctx context.Context, c *record.ChildSpawned) error {
	ctx = asMaker(ctx, c)
	ref, err := h.acquireKey(ctx, c.Session)
	if err != nil {
		return err
	}
	defer h.release(ref)
	st := ref.Value.Team()
	_, err = h.controlChild(ctx, ref.Value, st.Child(c.Name), agentdv1.GoalAction_GOAL_ACTION_STOP)
	return err
}

// TellChild implements live.Host.
func (h host) TellChild(ctx context.Context, c *record.ChildSpawned, text, key string) error {
	ctx = asMaker(ctx, c)
	id := tenant.ID(c.Child)
	_, err := h.Inject(ctx, id, text, key)
	if at, is := errors.AsType[*Elsewhere](err); is && h.below != nil {
		return h.below.Inject(ctx, at.Address, id, text, key)
	}
	return err
}

// Reported implements live.Host.
func (h host) Reported(parent string) { h.wakeLater(parent, 0) }

// asMaker returns a context of the principal for whom a child runs.
func asMaker(ctx context.Context, c *record.ChildSpawned) context.Context {
	return principal.With(ctx, principal.Principal{ID: c.Run.By, Tenant: tenant.Of(c.Child), Role: principal.Caller})
}

// tendChildren starts the children of a session that have not begun, and writes down what the others have reported.
// Whoever calls it uses the session, and does not hold its locks. What it cannot do now is tried again.
func (m *Manager) tendChildren(ctx context.Context, s *live.Session) error {
	if st := s.Team(); st.Open() == 0 {
		return nil
	}
	s.Tending.Lock()
	defer s.Tending.Unlock()
	st := s.Team()
	var reports []*record.ChildReported
	var failed error
	again := m.owners != nil
	for _, c := range st.Children() {
		if c.End != nil {
			continue
		}
		said, err := m.lookAt(ctx, s, c)
		reports = append(reports, said...)
		if err != nil {
			failed, again = errors.Join(failed, err), true
		}
	}
	if len(reports) > 0 {
		failed = errors.Join(s.Report(ctx, reports), failed)
	}
	if again {
		m.wakeLater(s.Key(), lookAtChildren)
	}
	return failed
}

// tendChildrenNow is tendChildren for a caller that goes on without.
func (m *Manager) tendChildrenNow(ctx context.Context, s *live.Session) {
	if err := m.tendChildren(ctx, s); err != nil && !isElsewhere(err) && ctx.Err() == nil {
		m.log.LogAttrs(ctx, slog.LevelWarn, "the children of a session are looked at later",
			slog.String("session", s.ID()), slog.String("error", err.Error()))
	}
}

// lookAt returns what a child has to report.
func (m *Manager) lookAt(ctx context.Context, s *live.Session, c *team.Child) ([]*record.ChildReported, error) {
	g, err := m.goalOf(ctx, c)
	switch {
	case err != nil:
		return nil, err
	case g == nil && c.Seen > 0:
		return []*record.ChildReported{over(c, record.AlertStopped, "its session was deleted")}, nil
	case g == nil:
		return m.startChild(ctx, s, c)
	}
	return m.saidBy(ctx, c, g)
}

// over is the report of the end of a child of whose goal nothing is known.
func over(c *team.Child, kind, why string) *record.ChildReported {
	return &record.ChildReported{Name: c.F.Name, Kind: kind, Text: why, End: &record.ChildEnd{}}
}

// goalOf returns the goal of a child as its row has it, nil for none.
func (m *Manager) goalOf(ctx context.Context, c *team.Child) (*index.Goal, error) {
	q := store.RowQuery{Kind: store.RowGoal, SessionID: c.F.Child, Limit: live.ReadPage}
	for {
		rows, err := m.store.Rows(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("session %s: the goal of a child: %w", c.F.Child, err)
		}
		for _, row := range rows { // somebody may have started others after it
			g, err := index.ReadGoal(row)
			if err != nil {
				return nil, err
			}
			if g.Parent != nil && g.Parent.Session == c.F.Session && g.Parent.Name == c.F.Name {
				return g, nil
			}
		}
		if q.IsLast(rows) {
			return nil, nil
		}
		q.After = &rows[len(rows)-1]
	}
}

// saidBy returns what the goal of a child says that was not reported.
func (m *Manager) saidBy(ctx context.Context, c *team.Child, g *index.Goal) (all []*record.ChildReported, err error) {
	if c.Seen == 0 {
		all = append(all, &record.ChildReported{Name: c.F.Name, Seq: g.Seq, Kind: record.AlertStarted})
	}
	if g.Alerted > c.Seen {
		said, err := m.reader(c.F.Child).ToldParent(ctx, c.F.Name, max(c.Seen, g.Seq), g.Alerted)
		if errors.Is(err, store.ErrNoSession) {
			return nil, nil // the next look finds that
		} else if err != nil {
			return nil, err
		}
		all = append(all, said...)
	}
	if g.Ended.IsZero() {
		return all, nil
	}
	end := &record.ChildEnd{Reason: g.Reason, Totals: g.Totals, Final: g.Final}
	end.Totals.Cost += g.Below.Cost
	end.Totals.Input += g.Below.Tokens
	text := g.Detail
	if text == "" {
		text = g.Final
	}
	if g.Status != agentdv1.GoalStatus_GOAL_STATUS_COMPLETED {
		text = ending(g)
	}
	return append(all, &record.ChildReported{
		Name: c.F.Name, Seq: g.EndSeq, Kind: live.ChildKind(g.Status), Text: text, End: end,
	}), nil
}

// ending says why a goal has ended that was not reached, and what was said last.
func ending(g *index.Goal) string {
	text := words(g.Reason)
	if g.Message != "" {
		text += ": " + g.Message
	}
	if g.Final != "" {
		text += "; it said last: " + g.Final
	}
	return text
}

// startChild has the goal of a child begin, once, however often it is called.
func (m *Manager) startChild(ctx context.Context, s *live.Session, c *team.Child) ([]*record.ChildReported, error) {
	spec, err := c.F.Run.ReadSpec()
	if err != nil {
		return nil, fmt.Errorf("session %s: the tree of child %s: %w", s.ID(), c.F.Name, err)
	}
	parent := c.F.GoalParent
	run := &c.F.Run
	req := GoalRequest{
		Request: Request{
			SessionID: tenant.ID(c.F.Child), Create: true, Agent: spec.Agent, Tools: spec.Tools, Instruction: run.After,
			Mode: run.Mode, Author: run.Author, Metadata: run.Metadata, PlanMode: run.PlanMode,
			ToolTimeout: run.ToolTimeout, InitialState: run.State, Keys: s.KeysOf(run.OwnKeys),
			Once: Once{Key: "child " + c.F.Session + " " + c.F.Name, Content: c.F.Call},
		},
		Goal: c.F.Goal, Limits: c.F.Limits, Tools: record.GoalTools{Reports: true},
	}
	as := asMaker(context.WithoutCancel(ctx), c.F)
	_, failed := m.startGoal(as, req, &record.GoalStarted{Prompt: c.F.Goal, Parent: &parent})
	if failed != nil {
		e := fault.As(failed)
		waits := e.Retryable() || e.Code == fault.Internal || e.Code == fault.Unavailable || isElsewhere(failed)
		switch late := m.Since(c.At) > c.F.Limits.Wall; {
		case waits && !late:
			return nil, failed
		case e.Code == fault.Internal:
			return []*record.ChildReported{over(c, record.AlertFailed, "it could not begin")}, failed
		default:
			return []*record.ChildReported{over(c, record.AlertFailed, "it could not begin: "+e.Message)}, nil
		}
	}
	g, err := m.goalOf(ctx, c)
	if err != nil || g == nil {
		return nil, err
	}
	return m.saidBy(ctx, c, g)
}

// ControlGoal does something to a session's goal, durably before it returns, and to those of the children below it if
// it pauses, resumes or stops. It returns how they stand then, the session's own first; one that has none has only
// children. What cannot be done to a child is an error, and done to the others.
func (m *Manager) ControlGoal(
	ctx context.Context, sessionID string, action agentdv1.GoalAction,
) (stand []*index.Goal, err error) {
	ref, err := m.acquire(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	defer m.release(ref)
	s := ref.Value
	all := spreads(action)
	children := s.Team()
	g := s.Goal()
	own := g.IsOpen() || !all || len(children.Children()) == 0 // else what is below may still be at work
	if own || g.Seq > 0 {
		is, err := m.controlOwn(ctx, ref, action, own)
		if err != nil {
			return nil, err
		}
		stand = append(stand, is)
	}
	if !all {
		return stand, nil
	}
	children = s.Team() // a turn that was stopped spawns no more
	for _, c := range children.Children() {
		below, failed := m.controlChild(ctx, s, c, action)
		stand, err = append(stand, below...), errors.Join(err, failed)
	}
	m.tendChildrenNow(ctx, s)
	return stand, err
}

// controlOwn does something to the session's own goal, or leaves it as it is.
func (m *Manager) controlOwn(
	ctx context.Context, ref *sessionRef, action agentdv1.GoalAction, does bool,
) (*index.Goal, error) {
	if does {
		return m.controlGoal(ctx, ref, action)
	}
	return m.Goal(ctx, ref.Value.ID())
}

// spreads reports whether an action is for the children, too.
func spreads(action agentdv1.GoalAction) bool {
	switch action {
	case agentdv1.GoalAction_GOAL_ACTION_PAUSE, agentdv1.GoalAction_GOAL_ACTION_RESUME,
		agentdv1.GoalAction_GOAL_ACTION_STOP:
		return true
	default:
		return false
	}
}

// controlChild is ControlGoal for a child of a session. One that has ended stays as it is, and so does one of which
// nothing is left; what is below it may still be at work.
func (m *Manager) controlChild(
	ctx context.Context, s *live.Session, c *team.Child, action agentdv1.GoalAction,
) (stand []*index.Goal, err error) {
	if c.Seen == 0 && c.End == nil {
		if done, err := m.keepFromStarting(ctx, s, c, action); done || err != nil {
			return nil, err
		}
	}
	id := tenant.ID(c.F.Child)
	stand, err = m.ControlGoal(ctx, id, action)
	if at, is := errors.AsType[*Elsewhere](err); is && m.below != nil {
		if err = m.below.ControlGoal(ctx, at.Address, id, action); err == nil {
			return m.standing(ctx, c)
		}
	}
	switch {
	case refusal.IsGone(err):
		return nil, nil
	case err != nil && fault.As(err).Code == fault.Precondition: // it has ended
		return m.standing(ctx, c)
	default:
		return stand, err
	}
}

// keepFromStarting ends a child that is to be stopped before it has begun; done is false if it has begun.
func (m *Manager) keepFromStarting(
	ctx context.Context, s *live.Session, c *team.Child, action agentdv1.GoalAction,
) (done bool, err error) {
	s.Tending.Lock()
	defer s.Tending.Unlock()
	g, err := m.goalOf(ctx, c)
	if err != nil || g != nil {
		return false, err
	}
	if action != agentdv1.GoalAction_GOAL_ACTION_STOP {
		return true, nil
	}
	return true, s.Report(ctx, []*record.ChildReported{over(c, record.AlertStopped, "it had not begun")})
}

// standing returns how the goals of a child and of those below it stand, by their logs.
func (m *Manager) standing(ctx context.Context, c *team.Child) (all []*index.Goal, err error) {
	g, err := m.goalOf(ctx, c)
	if err != nil || g == nil {
		return nil, err
	}
	all = append(all, m.seenGoal(g))
	head, err := m.store.Head(ctx, c.F.Child)
	if err != nil {
		return all, err
	}
	x, _, err := m.reader(c.F.Child).ReadIndex(ctx, 0, head.LastSeq, c.F.Child)
	if err != nil {
		return all, err
	}
	st := x.Team()
	for _, below := range st.Children() {
		more, err := m.standing(ctx, below)
		if all = append(all, more...); err != nil {
			return all, err
		}
	}
	return all, nil
}
