package gestalt

import (
	"testing"
	"time"
)

// A host kills the process 2 s after SIGTERM; the process promises 1.5 s.
func TestStopWithin(t *testing.T) {
	if grace >= stopWithin || stopWithin > 1500*time.Millisecond {
		t.Errorf("it stops within %v, of which model calls have %v; want 1.5 s at most", stopWithin, grace)
	}
}
