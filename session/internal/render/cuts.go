package render

import (
	"context"
	"slices"

	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/record"
)

// cut returns the record up to which to render at once: the data of the records is at most
// maxBytes, but a message is never cut, whose first deltas come before records that follow. least is the first position
// of what is not in these records.
func (r *Reader) cut(ctx context.Context, upTo, least int64) (int64, error) {
	if size, err := r.size(ctx, upTo); size <= r.maxBytes || err != nil {
		return upTo, err
	}
	if len(r.cuts) == 0 {
		steps, err := r.steps(ctx, upTo)
		if err != nil {
			return 0, err
		}
		if r.cuts = cutsOf(steps, least, r.maxBytes); len(r.cuts) == 0 {
			r.cuts = []int64{upTo}
		}
	}
	next := r.cuts[0]
	r.cuts = r.cuts[1:]
	return next, nil
}

// sizes is what is known of the size of the log after a record.
type sizes struct {
	after int64
	upTo  int64 // the last record whose size is in bytes
	bytes int
}

// size returns the size of the data of the records up to one, or a part that is more than maxBytes. It reads what it
// has not read since the last record was rendered.
func (r *Reader) size(ctx context.Context, upTo int64) (int, error) {
	if r.sizes.after != r.rendered {
		r.sizes = sizes{after: r.rendered, upTo: r.rendered}
	}
	if r.sizes.upTo >= upTo || r.sizes.bytes > r.maxBytes {
		return r.sizes.bytes, nil
	}
	for e, err := range r.log.Records(ctx, r.sizes.upTo) {
		if err != nil {
			return r.sizes.bytes, err
		}
		if e.Record.Seq > upTo || r.sizes.bytes > r.maxBytes {
			break
		}
		r.sizes.bytes += e.Size
		r.sizes.upTo = e.Record.Seq
	}
	return r.sizes.bytes, nil
}

// step is a record after which a log may be cut.
type step struct {
	seq   int64
	size  int
	first int64 // position of the first delta of its message, or of the record
}

// steps reads the next records up to one, as many as it takes to find a place to cut.
func (r *Reader) steps(ctx context.Context, upTo int64) (steps []step, err error) {
	size := 0
	for e, err := range r.log.Records(ctx, r.rendered) {
		if err != nil {
			return nil, err
		}
		rec := e.Record
		if rec.Seq > upTo {
			break
		}
		st := step{seq: rec.Seq, size: e.Size, first: position.Of(rec.Seq, 0)}
		if rec.Kind == record.KindEvent {
			fact, err := e.Fact(r.log.Decode)
			if err != nil {
				return nil, err
			}
			if ev, ok := fact.(*record.Event); ok {
				if first := ev.Marks.First(); first > 0 {
					st.first = first
				}
			}
		}
		steps = append(steps, st)
		if size += st.size; size > r.maxBytes && rec.Kind == record.KindTurnEnded {
			break // no message goes on after its turn; it may do so after anything else
		}
	}
	return steps, nil
}

// cutsOf returns the records after which to cut: the first ones at which more than maxBytes
// have come together and no message is incomplete. least is the first position of what comes
// after the steps.
func cutsOf(steps []step, least int64, maxBytes int) (cuts []int64) {
	may := make([]bool, len(steps))
	for i, st := range slices.Backward(steps) {
		may[i] = least >= position.Of(st.seq, position.Deltas)
		least = min(least, st.first)
	}
	size := 0
	for i, st := range steps {
		if size += st.size; size > maxBytes && may[i] {
			cuts, size = append(cuts, st.seq), 0
		}
	}
	return cuts
}
