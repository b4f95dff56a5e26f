package stalls_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/session/internal/stalls"
)

// The log has the first session that waits, and when the last one was written.
func TestStalls(t *testing.T) {
	var out bytes.Buffer
	s := stalls.New[int](slog.New(slog.NewTextHandler(&out, nil)))
	full := errors.New("full")
	s.End(1, true) // which does not wait
	if err := s.Err(); err != nil {
		t.Errorf("nobody waits: %v", err)
	}
	s.Begin(1, "one", full)
	s.Begin(2, "two", full)
	if err := s.Err(); !errors.Is(err, full) {
		t.Errorf("two wait: %v, want why", err)
	}
	s.End(1, true)
	if err := s.Err(); !errors.Is(err, full) {
		t.Errorf("one waits: %v, want why", err)
	}
	s.End(2, true)
	if err := s.Err(); err != nil {
		t.Errorf("nobody waits any more: %v", err)
	}
	log := out.String()
	if n := strings.Count(log, "\n"); n != 2 || !strings.Contains(log, "session=one") || !strings.Contains(log, "again") {
		t.Errorf("the log has %d lines, want 2:\n%s", n, log)
	}
	s.Begin(1, "one", full)
	if s.End(1, false); strings.Count(out.String(), "\n") != 3 {
		t.Errorf("a session that gave up was logged as written:\n%s", out.String())
	}
}

func TestFlushers(t *testing.T) {
	var g stalls.Flushers
	done := false
	if !g.Spawn(func() { done = true }) {
		t.Error("no goroutine was started")
	}
	g.Stop()
	if g.Spawn(func() { t.Error("a goroutine was started after the stop") }) {
		t.Error("a goroutine is started after the stop")
	}
	if g.Wait(); !done {
		t.Error("a goroutine that ran was not awaited")
	}
}
