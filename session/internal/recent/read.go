package recent

import (
	"context"
	"iter"

	"github.com/apzuk3/agentd/session/record"
)

// Page reads the next records of a log after a sequence number, about limit of them, in order and without a gap, and
// says whether there were no more. With an error it may return some too.
type Page func(ctx context.Context, after int64, limit int) (recs []record.Record, last bool, err error)

// Records yields the records of a log after a sequence number: those that are kept from memory, pageLen at a time, the
// others from read. Each page is read when the one before is used up. When the caller is done, what it has decoded of
// the latter is kept.
func (l *Log) Records(ctx context.Context, after int64, pageLen int, read Page) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		fresh := reading{log: l}
		defer func() { fresh.keep() }()
		for {
			if kept := l.After(after, pageLen); len(kept) > 0 {
				fresh.keep()
				for _, e := range kept {
					if after = e.Record.Seq; !yield(e, nil) {
						return
					}
				}
				continue
			}
			fresh.begin()
			recs, last, err := read(ctx, after, pageLen)
			for _, rec := range recs {
				e := Of(rec)
				fresh.entries = append(fresh.entries, e)
				if after = rec.Seq; !yield(e, nil) {
					return
				}
			}
			if err != nil {
				yield(nil, err)
			}
			if err != nil || last {
				return
			}
		}
	}
}

// reading is what a reader has read that was not kept.
type reading struct {
	log     *Log
	epoch   int64 // of the first entry
	entries []*Entry
}

// begin is called before a page is read. A reader that has decoded nothing only asks how large records are.
func (r *reading) begin() {
	if len(r.entries) > 0 && !r.entries[0].IsDecoded() {
		r.entries = r.entries[:0]
	}
	if len(r.entries) == 0 {
		r.epoch = r.log.Epoch()
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
