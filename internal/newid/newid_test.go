package newid

import (
	"testing"
	"time"
)

// TestSession: ids are of one length, differ, and are in the order of their times.
func TestSession(t *testing.T) {
	last := ""
	for _, at := range []time.Time{
		{}, time.UnixMilli(1), time.UnixMilli(31), time.UnixMilli(32), time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC), time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		id, other := Session(at), Session(at)
		if len(id) != 35 || id == other || id[:9] != other[:9] {
			t.Errorf("at %s: %q and %q", at, id, other)
		}
		if id[:9] < last {
			t.Errorf("at %s: %q is before %q", at, id, last)
		}
		last = id[:9]
	}
}
