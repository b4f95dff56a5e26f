package render

import (
	"slices"
	"testing"

	"github.com/apzuk3/agentd/session/internal/position"
)

// A log is cut after the first record with which too much has come together, and never in a
// message.
func TestCutsOf(t *testing.T) {
	whole := func(seq int64) int64 { return position.Of(seq, 0) }
	deltaAfter := func(seq int64) int64 { return position.Of(seq, position.Deltas) }
	for _, tc := range []struct {
		name   string
		firsts []int64 // of records 1, 2, …, of 10 bytes each
		least  int64
		want   []int64
	}{
		{"small records", []int64{whole(1), whole(2), whole(3), whole(4), whole(5)}, whole(6), []int64{3}},
		{"two cuts", []int64{whole(1), whole(2), whole(3), whole(4), whole(5), whole(6)}, whole(7), []int64{3, 6}},
		{"in a message", []int64{whole(1), whole(2), whole(3), deltaAfter(2), whole(5)}, whole(6), []int64{4}},
		{"after it begins", []int64{whole(1), whole(2), whole(3), deltaAfter(3), whole(5)}, whole(6), []int64{3}},
		{"a partial begins before", []int64{whole(1), whole(2), whole(3)}, deltaAfter(1), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var steps []step
			for i, first := range tc.firsts {
				steps = append(steps, step{seq: int64(i + 1), size: 10, first: first})
			}
			if got := cutsOf(steps, tc.least, 25); !slices.Equal(got, tc.want) {
				t.Errorf("cuts after %v, want %v", got, tc.want)
			}
		})
	}
}
