package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

const unavailable = agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE

// fill takes all the space that a store has, down to the last small append.
func fill(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.Create(t.Context(), store.NewSession{ID: "filler", CreatedAt: time.Now(), Creator: "local"}, nil); err != nil {
		t.Fatal(err)
	}
	seq := int64(0)
	for _, size := range []int{64 << 10, 4 << 10, 100} {
		for {
			err := s.Append(t.Context(), store.Batch{SessionID: "filler", After: seq, Records: []record.Record{{
				Seq: seq + 1, TurnID: "t", Kind: record.KindEvent, Time: time.Now(), Data: bytes.Repeat([]byte("x"), size),
			}}})
			if err != nil {
				break
			}
			seq++
		}
	}
}

// ready asks whether turns can be served.
func ready(t *testing.T, d *agentdtest.Daemon) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.URL+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := d.HTTPClient().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func heartbeat() *agentdv1.RunRequest {
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Heartbeat{Heartbeat: &agentdv1.RunRequest_HeartbeatRequest{}}}
}

// TestDiskFull (F17) fills the database under a turn: the turn pauses and shows
// nothing that is not stored, new ones are refused as something that passes, readyz says
// no; when there is space, all continues, in the same process.
func TestDiskFull(t *testing.T) {
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "agentd.db"), sqlite.Config{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	d := agentdtest.Start(t, agentdtest.Config{
		Scripts: map[string]string{"talker": `answers:
  - {text: "One moment.", calls: [{name: first}]}
  - {text: "Got {{tool_result \"first\"}}."}`},
	}, testdaemon.WithStore(store))
	dial := connectDialer(d.HTTPClient(), d.URL)
	if status, text := ready(t, d); status != http.StatusOK {
		t.Fatalf("readyz: %d %s", status, text)
	}
	begin := execute(llm("root", "scripted/talker", "first"), "go", tool("first", `{"type":"object"}`))
	turn := dial.open(t, begin)
	call := turn.until(isCall).GetToolCall()
	fill(t, store)

	turn.send(resultFor(call))
	turn.send(heartbeat()) // the stream is served as ever
	turn.until(func(m *agentdv1.RunResponse) bool { return m.GetHeartbeat() != nil })
	for range 3 {
		if status, text := ready(t, d); status != http.StatusServiceUnavailable || !strings.Contains(text, "cannot take writes") {
			t.Errorf("readyz: %d %s, want 503 and why", status, text)
		}
	}
	refused := dial.open(t, begin)
	if e := refused.next().GetError(); e.GetCode() != unavailable || !e.GetRetryable() || !strings.Contains(e.GetMessage(), "no space is left; try again later") {
		t.Errorf("a new turn: %v, want UNAVAILABLE, and why", e)
	}
	refused.drop()
	log, err := store.Read(t.Context(), turn.session(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(log); n == 0 || log[n-1].Kind != record.KindEvent {
		t.Errorf("the log holds %d records, want the model's answer as the last", n)
	}
	// A client that comes now receives what is stored, and no more.
	late := dial.open(t, attach(turn.session(), -1))
	late.send(heartbeat())
	late.until(func(m *agentdv1.RunResponse) bool { return m.GetHeartbeat() != nil })
	for _, m := range append(turn.got, late.got...) {
		if m.GetEnd() != nil || strings.Contains(m.GetOutputChunk().GetContent(), "Got") {
			t.Errorf("shown, and not stored: %v", m)
		}
	}
	late.drop()

	if err := store.SetMaxBytes(t.Context(), 16<<20); err != nil {
		t.Fatal(err)
	}
	if end := turn.rest().GetEnd(); !end.GetCompleted() || end.GetUsageSummary().GetLlmCalls() != 2 {
		t.Errorf("the turn ended with %v", end)
	}
	if got := text(turn.got, "root"); got != "One moment.Got result of first." {
		t.Errorf("said %q", got)
	}
	if status, text := ready(t, d); status != http.StatusOK {
		t.Errorf("readyz: %d %s", status, text)
	}
	if end := dial.open(t, begin).rest().GetEnd(); !end.GetCompleted() {
		t.Errorf("a new turn ended with %v", end)
	}
}

// hanging is a store that hangs, whatever its callers' contexts say.
type hanging struct {
	store.Store
	hang chan struct{} // closed when it hangs no more
}

func (s *hanging) Close() error {
	<-s.hang
	return s.Store.Close()
}

// TestStoreThatDoesNotClose: a disk that hangs does not keep the process.
func TestStoreThatDoesNotClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Config{})
		if err != nil {
			t.Fatal(err)
		}
		store := &hanging{Store: memory, hang: make(chan struct{})}
		d, err := daemon.New(daemon.Config{Listener: testdaemon.NewListener(), Store: store})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := d.Shutdown(t.Context()); err == nil || !strings.Contains(err.Error(), "did not close within") {
			t.Errorf("shutdown: %v", err)
		}
		close(store.hang)
	})
}

// failing is a store that fails for good on demand.
type failing struct {
	store.Store
	fails atomic.Bool
}

func (s *failing) Append(ctx context.Context, b store.Batch) error {
	if s.fails.Load() {
		return fmt.Errorf("fsync: %w", store.ErrFailed)
	}
	return s.Store.Append(ctx, b)
}

// TestStoreFails (F18): the daemon reports that it cannot serve any more, and why;
// watchers receive an error that says to retry.
func TestStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Config{})
		if err != nil {
			t.Fatal(err)
		}
		db := &failing{Store: memory}
		l := testdaemon.NewListener()
		var log buffer
		d, err := daemon.New(daemon.Config{
			Listener: l, Store: db, Logger: daemon.NewLogger(&log, daemon.LogConfig{}),
			Scripts: map[string]string{"asker": `answers: [{calls: [{name: first}]}]`},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		tr := l.Transport()
		defer tr.CloseIdleConnections()
		dial := connectDialer(&http.Client{Transport: tr}, l.URL())
		begin := execute(llm("root", "scripted/asker", "first"), "go", tool("first", `{"type":"object"}`))
		var turns []*talk
		for range 2 {
			turns = append(turns, dial.open(t, begin))
		}
		var call *agentdv1.RunResponse_ToolCallRequest
		for _, turn := range turns {
			call = turn.until(isCall).GetToolCall()
		}
		db.fails.Store(true)
		turns[1].send(resultFor(call))
		for i, turn := range turns {
			e := turn.until(isError).GetError()
			if e.GetCode() != unavailable || !e.GetRetryable() {
				t.Errorf("turn %d: %v, want UNAVAILABLE", i, e)
			}
			turn.drop()
		}
		if err := <-d.Failed(); !errors.Is(err, store.ErrFailed) {
			t.Errorf("failed with %v", err)
		}
		if err := d.Shutdown(t.Context()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if n := strings.Count(log.String(), "this server stops"); n != 1 {
			t.Errorf("logged %d times: %s", n, log.String())
		}
	})
}
