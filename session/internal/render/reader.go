package render

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/recent"
	"github.com/apzuk3/agentd/session/record"
)

// ErrPurged is why a reader ends whose log has gone.
var ErrPurged = errors.New("the log has gone")

// Log is the log of one session.
type Log interface {
	// Records returns the records after a seq, in order and without a gap. It may return
	// records that the session has not applied yet.
	Records(ctx context.Context, after int64) iter.Seq2[*recent.Entry, error]
	// Decode returns the fact that a record states.
	Decode(rec record.Record) (any, error)
}

// Start says where a reader starts, and what it renders.
type Start struct {
	SessionID string
	// Retention is how long a turn waits for a person.
	Retention time.Duration
	// MaxBytes bounds the data of the records that CatchUp renders at once; it may render
	// more where no place to stop is near.
	MaxBytes int
	// After is the position of the last message that the client has.
	After int64
	// Rendered says that the records up to this one do not matter.
	Rendered int64
	// Replayed says that the records up to this one happened before the client came.
	Replayed int64
	// Turn is the turn that the reader ends with. If it is "", the reader does not end and
	// renders the whole session: a turn that never starts has an end there, and the start of a
	// turn shows the state that its request sets and not what earlier turns have set.
	Turn string
	// Only says that the client receives nothing of other turns.
	Only bool
}

// Reader renders the records of a session, the deltas between them and what is offered to one
// client. It is owned by the goroutine that calls [Reader.CatchUp] and [Reader.Render].
type Reader struct {
	log      Log
	maxBytes int
	view     view
	rendered int64   // the last record rendered
	replayed int64   // records up to this one happened before the client came
	turn     string  // the turn whose end is the reader's; "" for none
	over     bool    // that end has been rendered
	cuts     []int64 // records after which a long log may be cut, in order; see cut
	sizes    sizes   // of what follows the last record rendered
	owns     bool    // see Own
}

// NewReader returns a reader of a log.
func NewReader(log Log, start Start) *Reader {
	r := &Reader{
		log: log, maxBytes: start.MaxBytes, rendered: start.Rendered, replayed: start.Replayed, turn: start.Turn,
		view: view{
			sessionID: start.SessionID,
			at:        start.After,
			retention: start.Retention,
			states:    map[string]map[string]any{},
			whole:     start.Turn == "",
			rendered:  rendered{requested: map[string]bool{}},
		},
	}
	if start.Only {
		r.view.only = start.Turn
	}
	return r
}

// SetState sets the state at the start of a turn. A reader of the whole session finds in the
// log what it shows.
func (r *Reader) SetState(turnID string, state map[string]any) {
	if !r.view.whole {
		r.view.states[turnID] = state
	}
}

// Own has all messages be the caller's, who may change them. Else some are shared with other readers, see
// [Shared.IsKept].
func (r *Reader) Own() { r.owns = true }

// After returns the position of the last message.
func (r *Reader) After() int64 { return r.view.at }

// Rendered returns the seq of the last record rendered.
func (r *Reader) Rendered() int64 { return r.rendered }

// IsWhole reports whether the reader renders the whole session.
func (r *Reader) IsWhole() bool { return r.view.whole }

// IsOver reports whether the reader's end has been rendered.
func (r *Reader) IsOver() bool { return r.over }

// Take returns the messages rendered since the last call.
func (r *Reader) Take() []*agentdv1.RunResponse { return r.view.take() }

// TakeEnds returns the positions of the ends, rendered since the last call, of turns that have
// run; of a reader of the whole session.
func (r *Reader) TakeEnds() []int64 {
	ends := r.view.ends
	r.view.ends = nil
	return ends
}

// Live is what a session has beside its log for a reader.
type Live struct {
	// Applied is the last record that the session has applied.
	Applied int64
	// Until, if Bounded is true, is the first position that is not rendered yet: what comes from there on may lack
	// deltas.
	Bounded bool
	Until   int64
	// Partials are the deltas of partials after the reader's position.
	Partials []Item
	// Offered are the open calls that are offered to the reader's client, Unserved those that no
	// client can run.
	Offered  []record.ToolCall
	Unserved []Unserved
}

// CatchUp renders the log up to the last record that the session has applied, and what is
// live. A record that is durable but not applied must wait: a client could return the result
// of a call that the session does not know yet. If the log is too long to be rendered at once,
// nothing live is rendered and more is true: call CatchUp again, with what is live then. An
// error is final.
func (r *Reader) CatchUp(ctx context.Context, live Live) (more bool, err error) {
	upTo := live.Applied
	least := position.Of(upTo+1, 0)
	for _, it := range live.Partials {
		least = min(least, it.Pos)
	}
	if live.Bounded {
		least = min(least, live.Until)
	}
	cut, err := r.cut(ctx, upTo, least)
	if err != nil {
		return false, err
	}
	if live.Bounded && position.Of(cut, position.Deltas) > live.Until {
		cut, r.cuts = upTo, nil // what is before the bound may have its message behind it
	}
	if more = cut < upTo; more {
		live = Live{}
	}
	facts, err := r.facts(ctx, cut)
	if err != nil {
		return false, err
	}
	if live.Bounded {
		facts = slices.DeleteFunc(facts, func(it Item) bool { return it.Pos >= live.Until })
		cut = min(cut, position.Record(live.Until))
	}
	items := facts
	if len(live.Partials) > 0 {
		items = slices.Concat(live.Partials, facts)
	}
	byPosition := func(a, b Item) int { return cmp.Compare(a.Pos, b.Pos) }
	if !slices.IsSortedFunc(items, byPosition) {
		slices.SortStableFunc(items, byPosition)
	}
	var offered []string
	for _, call := range live.Offered {
		offered = append(offered, call.ID)
	}
	for i := range items {
		items[i].Offered = offered
		r.Render(items[i])
	}
	switch {
	case r.over:
		return false, nil
	case r.rendered < cut:
		return false, ErrPurged
	}
	for _, call := range live.Offered { // those whose request this client may have lost
		r.view.offer(call)
	}
	for _, u := range live.Unserved {
		r.view.unserved(u)
	}
	return more, nil
}

// firstItems is for how many items there is room at first.
const firstItems = 1024

// facts reads the records up to one, and the deltas of their messages.
func (r *Reader) facts(ctx context.Context, upTo int64) ([]Item, error) {
	items := make([]Item, 0, min(max(upTo-r.rendered, 0), firstItems))
	for e, err := range r.log.Records(ctx, r.rendered) {
		if err != nil {
			return nil, err
		}
		if e.Record.Seq > upTo {
			break
		}
		fact, err := e.Fact(r.log.Decode)
		if err != nil {
			return nil, err
		}
		rec := e.Record
		if ev, ok := fact.(*record.Event); ok {
			deltas, err := deltasOf(ev, r.view.at)
			if err != nil {
				return nil, fmt.Errorf("session %s: record %d: %w", r.view.sessionID, rec.Seq, err)
			}
			for i := range deltas {
				deltas[i].Replayed = rec.Seq <= r.replayed
			}
			items = append(items, deltas...)
		}
		it := FactItem(rec, fact)
		it.entry = e
		items = append(items, it)
		if rec.Kind == record.KindTurnEnded && rec.TurnID == r.turn {
			break
		}
	}
	return items, nil
}

// Render renders an item, unless it was rendered before or the reader's end was. Items come in
// the order of their positions.
func (r *Reader) Render(it Item) {
	switch {
	case r.over:
	case it.Offer != nil:
		r.view.offer(*it.Offer)
	case it.Unserved != nil:
		r.view.unserved(*it.Unserved)
	case it.Delta != nil:
		r.view.delta(it.Delta, it.Pos, it.Replayed, it.Shared)
	case it.Record.Seq > r.rendered:
		r.rendered = it.Record.Seq
		if it.State != nil {
			r.SetState(it.Record.TurnID, it.State)
		}
		if r.view.entry = nil; !r.owns {
			r.view.entry = it.entry
		}
		end := r.view.fact(it.Record, it.Fact, it.Record.Seq <= r.replayed, it.Offered)
		if r.view.injectedInto != "" {
			r.turn = r.view.injectedInto
		}
		r.over = end && it.Record.TurnID == r.turn
	}
}
