package main

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/bench/internal/fake"
	"github.com/apzuk3/agentd/bench/internal/peer"
	"github.com/apzuk3/agentd/bench/internal/proc"
	"github.com/apzuk3/agentd/bench/internal/script"
)

// Model calls that nobody has asked for are found, and those that are missing.
func TestCounted(t *testing.T) {
	model := httptest.NewServer(&fake.Model{})
	defer model.Close()
	b := &bench{model: &proc.Process{URL: model.URL}}
	for extra, want := range map[int64]string{0: "", -1: "has answered 6 calls, 0 of them not in full, in place of 5", 1: "in place of 7"} {
		l := &load{server: peer.NewFloor(model.URL)}
		if err := l.sessions(t.Context(), 2, 2, peer.Turn{Script: script.Script{Chunks: 1, Rounds: 2, Calls: 1}}); err != nil {
			t.Fatal(err)
		}
		l.asked.Add(extra)
		err := b.counted(t.Context(), l)
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

// A job that fails ends the others.
func TestEach(t *testing.T) {
	err := each(t.Context(), 1000, 2, func(ctx context.Context, i int) error {
		if i == 1 {
			return context.DeadlineExceeded
		}
		<-ctx.Done()
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "1: context deadline") {
		t.Error(err)
	}
}
