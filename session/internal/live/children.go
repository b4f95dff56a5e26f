package live

import (
	"cmp"
	"context"
	"fmt"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/keys"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/team"
	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/record"
)

// A child is written down before its session is made, under the id of the call that asks for it: a server that dies
// in between makes neither none nor two. The server that has the parent in memory starts it, looks how it is, and
// writes down what it has reported; see Host.Tend.

const (
	// defaultChildTurns, defaultChildCost and defaultChildWall are the limits of a child that was spawned without, as
	// far as its parent has that much left. The cost is in US dollars.
	defaultChildTurns = 50
	defaultChildCost  = 1.0
	defaultChildWall  = 10 * time.Minute
	// maxSessionID bounds the id of a session.
	maxSessionID = 128
)

// Spawn asks for a child.
type Spawn struct {
	// Call is the id of the call that asks: a repeat under the same one spawns nothing.
	Call string
	// Name is the child's, and Goal what it is to reach.
	Name, Goal string
	// Limits are how far it may go; what is 0 has a default.
	Limits record.GoalLimits
	// Priced is true if the price of its models is known: without, it has no limit of cost by default.
	Priced bool
	// Run is what it runs: the tree, its tools and the state that it begins with.
	Run record.TurnStarted
	// MaxDepth is how many parents may be above a child, and MaxAtOnce how many children may work at a time.
	MaxDepth, MaxAtOnce int
}

// Team returns the session's children as they stand.
func (s *Session) Team() team.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index.Team()
}

// parent returns whose child the session is, nil for none.
func (s *Session) parent() *record.GoalParent {
	g := s.Goal()
	if g.Seq == 0 {
		return nil
	}
	return g.F.Parent
}

// Spawn writes down a child and has its goal begin. refused is for the model: why there is no such child.
func (r *Run) Spawn(ctx context.Context, ask Spawn) (child *team.Child, refused string, err error) {
	s := r.s
	if why := s.host.Childless(); why != "" {
		return nil, noChild(ask.Name, "%s", why), nil
	}
	err = r.step(ctx, func(ctx context.Context) error {
		refused, err = s.spawn(ctx, r.t, ask)
		if err == nil && refused == "" {
			s.host.Tend(ctx, s)
		}
		return err
	})
	if err != nil || refused != "" {
		return nil, refused, err
	}
	st := s.Team()
	return st.Child(ask.Name), "", nil
}

// step is Wait for something that is done between two steps of the run.
func (r *Run) step(ctx context.Context, do func(context.Context) error) error {
	return r.Wait(ctx, false, do)
}

// spawn writes down a child, unless the call has spawned it before.
func (s *Session) spawn(ctx context.Context, t *Turn, ask Spawn) (refused string, err error) {
	done, err := s.keep(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	st := s.stepsNow()
	if known := st.goal.Team.Child(ask.Name); known != nil {
		if known.F.Call == ask.Call {
			return "", nil
		}
		return noChild(ask.Name, "the name was used before, choose another one"), nil
	}
	fact := &record.ChildSpawned{
		GoalParent: record.GoalParent{
			Session: s.key, Name: ask.Name, Branch: team.BranchOf(ask.Name), Depth: 1, MaxDepth: ask.MaxDepth,
		},
		Call: ask.Call, Turn: t.id, Goal: logjson.Readable(ask.Goal), Limits: ask.Limits, Run: s.runOf(t, &ask.Run),
	}
	fact.Child = tenant.Key(tenant.Of(s.key), team.SessionOf(s.id, ask.Name))
	if above := s.parent(); above != nil {
		fact.Branch, fact.Depth = above.Branch+"."+fact.Branch, above.Depth+1
		fact.MaxDepth = min(ask.MaxDepth, above.MaxDepth)
	}
	children := &st.goal.Team
	switch most := fact.MaxDepth; {
	case fact.Depth > most:
		return noChild(ask.Name, "depth limit reached (%d)", most), nil
	case children.Open() >= ask.MaxAtOnce:
		return noChild(ask.Name, "%d are at work, the limit; wait for one of them, or stop one", children.Open()), nil
	case len(children.Children()) >= team.MaxChildren:
		return noChild(ask.Name, "this session has had %d, the limit", team.MaxChildren), nil
	case len(tenant.ID(fact.Child)) > maxSessionID:
		return noChild(ask.Name, "the id of its session would be longer than %d, choose a shorter name",
			maxSessionID), nil
	}
	if refused := s.cut(t, st, ask, &fact.Limits); refused != "" {
		return refused, nil
	}
	if err := st.add(record.KindChildSpawned, fact); err != nil {
		return "", err
	}
	_, err = s.commit(ctx, st.entries...)
	return "", err
}

// noChild is why there is no child of a name.
func noChild(name, format string, args ...any) string {
	return fmt.Sprintf("subagent %q refused: ", name) + fmt.Sprintf(format, args...)
}

// runOf completes what a child runs with what its parent's turn runs.
func (s *Session) runOf(t *Turn, what *record.TurnStarted) record.TurnStarted {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.lastSpec // that of the open turn
	return record.TurnStarted{
		Agent: what.Agent, Tools: what.Tools, After: from.After, Mode: from.Mode, Author: from.Author,
		State: what.State, Metadata: from.Metadata, OwnKeys: from.OwnKeys, ToolTimeout: from.ToolTimeout,
		PlanMode: t.spec.PlanMode,
		By:       from.By,
	}
}

// left is what may be spent of something; bounded is false if there is no bound.
type left struct {
	bounded bool
	n       int64
}

// least returns what is left under one bound more.
func (l left) least(limit, spent int64) left {
	if rest := max(limit-spent, 0); limit > 0 && (!l.bounded || rest < l.n) {
		return left{true, rest}
	}
	return l
}

// cut completes the limits of a child: it is within what is left to its parent, which has the rest. It returns why the
// child cannot have what was asked for.
func (s *Session) cut(t *Turn, st *steps, ask Spawn, l *record.GoalLimits) (refused string) {
	var cost, tokens left
	lock.Do(&s.mu, func() {
		turn, session := s.spentLocked(t)
		for _, b := range []struct {
			budget record.Budget
			spent  record.Spent
		}{{t.spec.Budget, turn}, {s.sessionBudgetNowLocked(t), session}} {
			cost = cost.least(int64(b.budget.Cost), int64(b.spent.Cost))
			tokens = tokens.least(b.budget.Tokens, b.spent.Tokens)
		}
	})
	share := func(l left) int64 { // of each child that may yet come, and of the parent
		return l.n / int64(ask.MaxAtOnce-st.goal.Team.Open()+1)
	}
	if l.Cost == 0 && (ask.Priced || cost.bounded) {
		l.Cost = record.BudgetUSD(defaultChildCost)
		if cost.bounded {
			l.Cost = min(l.Cost, record.NanoUSD(share(cost)))
		}
	}
	if tokens.bounded {
		l.Tokens = cmp.Or(l.Tokens, share(tokens))
	}
	switch {
	case cost.bounded && (int64(l.Cost) > cost.n || l.Cost <= 0):
		return noChild(ask.Name, "max_cost_usd must be above 0 and at most %v, which is left", record.NanoUSD(cost.n))
	case tokens.bounded && (l.Tokens > tokens.n || l.Tokens <= 0):
		return noChild(ask.Name, "%d tokens are left, too few to share", tokens.n)
	}
	l.Turns, l.Wall = cmp.Or(l.Turns, defaultChildTurns), cmp.Or(l.Wall, defaultChildWall)
	if g := &st.goal; g.IsOpen() && g.F.Limits.Wall > 0 {
		l.Wall = min(l.Wall, max(g.Started.Add(g.F.Limits.Wall).Sub(st.now), time.Second))
	}
	return ""
}

// Children returns the session's children as they are now.
func (r *Run) Children(ctx context.Context) (all []*team.Child, err error) {
	err = r.step(ctx, func(ctx context.Context) error {
		r.s.host.Tend(ctx, r.s)
		return context.Cause(ctx)
	})
	st := r.s.Team()
	return st.Children(), err
}

// AwaitChild returns when a child has ended, at once if there is none of that name.
func (r *Run) AwaitChild(ctx context.Context, name string) error {
	s := r.s
	return r.step(ctx, func(ctx context.Context) error {
		for {
			s.host.Tend(ctx, s)
			var changed <-chan struct{}
			lock.Do(&s.mu, func() {
				if s.reported == nil {
					s.reported = make(chan struct{})
				}
				st := s.index.Team()
				if c := st.Child(name); c != nil && c.End == nil {
					changed = s.reported
				}
			})
			if changed == nil {
				return nil
			}
			if err := lock.Wait(ctx, changed); err != nil {
				return err
			}
		}
	})
}

// StopChild ends a child and what is below it, and returns when nothing of it runs any more.
func (r *Run) StopChild(ctx context.Context, c *team.Child) error {
	return r.step(ctx, func(ctx context.Context) error {
		err := r.s.host.StopChild(ctx, c.F)
		r.s.host.Tend(ctx, r.s)
		return err
	})
}

// TellChild has the next turn of a child read a message, once for each key.
func (r *Run) TellChild(ctx context.Context, c *team.Child, text, key string) error {
	return r.step(ctx, func(ctx context.Context) error { return r.s.host.TellChild(ctx, c.F, text, key) })
}

// Report writes down what children have reported since; those that have ended report nothing more. The caller holds
// Tending.
func (s *Session) Report(ctx context.Context, reports []*record.ChildReported) error {
	done, err := s.keep(ctx)
	if err != nil {
		return err
	}
	defer done()
	st := s.stepsNow()
	before := st.goal.Team
	for _, r := range reports {
		c := before.Child(r.Name)
		if c == nil || c.End != nil { // somebody has ended it meanwhile
			continue
		}
		if err := st.add(record.KindChildReported, r); err != nil {
			return err
		}
	}
	if len(st.entries) == 0 {
		return nil
	}
	_, err = s.commit(ctx, st.entries...)
	return err
}

// ToldParent returns what the session's log says to its parent after a record and up to another one. The session may be
// one that is only read from.
func (s *Session) ToldParent(
	ctx context.Context, name string, after, upTo int64,
) (all []*record.ChildReported, err error) {
	for rec, err := range s.records(ctx, after, ReadPage) {
		if err != nil {
			return nil, err
		}
		if rec.Seq > upTo {
			break
		}
		if rec.Kind != record.KindEvent {
			continue
		}
		fact, err := s.decode(rec)
		if err != nil {
			return nil, err
		}
		if ev := fact.(*record.Event); ev.Goal != nil {
			for _, a := range ev.Goal.Alerts {
				all = append(all, &record.ChildReported{Name: name, Seq: rec.Seq, Kind: a.Kind, Text: a.Text})
			}
		}
	}
	return all, nil
}

// reportedLocked says to who waits for it that something about children was written down, and to the server that the
// session has something to tell its parent.
func (s *Session) reportedLocked(fact any) {
	switch f := fact.(type) {
	case *record.ChildReported:
		if s.reported != nil {
			close(s.reported)
			s.reported = nil
		}
	case *record.GoalEnded:
		s.tellParentLocked()
	case *record.Event:
		if f.Goal != nil && len(f.Goal.Alerts) > 0 {
			s.tellParentLocked()
		}
	}
}

func (s *Session) tellParentLocked() {
	if g := s.index.Goal(); g.Seq > 0 && g.F.Parent != nil && s.host != nil {
		s.host.Reported(g.F.Parent.Session)
	}
}

// ChildKind is the kind of the report of a goal that has ended.
func ChildKind(is agentdv1.GoalStatus) string {
	switch is {
	case agentdv1.GoalStatus_GOAL_STATUS_COMPLETED:
		return record.AlertCompleted
	case agentdv1.GoalStatus_GOAL_STATUS_STOPPED:
		return record.AlertStopped
	default:
		return record.AlertFailed
	}
}

// withReports puts what children have reported before the prompt of a turn that starts; f is the caller's own.
func (s *Session) withReports(f *record.TurnStarted) {
	if f.Reports != nil { // of a start that was not written
		f.Prompt, f.Reports = f.Reports.Prompt, nil
	}
	st := s.Team()
	text, reports := st.Reports(f.Prompt)
	if reports != nil {
		f.Reports, f.Prompt = reports, text+f.Prompt
	}
}

// KeysOf returns the caller's own keys of some providers, as far as the open turn has them.
func (s *Session) KeysOf(providers []string) keys.Of {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := keys.Of{}
	for _, provider := range providers {
		if s.turn != nil && s.turn.attempt != nil && s.turn.keys[provider] != "" {
			out[provider] = s.turn.keys[provider]
		}
	}
	return out
}
