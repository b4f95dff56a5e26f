package sqlite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

var start = time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)

// batchOf returns an append of n records of size bytes each, which tell where
// they belong: a log can be checked without knowing who wrote it.
func batchOf(id string, after int64, n, size int) store.Batch {
	b := store.Batch{SessionID: id, After: after}
	for i := range n {
		seq := after + int64(i) + 1
		data := fmt.Appendf(nil, "%s record %d, %d of %d ", id, seq, i+1, n)
		for len(data) < size {
			data = append(data, byte(len(data)*7))
		}
		b.Records = append(b.Records, record.Record{
			Seq: seq, TurnID: "turn", Kind: record.KindEvent, Time: start.Add(time.Duration(seq) * time.Second), Data: data,
		})
	}
	return b
}

func newSession(id string) store.NewSession {
	return store.NewSession{ID: id, CreatedAt: start, Creator: "local"}
}

func mustCreate(t testing.TB, s *Store, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := s.Create(t.Context(), newSession(id), nil); err != nil {
			t.Fatal(err)
		}
	}
}

func mustAppend(t testing.TB, s *Store, b store.Batch) {
	t.Helper()
	if err := s.Append(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// lastSeq returns where a log ends, having checked that it can be read that far.
func lastSeq(t testing.TB, s *Store, id string) int64 {
	t.Helper()
	head, err := s.Head(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	recs, err := s.Read(t.Context(), id, 0, 1<<30)
	if err != nil || int64(len(recs)) != head.LastSeq {
		t.Fatalf("session %q: %d records, %v, its head says %d", id, len(recs), err, head.LastSeq)
	}
	for i, r := range recs {
		if r.Seq != int64(i)+1 {
			t.Fatalf("session %q: record at place %d has sequence number %d", id, i, r.Seq)
		}
	}
	return head.LastSeq
}

// gate stands in front of COMMIT and stops the writer there.
type gate struct {
	entered chan struct{} // one for each commit
	pass    chan struct{} // one lets a commit through; closed lets all through
}

func newGate() *gate {
	return &gate{entered: make(chan struct{}, 1000), pass: make(chan struct{})}
}

func (g *gate) option() option {
	return withCommit(func(commit func() error) error {
		g.entered <- struct{}{}
		<-g.pass
		return commit()
	})
}

func withCommit(f func(commit func() error) error) option {
	return func(o *options) { o.commit = f }
}

// appendAsync appends and tells the outcome on the channel.
func appendAsync(ctx context.Context, s *Store, b store.Batch) <-chan error {
	done := make(chan error, 1)
	go func() { done <- s.Append(ctx, b) }()
	return done
}

// withMaxBytes is Config.MaxBytes.
func withMaxBytes(n int64) option { return func(o *options) { o.maxBytes = n } }
