package main

import (
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/daemon"
)

func TestBudgetFlag(t *testing.T) {
	var b budgetFlag
	if err := b.UnmarshalText([]byte("calls=100, tokens=2000000,cost=2.5,time=1h30m")); err != nil {
		t.Fatal(err)
	}
	want := daemon.Budget{ModelCalls: 100, Tokens: 2_000_000, Cost: 2_500_000_000, Wall: 90 * time.Minute}
	if daemon.Budget(b) != want {
		t.Errorf("read as %+v, want %+v", b, want)
	}
	if err := b.UnmarshalText([]byte("cost=1")); err != nil || daemon.Budget(b) != (daemon.Budget{Cost: 1_000_000_000}) {
		t.Errorf("read as %+v, %v", b, err)
	}
	for _, bad := range []string{"", "calls", "calls=", "calls=0", "calls=-1", "calls=1.5", "cost=NaN", "cost=Inf", "cost=1,cost=2", "time=5", "speed=3", "calls=1;tokens=2", "tokens=99999999999999999999"} {
		if err := b.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q was read as %+v", bad, b)
		}
	}
}
