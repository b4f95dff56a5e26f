package tail_test

import (
	"testing"

	"github.com/apzuk3/agentd/session/internal/tail"
	"github.com/apzuk3/agentd/session/record"
)

func fill(t *tail.Tail, from, to int64, bytes int) {
	for seq := from; seq <= to; seq++ {
		t.Add(record.Record{Seq: seq, Data: make([]byte, bytes)})
	}
}

// check compares the first record and the number of those after a sequence number; none is not held.
func check(t *testing.T, of *tail.Tail, after, first int64, n int) {
	t.Helper()
	recs, ok := of.After(after)
	if ok != (n >= 0) || ok && len(recs) != n || n > 0 && recs[0].Seq != first {
		t.Errorf("after %d: %d records, held: %v; want %d from %d", after, len(recs), ok, n, first)
	}
}

func TestTail(t *testing.T) {
	const none = -1
	var of tail.Tail
	check(t, &of, 0, 0, none)
	fill(&of, 1, 20, 10)
	check(t, &of, 3, 0, none) // 4 is gone
	check(t, &of, 4, 5, 16)
	check(t, &of, 19, 20, 1)
	check(t, &of, 20, 0, 0)
	check(t, &of, 99, 0, 0)
	of.Shorten()
	check(t, &of, 18, 0, none)
	check(t, &of, 19, 20, 1)
	fill(&of, 21, 24, 6<<10) // two of these are 12 KiB
	check(t, &of, 22, 23, 2)
	check(t, &of, 21, 0, none)
	fill(&of, 25, 25, 1<<20) // one that is larger than all may be
	check(t, &of, 24, 0, none)
	fill(&of, 26, 26, 1)
	check(t, &of, 25, 26, 1)
}
