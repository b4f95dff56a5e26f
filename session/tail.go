package session

import (
	"slices"

	"github.com/apzuk3/agentd/session/record"
)

// How much of a log's end a session keeps in memory: as many records as a turn of
// a few model calls has, unless they are large.
const (
	tailRecords = 16
	tailBytes   = 16 << 10
)

// tail is the end of a log. Who follows a session, and the next turn, find there
// what has been written a moment ago, and read nothing from the store.
type tail struct {
	records []record.Record // the last ones, in order, without a gap
	bytes   int             // of their data
}

// add takes in the next record, and lets go of the oldest ones that are too many.
func (t *tail) add(rec record.Record) {
	t.records = append(t.records, rec)
	t.bytes += len(rec.Data)
	for len(t.records) > tailRecords || t.bytes > tailBytes {
		t.bytes -= len(t.records[0].Data)
		t.records = slices.Delete(t.records, 0, 1)
	}
}

// after returns a copy of the records after a sequence number, possibly none. It
// reports false when there are some that the tail does not hold.
func (t *tail) after(seq int64) ([]record.Record, bool) {
	if len(t.records) == 0 || seq+1 < t.records[0].Seq {
		return nil, false
	}
	from := min(seq+1-t.records[0].Seq, int64(len(t.records)))
	return slices.Clone(t.records[from:]), true
}

// shorten keeps the last record alone.
func (t *tail) shorten() {
	if n := len(t.records); n > 1 {
		*t = tail{records: slices.Clone(t.records[n-1:]), bytes: len(t.records[n-1].Data)}
	}
}
