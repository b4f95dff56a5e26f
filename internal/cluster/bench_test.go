package cluster

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/postgres"
)

// benchmarked returns a member that does not beat by itself, in a database with so many other members and sessions.
// The sessions have an open turn, and are due if told so.
func benchmarked(b *testing.B, members, sessions int, due bool) (*Member, *postgres.Store) {
	b.Helper()
	url := pgserver.URL(b)
	s, err := postgres.Open(b.Context(), url, postgres.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	m, err := Join(b.Context(), Config{
		DB: s.Pool(), Name: "bench", Address: "http://bench", Version: "1", Beat: time.Hour, TTL: 5 * time.Hour, LockTTL: 3 * time.Hour,
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, url) },
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.Leave(context.WithoutCancel(b.Context())) })
	for _, statement := range []string{
		fmt.Sprintf(`INSERT INTO replicas (name, address, version) SELECT 'r' || n, 'http://r' || n, '1'
			FROM generate_series(1, %d) n`, members),
		fmt.Sprintf(`INSERT INTO sessions (id, created_at, creator, client_ref, metadata, agent, budget, drop_payloads)
			SELECT 's' || n, n, 'local', '', '', '', '{}', false FROM generate_series(0, %d) n`, sessions-1),
		fmt.Sprintf(`INSERT INTO heads (id, created_at, updated_at, open_turn, due_at)
			SELECT 's' || n, n, n, 't', CASE WHEN %t THEN now() END FROM generate_series(0, %d) n`, due, sessions-1),
		`VACUUM ANALYZE`,
	} {
		if _, err := s.Pool().Exec(b.Context(), statement); err != nil {
			b.Fatal(strings.SplitN(statement, "\n", 2)[0], err)
		}
	}
	return m, s
}

// BenchmarkBeat measures a beat of a member among others.
func BenchmarkBeat(b *testing.B) {
	for _, members := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			m, _ := benchmarked(b, members-1, 1, false)
			for b.Loop() {
				if err := m.beat(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkClaim measures a claim and its release, one after the other, of sessions of which most are at rest.
func BenchmarkClaim(b *testing.B) {
	for _, sessions := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			m, _ := benchmarked(b, 0, sessions, false)
			for i := 0; b.Loop(); i++ {
				key := fmt.Sprintf("s%d", i*7919%sessions)
				c, err := m.Claim(b.Context(), key)
				if err == nil {
					err = m.Release(b.Context(), key, c.Epoch, session.Never)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAppend measures the claim of a session at rest, an append of 1 KiB and the release, one after the other.
func BenchmarkAppend(b *testing.B) {
	const sessions = 1_000
	m, s := benchmarked(b, 0, sessions, false)
	data := bytes.Repeat([]byte{'x'}, 1024)
	for i := 0; b.Loop(); i++ {
		key, seq := fmt.Sprintf("s%d", i%sessions), int64(i/sessions)+1
		c, err := m.Claim(b.Context(), key)
		if err == nil {
			rec := record.Record{Seq: seq, TurnID: "t", Kind: record.KindEvent, Time: time.Now(), Data: data}
			err = s.Append(b.Context(), store.Batch{
				SessionID: key, After: seq - 1, Epoch: c.Epoch, Records: []record.Record{rec},
			})
		}
		if err == nil {
			err = m.Release(b.Context(), key, c.Epoch, session.Never)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDue measures a look for what must go on, while so many sessions must.
func BenchmarkDue(b *testing.B) {
	for _, sessions := range []int{1, 1_000, 10_000} {
		b.Run(fmt.Sprintf("due=%d", sessions), func(b *testing.B) {
			m, _ := benchmarked(b, 9, sessions, true)
			for b.Loop() {
				if _, err := m.Due(b.Context(), 1_000); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
