package check

import (
	"fmt"

	"github.com/apzuk3/agentd/session/record"
)

// goals checks which record of a goal may follow which.
type goals struct {
	open   string // the goal that has begun and not ended, "" for none
	seq    int64  // of its beginning
	paused bool
	turns  int64  // its turns that have ended
	turn   string // the one under way
	ended  string // the turn of the session that has ended last
}

// now is the goal that is open at a record: a fork has none of its parent's.
func (o *order) now(rec record.Record) string {
	if o.goals.seq <= o.inherited && rec.Seq > o.inherited {
		o.goals = goals{ended: o.goals.ended}
	}
	return o.goals.open
}

// goal applies a record of a goal.
func (o *order) goal(rec record.Record, fact any) {
	g, open := &o.goals, o.now(rec)
	ofOpen := func(id string) bool {
		if id != open || open == "" {
			o.reportf(ruleOrder, rec.Seq, fmt.Sprintf("one of goal %q", open),
				"it is a %s of goal %q, which is not open", rec.Kind, id)
		}
		return id == open && open != ""
	}
	switch f := fact.(type) {
	case *record.GoalStarted:
		if open != "" {
			o.reportf(ruleOrder, rec.Seq, "the end of that goal first",
				"goal %q starts while goal %q is open", f.ID, open)
		}
		*g = goals{open: f.ID, seq: rec.Seq, turns: f.Totals.Turns, ended: g.ended}
	case *record.GoalPaused:
		g.paused = ofOpen(f.ID)
	case *record.GoalResumed:
		if ofOpen(f.ID) {
			g.paused = false
		}
	case *record.GoalCheckpointed:
		if !ofOpen(f.ID) {
			return
		}
		if f.Turn != "" {
			if f.Turn != g.turn || f.Turn != g.ended {
				o.reportf(ruleOrder, rec.Seq, "one of a turn of the goal that has just ended",
					"it is the checkpoint of turn %q", f.Turn)
			}
			g.turns, g.turn = g.turns+1, ""
		}
		if f.Totals.Turns != g.turns {
			o.reportf(ruleOrder, rec.Seq, fmt.Sprintf("%d turns", g.turns), "it counts %d turns", f.Totals.Turns)
		}
	case *record.GoalEnded:
		if !ofOpen(f.ID) {
			return
		}
		if g.turn != "" {
			o.reportf(ruleOrder, rec.Seq, "the end of that turn first",
				"goal %q ends while its turn %q is open", f.ID, g.turn)
		}
		*g = goals{ended: g.ended}
	}
}

// goalTurn applies the start of a turn of a goal.
func (o *order) goalTurn(rec record.Record, f *record.GoalTurn) {
	if f == nil {
		return
	}
	g, open := &o.goals, o.now(rec)
	if f.ID != open || open == "" || g.paused || f.N != g.turns+1 {
		o.reportf(ruleOrder, rec.Seq, fmt.Sprintf("turn %d of goal %q, if it is not paused", g.turns+1, open),
			"turn %q is number %d of goal %q", rec.TurnID, f.N, f.ID)
	}
	g.turn = rec.TurnID
}
