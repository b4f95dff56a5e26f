package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/postgres"
)

// A replica that does not know yet that another one has its session does not count the attempts of its turn.
func TestAttemptsOfAnother(t *testing.T) {
	t.Parallel()
	url := pgserver.URL(t)
	replica := func(id int64) *postgres.Store {
		s, err := postgres.Open(t.Context(), url, postgres.Config{Owner: func() int64 { return id }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	a, b, alone := replica(1), replica(2), replica(0)
	_, err := a.Pool().Exec(t.Context(), `INSERT INTO replicas (id, name, address, version)
		OVERRIDING SYSTEM VALUE VALUES (1, 'a', 'a', ''), (2, 'b', 'b', '')`)
	if err != nil {
		t.Fatal(err)
	}
	err = a.Append(t.Context(), store.Batch{
		SessionID: "s", Epoch: 1, Create: &store.NewSession{ID: "s", CreatedAt: time.Now(), Creator: "local"},
		Records: []record.Record{{Seq: 1, TurnID: "t", Kind: record.KindTurnStarted, Time: time.Now(), Data: []byte("{}")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.SetAttempts(t.Context(), "s", 2, false); err != nil {
		t.Fatal(err)
	}
	if err := b.SetAttempts(t.Context(), "s", 7, true); !errors.Is(err, store.ErrFenced) {
		t.Errorf("got %v, want ErrFenced", err)
	}
	if head, err := b.Head(t.Context(), "s"); err != nil || head.Attempts != 2 || head.Waits {
		t.Errorf("got %+v, %v; want 2 attempts", head, err)
	}
	if err := alone.SetAttempts(t.Context(), "s", 3, false); err != nil {
		t.Errorf("a server that has the database alone: %v", err)
	}
}
