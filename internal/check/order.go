package check

import (
	"fmt"
	"hash/maphash"

	"github.com/apzuk3/agentd/session/record"
)

// order checks which record may follow which.
type order struct {
	reportf   func(rule string, rec int64, want, format string, args ...any)
	inherited int64

	open     string              // the turn that has started and not ended, "" for none
	queued   map[string]int64    // turns that wait for their start, with the record of their prompt
	known    map[uint64]struct{} // the turns that the log has, each as a hash
	calls    map[string]*call    // of the open turn
	goals    goals
	children children
}

// call is a tool call of the open turn.
type call struct {
	seq  int64
	asks bool // a person is asked
	// questions is the number of the last one that a client has raised, and raised are those that wait.
	questions uint32
	raised    map[uint32]bool
	settled   int64
}

var seed = maphash.MakeSeed()

// first takes note of a turn and reports whether it is new.
func (o *order) first(turn string) bool {
	if o.known == nil {
		o.known = map[uint64]struct{}{}
	}
	h := maphash.String(seed, turn)
	_, there := o.known[h]
	o.known[h] = struct{}{}
	return !there
}

// add applies a record.
func (o *order) add(rec record.Record, fact any) {
	switch f := fact.(type) {
	case *record.TurnQueued:
		if !o.first(rec.TurnID) {
			o.reportf(ruleOrder, rec.Seq, "a new turn", "turn %q is queued, and the log has such a turn", rec.TurnID)
			return
		}
		if o.queued == nil {
			o.queued = map[string]int64{}
		}
		o.queued[rec.TurnID] = rec.Seq
	case *record.TurnDropped:
		o.unqueue(rec, rec.TurnID, "dropped")
	case *record.TurnStarted:
		o.start(rec)
		o.goalTurn(rec, f.Goal)
		o.child(rec, f)
	case *record.CompactionAsked, *record.GoalStarted, *record.GoalCheckpointed, *record.GoalPaused,
		*record.GoalResumed, *record.GoalEnded, *record.MessageInjected, *record.ChildSpawned, *record.ChildReported:
		o.goal(rec, f)
		o.child(rec, f)
		if rec.TurnID != "" {
			o.reportf(ruleOrder, rec.Seq, "one of no turn", "it is a %s of turn %q", rec.Kind, rec.TurnID)
		}
	default:
		o.within(rec, f)
	}
}

// unqueue takes a turn from the queue.
func (o *order) unqueue(rec record.Record, turn, as string) {
	if _, ok := o.queued[turn]; !ok {
		o.reportf(ruleOrder, rec.Seq, "a turn that waits", "turn %q is %s, and does not wait for its start", turn, as)
	}
	delete(o.queued, turn)
}

func (o *order) start(rec record.Record) {
	if o.open != "" {
		o.reportf(ruleOrder, rec.Seq, "the end of that turn first",
			"turn %q starts while turn %q is open", rec.TurnID, o.open)
	}
	if _, waits := o.queued[rec.TurnID]; waits {
		delete(o.queued, rec.TurnID)
	} else if !o.first(rec.TurnID) {
		o.reportf(ruleOrder, rec.Seq, "a new turn", "turn %q starts, and the log has such a turn", rec.TurnID)
	}
	o.open, o.calls = rec.TurnID, map[string]*call{}
}

// within applies a record of the open turn.
func (o *order) within(rec record.Record, fact any) {
	if rec.TurnID != o.open {
		o.reportf(ruleOrder, rec.Seq, fmt.Sprintf("one of turn %q", o.open),
			"it is a %s of turn %q, which is not open", rec.Kind, rec.TurnID)
		return
	}
	for _, c := range record.CallsOf(fact) {
		if earlier := o.calls[c.ID]; earlier != nil {
			o.reportf(ruleCall, rec.Seq, "an id of its own",
				"tool call %q has the id of that of record %d", c.ID, earlier.seq)
		}
		o.calls[c.ID] = &call{seq: rec.Seq, asks: c.Asks != nil}
	}
	switch f := fact.(type) {
	case *record.Event:
		if f.Injected != "" {
			o.unqueue(rec, f.Injected, "injected")
		}
	case *record.ToolResult:
		o.settle(rec, f.CallID)
	case *record.Question:
		o.raise(rec, f)
	case *record.InteractionResolved:
		o.resolve(rec, f)
	case *record.TurnEnded:
		o.endTurn(rec, f)
	}
}

// settle applies the result of a call.
func (o *order) settle(rec record.Record, id string) {
	switch c := o.calls[id]; {
	case c == nil:
		o.reportf(ruleCall, rec.Seq, "a call of the turn",
			"it is the result of tool call %q, which the turn has not made", id)
	case c.settled > 0:
		o.reportf(ruleCall, rec.Seq, "one result",
			"it is a second result of tool call %q, after record %d", id, c.settled)
	default:
		c.settled = rec.Seq
	}
}

// raise applies a question of a client about its call.
func (o *order) raise(rec record.Record, f *record.Question) {
	c := o.calls[f.CallID]
	switch {
	case c == nil || c.asks || c.settled > 0:
		o.reportf(ruleCall, rec.Seq, "a call that a client runs",
			"it asks about tool call %q, which no client runs then", f.CallID)
	case f.N != c.questions+1:
		o.reportf(ruleCall, rec.Seq, fmt.Sprintf("question %d", c.questions+1),
			"it is question %d about tool call %q", f.N, f.CallID)
	default:
		if c.questions++; c.raised == nil {
			c.raised = map[uint32]bool{}
		}
		c.raised[f.N] = true
	}
}

// resolve applies what a person has said. An approval opens the call for clients, anything else is its result.
func (o *order) resolve(rec record.Record, f *record.InteractionResolved) {
	c := o.calls[f.ID]
	if f.N > 0 && c != nil {
		if c.settled > 0 || !c.raised[f.N] {
			o.reportf(ruleCall, rec.Seq, "a question that waits",
				"it resolves question %d of tool call %q, which does not wait", f.N, f.ID)
		}
		delete(c.raised, f.N)
		return
	}
	switch {
	case c == nil || !c.asks:
		o.reportf(ruleCall, rec.Seq, "a call that asks a person", "it resolves tool call %q, which asks nobody", f.ID)
	case f.Decision == record.Approve && c.settled == 0:
		c.asks = false
	default:
		o.settle(rec, f.ID)
	}
}

// endTurn applies the end of a turn. A turn that has completed has a result of each call; one that has failed
// or was stopped may leave any without.
func (o *order) endTurn(rec record.Record, f *record.TurnEnded) {
	for id, c := range o.calls {
		if f.Completed && c.settled == 0 {
			o.reportf(ruleCall, c.seq, "one result",
				"tool call %q has no result, and its turn has completed with record %d", id, rec.Seq)
		}
	}
	o.goals.ended = rec.TurnID
	o.open, o.calls = "", nil
}

// end applies the end of the log: where no turn is open, none waits, but for those of a parent.
func (o *order) end() {
	if o.open != "" {
		return
	}
	for id, seq := range o.queued {
		if seq > o.inherited {
			o.reportf(ruleOrder, seq, "a start, an injection or a drop", "turn %q waits for ever: no turn is open", id)
		}
	}
}
