package live

import (
	"context"
	"iter"

	"github.com/apzuk3/agentd/session/internal/recent"
	"github.com/apzuk3/agentd/session/record"
)

// watchPage is how many records a watcher that catches up reads at once.
const watchPage = 32

// sessionLog is the log of a session as its watchers read it.
type sessionLog struct{ s *Session }

// Records returns the records after a seq: what was read a moment ago from memory, the rest from the store. Each page
// is read when the one before is used up. It keeps those that are decoded when the reader is done.
func (l sessionLog) Records(ctx context.Context, after int64) iter.Seq2[*recent.Entry, error] {
	return func(yield func(*recent.Entry, error) bool) {
		read := reading{log: l.s.recent}
		defer func() { read.keep() }()
		for {
			if kept := l.s.recent.After(after, watchPage); len(kept) > 0 {
				read.keep()
				for _, e := range kept {
					if after = e.Record.Seq; !yield(e, nil) {
						return
					}
				}
				continue
			}
			read.begin()
			recs, last, err := l.s.page(ctx, after, watchPage)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, rec := range recs {
				e := recent.Of(rec)
				read.entries = append(read.entries, e)
				if after = rec.Seq; !yield(e, nil) {
					return
				}
			}
			if last {
				return
			}
			read.forgetUnused()
		}
	}
}

// Decode returns the fact that a record states.
func (l sessionLog) Decode(rec record.Record) (any, error) { return l.s.decode(rec) }

// reading is what a reader has read of the store.
type reading struct {
	log     *recent.Log
	epoch   int64 // of the first entry
	entries []*recent.Entry
}

// begin is called before a page is read.
func (r *reading) begin() {
	if len(r.entries) == 0 {
		r.epoch = r.log.Epoch()
	}
}

// forgetUnused drops entries of a reader that decodes none: it only asks how large they are.
func (r *reading) forgetUnused() {
	if len(r.entries) > 0 && !r.entries[0].IsDecoded() {
		r.entries = r.entries[:0]
	}
}

// keep keeps the entries that are decoded, up to the first one that is not.
func (r *reading) keep() {
	n := 0
	for n < len(r.entries) && r.entries[n].IsDecoded() {
		n++
	}
	r.log.Keep(r.epoch, r.entries[:n])
	r.entries = nil
}
