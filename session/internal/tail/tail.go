// Package tail keeps the end of a log in memory.
//
// Who follows a log, and who writes on, finds there what was written a moment ago and reads nothing from
// the store. The package must not know sessions, nor what records say.
package tail

import (
	"slices"

	"github.com/apzuk3/agentd/session/record"
)

// Bounds of a tail: as many records as a turn of a few model calls has, unless they are large.
const (
	maxRecords = 16
	maxBytes   = 16 << 10
)

// Tail is the last records of a log. The zero value has none. Its methods must not be called concurrently.
type Tail struct {
	records []record.Record // in order, without a gap
	bytes   int             // of their data
}

// Add adds the next record, and drops the oldest ones beyond the bounds. With the end of a turn it drops all before it:
// the store may have other data of the turn now.
func (t *Tail) Add(rec record.Record) {
	if rec.Kind == record.KindTurnEnded {
		*t = Tail{}
	}
	t.records = append(t.records, rec)
	t.bytes += len(rec.Data)
	for len(t.records) > maxRecords || t.bytes > maxBytes {
		t.bytes -= len(t.records[0].Data)
		t.records = slices.Delete(t.records, 0, 1)
	}
}

// After returns a copy of the records after a sequence number, possibly none. It reports false when there
// are some that the tail does not hold.
func (t *Tail) After(seq int64) ([]record.Record, bool) {
	if len(t.records) == 0 || seq+1 < t.records[0].Seq {
		return nil, false
	}
	from := min(seq+1-t.records[0].Seq, int64(len(t.records)))
	return slices.Clone(t.records[from:]), true
}

// Shorten keeps the last record alone.
func (t *Tail) Shorten() {
	if n := len(t.records); n > 1 {
		*t = Tail{records: slices.Clone(t.records[n-1:]), bytes: len(t.records[n-1].Data)}
	}
}
