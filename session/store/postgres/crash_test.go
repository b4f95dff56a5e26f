package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

var start = time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)

// next is an append of one record, which tells where it belongs.
func next(id string, after int64) store.Batch {
	rec := record.Record{
		Seq: after + 1, TurnID: "turn", Kind: record.KindEvent, Time: start,
		Data: fmt.Appendf(nil, "%s record %d", id, after+1),
	}
	return store.Batch{
		SessionID: id, After: after, Records: []record.Record{rec},
		Spent: record.Spent{Tokens: 1}, Payer: "acme", PaidOn: 7,
	}
}

func made(t testing.TB, s *Store, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := s.Create(t.Context(), store.NewSession{ID: id, CreatedAt: start}, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// until polls for at most 30 seconds.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s", what)
		}
	}
}

// TestServerIsKilled kills the server, again and again, while sessions append and repeat what has failed: what was
// acknowledged is in the logs, once, and was paid for once.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	const sessions, kills = 6, 4
	server := pgserver.Start(t, pgserver.Options{Fsync: true})
	s := openAt(t, server.URL(t))
	defer func() { _ = s.Close() }()
	var acked [sessions]atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	for i := range sessions {
		id := fmt.Sprint("s", i)
		made(t, s, id)
		wg.Go(func() {
			for ctx.Err() == nil {
				n := acked[i].Load()
				switch err := s.Append(t.Context(), next(id, n)); {
				case err == nil:
					acked[i].Add(1)
				case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrFailed), errors.Is(err, store.ErrNoSession):
					t.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	progress := func(of string) {
		var before [sessions]int64
		for i := range acked {
			before[i] = acked[i].Load()
		}
		until(t, "appends "+of, func() bool {
			for i := range acked {
				if acked[i].Load() < before[i]+5 && !t.Failed() {
					return false
				}
			}
			return true
		})
	}
	for range kills {
		progress("before a kill")
		server.Kill()
		server.Restart()
	}
	progress("behind the last kill")
	stop()
	wg.Wait()
	total := int64(0)
	for i := range acked {
		id, n := fmt.Sprint("s", i), acked[i].Load()
		head, err := s.Head(t.Context(), id)
		if err != nil || head.LastSeq != n {
			t.Fatalf("session %s: its head is %+v, %v; %d appends were acknowledged", id, head, err, n)
		}
		total += n
		for after := int64(0); after < n; {
			recs, err := s.Read(t.Context(), id, after, 500)
			if err != nil || len(recs) == 0 {
				t.Fatalf("read: %d records, %v", len(recs), err)
			}
			for _, r := range recs {
				if want := next(id, after).Records[0]; r.Seq != want.Seq || !bytes.Equal(r.Data, want.Data) {
					t.Fatalf("record %d says %q, want %q", r.Seq, r.Data, want.Data)
				}
				after++
			}
		}
	}
	spent, err := s.Spent(t.Context(), "acme", 7, 7)
	if err != nil || spent.Tokens != total {
		t.Errorf("%d tokens were paid for, %v, want %d", spent.Tokens, err, total)
	}
	t.Logf("%d appends, %d kills", total, kills)
}

// TestRepeatWaitsForTheStandby has a server that waits for a synchronous standby which does not exist. A commit whose wait
// was ended is no success, and neither is its repeat, though everybody can read the records.
func TestRepeatWaitsForTheStandby(t *testing.T) {
	t.Parallel()
	server := pgserver.Start(t, pgserver.Options{Settings: map[string]string{"synchronous_standby_names": "nobody"}})
	url := server.URL(t)
	local := url + "&synchronous_commit=local"
	setup := openAt(t, local)
	defer func() { _ = setup.Close() }()
	made(t, setup, "a", "b", "gone")
	s, err := Open(t.Context(), url, Config{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := pgx.Connect(t.Context(), local)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watcher.Close(context.WithoutCancel(t.Context())) }()
	// endWait ends the wait of the one commit that waits.
	endWait := func(how string) {
		t.Helper()
		until(t, "a commit that waits for the standby", func() bool {
			n := 0
			err := watcher.QueryRow(t.Context(), `SELECT count(*) FROM (SELECT `+how+`(pid) FROM pg_stat_activity
				WHERE wait_event = 'SyncRep') AS ended`).Scan(&n)
			if err != nil {
				t.Fatal(err)
			}
			return n > 0
		})
	}
	appendTo := func(id string) func() error { return func() error { return s.Append(t.Context(), next(id, 0)) } }
	remove := func() error { return s.Delete(t.Context(), "gone", 0) }
	for _, step := range []struct {
		how  string
		call func() error
	}{
		{"pg_terminate_backend", appendTo("a")},
		{"pg_cancel_backend", appendTo("a")}, // repeats
		{"pg_cancel_backend", appendTo("a")},
		{"pg_cancel_backend", appendTo("b")},
		{"pg_cancel_backend", remove},
		{"pg_terminate_backend", remove},
	} {
		done := make(chan error, 1)
		go func() { done <- step.call() }()
		endWait(step.how)
		err := <-done
		if err == nil || errors.Is(err, store.ErrNoSession) {
			t.Fatalf("a write whose commit was not replicated is confirmed (%s): %v", step.how, err)
		}
	}
	for _, id := range []string{"a", "b"} {
		if head, err := setup.Head(t.Context(), id); err != nil || head.LastSeq != 1 {
			t.Fatalf("Head: %+v, %v; the commit can be read", head, err)
		}
		if err := setup.Append(t.Context(), next(id, 0)); err != nil { // which does not wait
			t.Fatalf("repeat: %v", err)
		}
	}
	if err := setup.Delete(t.Context(), "gone", 0); !errors.Is(err, store.ErrNoSession) {
		t.Fatalf("repeated Delete: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
