package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// runFull checks what a store does when it has no space left.
func runFull(t *testing.T, open func(t *testing.T) (s store.Store, makeRoom func())) {
	t.Run("Full/NothingIsWritten", func(t *testing.T) {
		s, makeRoom := open(t)
		defer closeStore(t, s)
		log, refused := fill(t, s)
		if len(log) == 0 {
			t.Fatal("there is no space for a single append")
		}
		wantFull := func() {
			t.Helper()
			wantLog(t, s, "a", log)
			wantNoRow(t, s, turnRow, "a", "t")
			wantNoKey(t, s, "s", "k")
			wantSessions(t, s, store.InfoQuery{}, "a")
			wantShared(t, s, "app", map[string]string{"last": fmt.Sprint(len(log))})
			wantOpen(t, s, "", 10)
		}
		wantFull()
		for range 3 { // it is not broken by being asked again
			wantNamed(t, "Append to a full store", s.Append(t.Context(), refused), store.ErrFull)
			made := refused
			made.SessionID, made.Create, made.After, made.Rows, made.Key = "made", new(fresh("made")), 0, nil, nil
			made.Records = slices.Clone(refused.Records)
			for i := range made.Records {
				made.Records[i].Seq = int64(i) + 1
			}
			wantNamed(t, "Append that creates, to a full store", s.Append(t.Context(), made), store.ErrFull)
			wantNamed(t, "Ping of a full store", s.Ping(t.Context()), store.ErrFull)
			wantFull()
		}
		add(t, s, batch("a", log[len(log)-2:]...)) // a repeat takes no space
		wantFull()

		makeRoom()
		if err := s.Ping(t.Context()); err != nil {
			t.Fatalf("Ping of a store that has space again: %v", err)
		}
		add(t, s, refused)
		wantLog(t, s, "a", append(log, refused.Records...))
		wantShared(t, s, "app", map[string]string{"last": `"refused"`})
		wantRow(t, s, refused.Rows[0])
		wantKey(t, s, *refused.Key)
	})
}

// fill appends two records at a time until the store is full. It returns the log of session "a", and a
// large append to it that was refused.
func fill(t *testing.T, s store.Store) (log []record.Record, refused store.Batch) {
	t.Helper()
	create(t, s, "a")
	for {
		more := events(int64(len(log)), 2)
		for i := range more {
			more[i].Data = bytes.Repeat([]byte{byte(more[i].Seq)}, 8<<10)
		}
		b := batch("a", more...)
		b.Shared = []store.SharedValue{{Scope: "app", Key: "last", Value: fmt.Append(nil, more[1].Seq)}}
		err := s.Append(t.Context(), b)
		if err == nil {
			if log = append(log, more...); len(log) > 10000 {
				t.Fatalf("%d records of 8 KiB fit", len(log))
			}
			continue
		}
		wantNamed(t, "Append to a full store", err, store.ErrFull)
		// Larger than what may have been left, so that it is refused for certain.
		for seq := b.After + 3; seq <= b.After+16; seq++ {
			r := started(seq, "turn")
			if seq < b.After+16 {
				r = events(seq-1, 1)[0]
				r.Data = bytes.Repeat([]byte{1}, 8<<10)
			}
			b.Records = append(b.Records, r)
		}
		b.Shared[0].Value = []byte(`"refused"`)
		b.Rows = []store.Row{row(turnRow, "a", "t", 1, "runs")}
		b.Key = &store.Key{Scope: "s", Name: "k", SessionID: "a", ID: "t"}
		return log, b
	}
}

// runFailing checks what a store does that has failed to make a write durable.
func runFailing(t *testing.T, open func(t *testing.T, dir string) (s store.Store, failNext func(persisted bool))) {
	for _, persisted := range []bool{false, true} {
		t.Run(fmt.Sprintf("Failed/NoMoreWrites/persisted=%v", persisted), func(t *testing.T) {
			dir := t.TempDir()
			s, failNext := open(t, dir)
			create(t, s, "a", "b")
			log := events(0, 2)
			add(t, s, batch("a", log...))
			lost := batch("a", events(2, 2)...)
			lost.Rows, lost.LastTurn = []store.Row{row(turnRow, "a", "t", 3, "runs")}, "t"
			lost.Key = &store.Key{Scope: "s", Name: "k", SessionID: "a", ID: "t"}
			made := batch("made", started(1, "t"))
			made.Create = new(fresh("made"))
			failNext(persisted)
			wantNamed(t, "Append that fails", s.Append(t.Context(), lost), store.ErrFailed)
			for what, write := range map[string]func() error{
				"Append that is repeated": func() error { return s.Append(t.Context(), lost) },
				"Append to another log":   func() error { return s.Append(t.Context(), batch("b", events(0, 1)...)) },
				"Create":                  func() error { return s.Create(t.Context(), fresh("c"), nil) },
				"Append that creates":     func() error { return s.Append(t.Context(), made) },
				"Update": func() error {
					_, err := s.Update(t.Context(), "a", store.Change{ClientRef: new("ref")})
					return err
				},
				"Fork":        func() error { return s.Fork(t.Context(), store.Fork{From: "a", Into: fresh("d")}) },
				"Index":       func() error { return s.Index(t.Context(), store.Batch{SessionID: "b"}, 0) },
				"Purge":       func() error { return s.Purge(t.Context(), "b", 0) },
				"Delete":      func() error { return s.Delete(t.Context(), "b", 0) },
				"SetAttempts": func() error { return s.SetAttempts(t.Context(), "a", 1, false) },
				"SetShared": func() error {
					return s.SetShared(t.Context(), []store.SharedValue{{Scope: "app", Key: "k"}})
				},
				"Ping": func() error { return s.Ping(t.Context()) },
			} {
				for range 2 {
					wantNamed(t, what+" after a failure", write(), store.ErrFailed)
				}
			}
			if err := s.Close(); err != nil && !errors.Is(err, store.ErrFailed) {
				t.Errorf("Close: %v", err)
			}

			s, _ = open(t, dir)
			defer closeStore(t, s)
			whole := slices.Concat(log, lost.Records)
			if persisted {
				log = whole
			}
			wantLog(t, s, "a", log)
			wantLog(t, s, "b", nil)
			if persisted {
				wantRow(t, s, lost.Rows[0])
				wantKey(t, s, *lost.Key)
			} else {
				wantNoRow(t, s, turnRow, "a", "t")
				wantNoKey(t, s, "s", "k")
			}
			wantInfo(t, s, infoOf("b", nil))
			add(t, s, lost) // the same way on, whatever has happened
			wantLog(t, s, "a", whole)
			wantRow(t, s, lost.Rows[0])
			wantKey(t, s, *lost.Key)
			wantSessions(t, s, store.InfoQuery{}, "b", "a")
			create(t, s, "c")
		})
	}
}
