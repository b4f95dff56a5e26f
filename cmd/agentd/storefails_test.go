package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// storeFails makes the agentd that the test binary is have a store that fails: the way, a colon, and the number
// of the append. storeWaits is a file before which an append but the first one does not fail: a process that
// ends before its client follows the turn tells nobody.
const (
	storeFails = "AGENTD_TEST_STORE_FAILS"
	storeWaits = "AGENTD_TEST_STORE_WAITS"
)

// failingStore fails for good at one of its appends.
type failingStore struct {
	store.Store
	way     string
	at      int64
	waits   string // see storeWaits
	appends atomic.Int64
	failed  atomic.Bool
}

var errFsync = fmt.Errorf("%w: fsync: input/output error", store.ErrFailed)

func (s *failingStore) Append(ctx context.Context, b store.Batch) error {
	if s.failed.Load() {
		return errors.New("a store that has failed was written to")
	}
	if s.appends.Add(1) != s.at {
		return s.Store.Append(ctx, b)
	}
	for at := time.Now().Add(time.Minute); s.at > 1 && time.Now().Before(at); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(s.waits); err == nil {
			break
		}
	}
	switch s.way {
	case "before":
	case "after":
		if err := s.Store.Append(ctx, b); err != nil {
			return err
		}
	default:
		return wearOut(ctx, s.Store, b)
	}
	s.failed.Store(true)
	return errFsync
}

// mainThatFails is main with such a store.
func mainThatFails(fault string) int {
	s := &failingStore{waits: os.Getenv(storeWaits)}
	way, at, _ := strings.Cut(fault, ":")
	s.way = way
	if _, err := fmt.Sscan(at, &s.at); err != nil {
		panic(err)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM)
	p := &process{signals: signals, env: environ(os.Environ()), stdout: os.Stdout, stderr: os.Stderr}
	p.adjust = func(cfg *daemon.Config) {
		var err error
		if s.Store, err = sqlite.Open(context.Background(), filepath.Join(cfg.DataDir, "agentd.db"), sqlite.Config{}); err != nil {
			panic(err)
		}
		cfg.Store = s
	}
	return p.run(os.Args[1:])
}

// TestStoreFails (F18): when the database fails, whatever was being written, and
// whether that is on disk or not, the process tells its clients to come again,
// and ends, with an error; the next one continues.
func TestStoreFails(t *testing.T) {
	// The first append is the turn's start, the next one an answer of the model,
	// then come results of tools.
	faults := map[string][]int{"before": {1, 2, 3}, "after": {2, 3, 5}}
	if canWearOut {
		faults["kernel"] = []int{2, 4}
	}
	for way, appends := range faults {
		for _, at := range appends {
			t.Run(fmt.Sprintf("%s %d", way, at), func(t *testing.T) {
				t.Parallel()
				overBoth(t, func(t *testing.T, c *carrier) { storeFailsAt(t, c, way, at) })
			})
		}
	}
}

func storeFailsAt(t *testing.T, c *carrier, way string, at int) {
	env, f := killable(t)
	env[storeFails] = fmt.Sprintf("%s:%d", way, at)
	env[storeWaits] = filepath.Join(t.TempDir(), "followed")
	first := c.binary(t, env)
	f.open(first, agent("scripted/work", "a", "b", "c", "d"))
	e := f.until(func(m *agentdv1.RunResponse) bool {
		if m.GetExecute() != nil {
			if err := os.WriteFile(env[storeWaits], nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if call := m.GetToolCall(); call != nil {
			f.sendResult(call)
		}
		return m.GetError() != nil || m.GetEnd() != nil
	}).GetError()
	if e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE || !e.GetRetryable() {
		t.Errorf("got %v, want UNAVAILABLE", f.got[len(f.got)-1])
	}
	f.drop()
	if code := first.wait(); code != exitError {
		t.Errorf("exit code %d, want %d: %s", code, exitError, first.log)
	}
	if n := strings.Count(first.log.String(), `"level":"ERROR","msg":"the store has failed`); n != 1 {
		t.Errorf("%d lines say that the store has failed: %s", n, first.log)
	}
	delete(env, storeFails)
	second := c.binary(t, env)
	if at == 1 { // nobody has seen a session
		f.got = nil
		f.open(second, agent("scripted/work", "a", "b", "c", "d"))
	} else {
		f.open(second, nil)
	}
	end := f.end()
	if !end.GetCompleted() || end.GetUsageSummary().GetLlmCalls() != 3 {
		t.Errorf("got %v, want a completed turn of 3 model calls", end)
	}
	if want := long + " result of a, result of b, result of c, result of d"; f.text() != want {
		t.Errorf("said %q, want %q", f.text(), want)
	}
	for name, n := range f.asked {
		if n > 2 {
			t.Errorf("tool %s was asked for %d times", name, n)
		}
	}
	second.signal(syscall.SIGTERM)
	if code := second.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, second.log)
	}
	calls, results, ended := records(t, env["AGENTD_DATA"], f.session())
	if calls != 3 || results != 4 || !ended {
		t.Errorf("the log holds %d model calls and %d results, ended %v; want 3, 4 and true", calls, results, ended)
	}
}
