package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// One store at a time has a database alone. One that has lost it writes no more.
func TestAlone(t *testing.T) {
	t.Parallel()
	url := pgserver.URL(t)
	first, err := Open(t.Context(), url, Config{Alone: true})
	if err != nil {
		t.Fatal(err)
	}
	if second, err := Open(t.Context(), url, Config{Alone: true}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second store: %v, %v", second, err)
	}
	mustClose(t, openAt(t, url)) // which does not ask to be alone
	mustClose(t, first)
	next, err := Open(t.Context(), url, Config{Alone: true})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, next)

	thief, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = thief.Close(context.WithoutCancel(t.Context())) }()
	got := make(chan error, 1)
	go func() { // ends with the lock
		_, err := thief.Exec(t.Context(), `SELECT pg_advisory_lock($1)`, int64(aloneLock))
		got <- err
	}()
	const waiting = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	await(t, func() bool {
		n := 0
		return next.pool.QueryRow(t.Context(), waiting).Scan(&n) == nil && n == 1
	})
	_, err = next.pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'
		AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	if err := errors.Join(err, <-got); err != nil {
		t.Fatal(err)
	}
	b := store.Batch{SessionID: "s", Create: &store.NewSession{ID: "s", CreatedAt: time.Now()}}
	b.Records = []record.Record{{Seq: 1, TurnID: "t", Kind: record.KindEvent, Time: time.Now(), Data: []byte(`{}`)}}
	await(t, func() bool { return errors.Is(next.Append(t.Context(), b), store.ErrFailed) })
}

// await waits until done says so.
func await(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); !done(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("it has not happened")
		}
	}
}
