package render

import (
	"time"

	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/recent"
	"github.com/apzuk3/agentd/session/record"
)

// Item is what a reader renders at once: a fact, a delta, a call that is offered to its
// client, or one that no client can run.
type Item struct {
	// Pos is the position of a fact's record, or of a delta.
	Pos int64
	// Record and Fact are of a fact.
	Record record.Record
	Fact   any
	// entry is of a fact that was read from the log.
	entry *recent.Entry
	// Delta is of a delta. Replayed says that its message was complete before the client
	// came.
	Delta    *record.Delta
	Replayed bool
	// Shared is of a delta that other watchers receive too.
	Shared *Shared
	// Offer is a call that is offered to the reader's client after its fact was rendered.
	Offer *record.ToolCall
	// Unserved is a call that no client can run.
	Unserved *Unserved
	// Offered are the ids of the fact's calls that are offered to the reader's client.
	Offered []string
	// Size is about how many bytes of text the item has.
	Size int
	// State is the state at the start of a turn, of its first fact.
	State map[string]any
}

// Unserved is a call that no client can run, and when the turn ends if none comes that can.
type Unserved struct {
	Call    record.ToolCall
	Expires time.Time
}

// FactItem returns the item of a record and the fact that it states.
func FactItem(rec record.Record, fact any) Item {
	return Item{Pos: position.Of(rec.Seq, 0), Record: rec, Fact: fact}
}

// Opens returns the ids of the calls that a fact may open for clients.
func (it *Item) Opens() []string {
	if f, ok := it.Fact.(*record.InteractionResolved); ok {
		if f.N > 0 { // the call was open before
			return nil
		}
		return []string{f.ID}
	}
	var ids []string
	for _, call := range record.CallsOf(it.Fact) {
		ids = append(ids, call.ID)
	}
	return ids
}
