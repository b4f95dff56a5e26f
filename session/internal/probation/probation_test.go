package probation_test

import (
	"testing"

	"github.com/apzuk3/agentd/session/internal/probation"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

func TestCounts(t *testing.T) {
	for _, tt := range []struct {
		limit, attempts        int64
		suspected, quarantined bool
	}{
		{3, 0, false, false},
		{3, 1, false, false},
		{3, 2, true, false},
		{3, 3, true, true},
		{3, store.AttemptsClosing, false, true},
		{1, 0, false, false},
		{1, 1, false, true},
		{0, 9, false, false},
		{0, store.AttemptsClosing, false, false},
	} {
		p := probation.New[string](int(tt.limit))
		if got := p.Suspected(tt.attempts); got != tt.suspected {
			t.Errorf("limit %d, %d attempts: suspected is %v", tt.limit, tt.attempts, got)
		}
		if got := p.Quarantined(tt.attempts); got != tt.quarantined {
			t.Errorf("limit %d, %d attempts: quarantined is %v", tt.limit, tt.attempts, got)
		}
	}
}

// One holder runs its suspect at a time, and may enter again.
func TestOneAtATime(t *testing.T) {
	p := probation.New[string](3)
	if p.Leave("") || p.Leave("a") || p.Busy("a") {
		t.Error("somebody is on a new probation")
	}
	for range 2 {
		if !p.Enter("a") || p.Busy("a") {
			t.Error("a cannot run its suspect")
		}
	}
	if p.Enter("b") || !p.Busy("b") || p.Leave("b") {
		t.Error("b runs its suspect beside a's")
	}
	if !p.Leave("a") || p.Leave("a") || !p.Enter("b") {
		t.Error("b cannot run its suspect after a's")
	}
}

func TestSteps(t *testing.T) {
	if !probation.IsStep(record.KindToolResult) || probation.IsStep(record.KindTurnResumed) {
		t.Error("a result is a step forward, a resumption is none")
	}
}
