// Package past is a part of agentd, not an API: it reads from a log what a session in memory does not know of any more,
// the ends, the results and the calls of turns that are over.
package past

import (
	"fmt"
	"iter"
	"slices"

	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/record"
)

// Log is the part of a session's log that begins with a turn.
type Log struct {
	// Records are read anew with each range.
	Records iter.Seq2[record.Record, error]
	// Decode returns the fact of a record.
	Decode func(record.Record) (any, error)
}

// End returns the end of a turn, or of the turn that took its prompt as a message, if its record has the sequence
// number after, or a later one. exists reports whether the log has the turn.
func (l Log) End(turnID string, after int64) (end *record.TurnEnded, exists bool, err error) {
	id := turnID
	for rec, err := range l.Records {
		if err != nil {
			return nil, false, err
		}
		exists = exists || rec.TurnID == turnID
		if rec.Kind != record.KindEvent && rec.Kind != record.KindTurnEnded && rec.Kind != record.KindTurnDropped {
			continue
		}
		fact, err := l.Decode(rec)
		if err != nil {
			return nil, false, err
		}
		var found *record.TurnEnded
		switch f := fact.(type) {
		case *record.TurnEnded:
			found = f
		case *record.TurnDropped:
			found = f.End()
		case *record.Event:
			if f.Injected == turnID {
				id = rec.TurnID // whose end is the one to look for
			}
			continue
		}
		if rec.TurnID == id && rec.Seq >= after {
			return found, true, nil
		}
	}
	return nil, exists, nil
}

// QueuedSpec returns the spec of a prompt that waited, nil if the log has none of that turn.
func (l Log) QueuedSpec(turnID string) (*record.Spec, error) {
	for rec, err := range l.Records {
		if err != nil {
			return nil, err
		}
		if rec.Kind != record.KindTurnQueued || rec.TurnID != turnID {
			continue
		}
		f := &record.TurnQueued{}
		if err := logjson.Unmarshal(rec.Data, f); err != nil {
			return nil, fmt.Errorf("record %d: %w", rec.Seq, err)
		}
		return f.ReadSpec()
	}
	return nil, nil
}

// Results returns the results of the calls of a turn.
func (l Log) Results(turnID string) (map[string]record.ToolResult, error) {
	out := map[string]record.ToolResult{}
	for rec, err := range l.Records {
		if err != nil {
			return nil, err
		}
		if rec.TurnID != turnID || rec.Kind != record.KindToolResult {
			continue
		}
		fact, err := l.Decode(rec)
		if err != nil {
			return nil, err
		}
		if res, ok := fact.(*record.ToolResult); ok {
			out[res.CallID] = *res
		}
	}
	return out, nil
}

// HasCall reports whether the log has a turn, and whether that, or the turn that took its prompt as a message, has made
// a call.
func (l Log) HasCall(turnID, callID string) (turn, call bool, err error) {
	id := turnID
	callers := map[string]bool{}
	for rec, err := range l.Records {
		if err != nil {
			return false, false, err
		}
		turn = turn || rec.TurnID == turnID
		if rec.Kind == record.KindTurnEnded && rec.TurnID == id {
			break
		}
		if rec.Kind != record.KindEvent && rec.Kind != record.KindToolCall {
			continue
		}
		fact, err := l.Decode(rec)
		if err != nil {
			return false, false, err
		}
		if ev, ok := fact.(*record.Event); ok && ev.Injected == turnID {
			id = rec.TurnID
		}
		if slices.ContainsFunc(record.CallsOf(fact), func(c record.ToolCall) bool { return c.ID == callID }) {
			callers[rec.TurnID] = true
		}
	}
	return turn, callers[id], nil
}
