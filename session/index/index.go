package index

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/apzuk3/agentd/session/internal/goal"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Index holds the turns that may still change: the open one, those that wait for their start, and those
// whose prompts have become messages of the open one; and what people are asked. One goroutine may use it
// at a time. The zero value is the index of an empty log.
type Index struct {
	// Last is the turn that was started last, and LastAs the status of its row; "" for none.
	Last, LastAs string
	// Usage is that of the session.
	Usage record.Usage
	// Inherited is the record up to which the log is that of another session, whose usage is not counted; 0
	// for none.
	Inherited int64

	turns map[string]*Turn
	asked Asked
	goal  goal.State
}

// Clone returns an index that changes by itself.
func (x *Index) Clone() *Index {
	out := *x
	out.turns = maps.Clone(x.turns)
	for id, t := range x.turns {
		info := *t
		info.Open = slices.Clone(t.Open)
		out.turns[id] = &info
	}
	out.asked = x.asked.Clone()
	return &out
}

// entry is a turn or an interaction, as it has a row.
type entry interface {
	row(sessionID string) (store.Row, error)
}

// Note applies a record.
func (x *Index) Note(rec record.Record, fact any) { x.note(rec, fact) }

// Rows applies a record and returns the rows that it changes, under the id of a session.
func (x *Index) Rows(sessionID string, rec record.Record, fact any) ([]store.Row, error) {
	var rows []store.Row
	for _, changed := range x.note(rec, fact) {
		row, err := changed.row(sessionID)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// note applies a record and returns the entries whose rows it changes.
func (x *Index) note(rec record.Record, fact any) []entry {
	var changed []entry
	for _, t := range x.noteTurn(rec, fact) {
		changed = append(changed, t)
	}
	t := x.turns[rec.TurnID]
	for _, in := range x.asked.Add(rec, fact, t.open()) {
		changed = append(changed, in)
		opens := in.Resolution != nil && in.Resolution.Decision == record.Approve && !in.Raised()
		if t != nil && opens {
			t.Open = append(t.Open, in.Resolution.ApprovedCall(in.Call))
		}
	}
	return append(changed, x.noteGoal(rec, fact)...)
}

// noteTurn is note for the turns.
func (x *Index) noteTurn(rec record.Record, fact any) []*Turn {
	t := x.turns[rec.TurnID]
	if u := record.UsageOf(fact); u != nil {
		if rec.Seq > x.Inherited {
			x.Usage = x.Usage.Add(*u)
		}
		if t != nil {
			t.Usage = t.Usage.Add(*u)
		}
	}
	switch f := fact.(type) {
	case *record.TurnQueued:
		t = x.add(rec)
		t.Prompt, t.recorded = said(f.Prompt, f.Parts), rowPending
		t.began(&f.TurnStarted)
		return []*Turn{t}
	case *record.TurnStarted:
		if t == nil {
			t = x.add(rec)
		}
		t.Prompt, t.Started, t.recorded = said(f.Prompt, f.Parts), rec.Time, rowOpen
		t.began(f)
		x.Last, x.LastAs = t.ID, rowOpen
		return []*Turn{t}
	case *record.Event:
		if injected := x.turns[f.Injected]; injected != nil {
			injected.Into, injected.recorded = rec.TurnID, rowOpen
			return []*Turn{injected}
		}
	}
	if t == nil {
		return nil
	}
	switch f := fact.(type) {
	case *record.Event:
		t.event(f)
	case *record.ToolCall:
		t.Open = append(t.Open, forClients(*f)...)
	case *record.ToolResult:
		t.Open = slices.DeleteFunc(t.Open, func(c record.ToolCall) bool { return c.ID == f.CallID })
	case *record.TurnDropped:
		return x.over(t, rec.Time, f.End())
	case *record.TurnEnded:
		changed := x.over(t, rec.Time, f)
		x.LastAs = t.recorded
		return changed
	}
	return nil
}

// add takes a turn whose first record it is.
func (x *Index) add(rec record.Record) *Turn {
	t := &Turn{ID: rec.TurnID, Created: rec.Time, After: position.Of(rec.Seq, 0) - 1}
	if x.turns == nil {
		x.turns = map[string]*Turn{}
	}
	x.turns[t.ID] = t
	return t
}

// over lets go of a turn that is over, and of those whose prompts it has taken up.
func (x *Index) over(t *Turn, at time.Time, end *record.TurnEnded) []*Turn {
	t.Ended, t.End, t.Open, t.Metadata = at, end, nil, nil
	switch {
	case end.Completed:
		t.recorded = rowSucceeded
	case end.Code != 0:
		t.recorded = rowFailed
	default:
		t.recorded = rowStopped
	}
	changed := []*Turn{t}
	for _, injected := range x.turns {
		if injected.Into == t.ID {
			injected.recorded = t.recorded
			changed = append(changed, injected)
		}
	}
	for _, c := range changed {
		delete(x.turns, c.ID)
	}
	slices.SortFunc(changed, func(a, b *Turn) int { return cmp.Compare(a.After, b.After) })
	return changed
}

// OpenTurn is the turn that has started and not ended, or "".
func (x *Index) OpenTurn() string {
	if x.LastAs == rowOpen {
		return x.Last
	}
	return ""
}

// Turn returns a turn that is not over; ok is false for any other. Its status is Running if it has started,
// whatever it waits for, and Pending if not.
func (x *Index) Turn(sessionID, id string, retention time.Duration) (t Turn, ok bool) {
	of := x.turns[id]
	if of == nil {
		return Turn{}, false
	}
	t = *of
	t.SessionID, t.Open = sessionID, slices.Clone(of.Open)
	for _, in := range x.asked.Pending {
		if in.TurnID == id {
			asking := *in
			asking.SessionID, asking.Expires = sessionID, in.Created.Add(retention)
			t.Asking = append(t.Asking, &asking)
		}
	}
	t.Status = Pending
	if of.recorded == rowOpen {
		t.Status = Running
	}
	return t, true
}

// StatusOf is the status of the turn that was started last: Running while it is open, whatever it waits
// for. It is 0 for any other turn.
func (x *Index) StatusOf(id string) Status {
	switch {
	case x.Last != id:
		return 0
	case x.LastAs == rowOpen:
		return Running
	default:
		return overAs[x.LastAs]
	}
}

// Asks is the interaction that waits for a person longest, nil for none.
func (x *Index) Asks() *Interaction {
	if len(x.asked.Pending) == 0 {
		return nil
	}
	return x.asked.Pending[0]
}

// Read applies the records of a log, from its first one on and up to a sequence number, and returns the rows
// of it under the id of a session. x is the index of an empty log; decode reads what a record says.
func (x *Index) Read(
	records iter.Seq2[record.Record, error], decode func(record.Record) (any, error), upTo int64, sessionID string,
) ([]store.Row, error) {
	type key struct {
		kind store.RowKind
		id   string
	}
	rows := map[key]store.Row{}
	for rec, err := range records {
		if err != nil {
			return nil, err
		}
		if rec.Seq > upTo {
			break
		}
		fact, err := decode(rec)
		if err != nil {
			return nil, err
		}
		changed, err := x.Rows(sessionID, rec, fact)
		if err != nil {
			return nil, err
		}
		for _, row := range changed {
			rows[key{row.Kind, row.ID}] = row
		}
	}
	return slices.Collect(maps.Values(rows)), nil
}
