package sqlite

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFile(t *testing.T) {
	t.Parallel()
	storetest.Harness{Events: true, Open: func(t *testing.T) store.Store { return open(t, t.TempDir()) }}.Run(t)
}

func TestMemory(t *testing.T) {
	t.Parallel()
	storetest.Harness{Events: true, Open: func(t *testing.T) store.Store {
		s, err := openAs(t.Context(), Memory)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}}.Run(t)
}

func TestDurable(t *testing.T) {
	t.Parallel()
	storetest.Harness{OpenAt: func(t *testing.T, dir string) store.Store { return open(t, dir) }}.Run(t)
}

// open returns the store in dir, which the caller closes.
func open(t testing.TB, dir string, opts ...option) *Store {
	t.Helper()
	s, err := openAs(t.Context(), filepath.Join(dir, "agentd.db"), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFull(t *testing.T) {
	t.Parallel()
	storetest.Harness{OpenFull: func(t *testing.T) (store.Store, func()) {
		s := open(t, t.TempDir(), withMaxBytes(1<<20))
		return s, func() {
			if err := s.SetMaxBytes(t.Context(), 8<<20); err != nil {
				t.Fatal(err)
			}
		}
	}}.Run(t)
}

// TestFailing fails a COMMIT in both ways: the transaction is on disk or it is
// not, and the store cannot know.
func TestFailing(t *testing.T) {
	t.Parallel()
	storetest.Harness{OpenFailing: func(t *testing.T, dir string) (store.Store, func(bool)) {
		var next func(commit func() error) error // set while no append is under way
		s := open(t, dir, withCommit(func(commit func() error) error {
			if next != nil {
				return next(commit)
			}
			return commit()
		}))
		return s, func(persisted bool) {
			next = func(commit func() error) error {
				errDisk := errors.New("the disk is on fire")
				if persisted {
					return errors.Join(errDisk, commit())
				}
				return errDisk
			}
		}
	}}.Run(t)
}

// One read holds a bounded number of bytes, however large the records are.
func TestReadIsBounded(t *testing.T) {
	s := open(t, t.TempDir())
	t.Cleanup(func() { mustClose(t, s) })
	if err := s.Create(t.Context(), store.NewSession{ID: "s", CreatedAt: time.Now().UTC()}, nil); err != nil {
		t.Fatal(err)
	}
	const records = 12
	data := []byte(`"` + strings.Repeat("x", store.ReadBytes/4) + `"`)
	for i := range int64(records) {
		rec := record.Record{Seq: i + 1, TurnID: "t", Kind: record.KindRawPayload, Time: time.Now().UTC(), Data: data}
		if i == 0 {
			rec.Kind = record.KindTurnStarted
		}
		if err := s.Append(t.Context(), store.Batch{SessionID: "s", After: i, Records: []record.Record{rec}}); err != nil {
			t.Fatal(err)
		}
	}
	for last := int64(0); last < records; {
		recs, err := s.Read(t.Context(), "s", last, 100)
		if err != nil || len(recs) == 0 {
			t.Fatalf("after %d: %d records, %v", last, len(recs), err)
		}
		if size := len(recs) * len(data); size > store.ReadBytes+len(data) {
			t.Errorf("after %d: %d bytes at once", last, size)
		}
		last = recs[len(recs)-1].Seq
	}
}

// One read of rows holds a bounded number of bytes, however large they are, and a
// list in such pages is whole.
func TestRowsAreBounded(t *testing.T) {
	s := open(t, t.TempDir())
	t.Cleanup(func() { mustClose(t, s) })
	if err := s.Create(t.Context(), store.NewSession{ID: "s", CreatedAt: time.Now().UTC()}, nil); err != nil {
		t.Fatal(err)
	}
	const rows, limit = 12, 100
	data := []byte(`"` + strings.Repeat("x", store.ReadBytes/4) + `"`)
	for i := range int64(rows) {
		rec := record.Record{Seq: i + 1, TurnID: "t", Kind: record.KindRawPayload, Time: time.Now().UTC(), Data: []byte(`{}`)}
		if i == 0 {
			rec.Kind = record.KindTurnStarted
		}
		b := store.Batch{SessionID: "s", After: i, Records: []record.Record{rec}, Rows: []store.Row{
			{Kind: store.RowInteraction, SessionID: "s", ID: rec.Time.String(), Seq: i + 1, CreatedAt: rec.Time, Status: []string{"a", "b"}[i%2], Data: data},
		}}
		if err := s.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range []store.RowQuery{{}, {Statuses: []string{"a", "b"}}, {SessionID: "s"}} {
		q.Kind, q.Limit = store.RowInteraction, limit
		got := 0
		for last := false; !last; {
			page, err := s.Rows(t.Context(), q)
			if err != nil || len(page) == 0 && got < rows {
				t.Fatalf("after %d: %d rows, %v", got, len(page), err)
			}
			if size := len(page) * len(data); size > store.ReadBytes+len(data) {
				t.Errorf("after %d: %d bytes at once", got, size)
			}
			got += len(page)
			if last = (store.RowQuery{Limit: limit}).IsLast(page); !last {
				q.After = &page[len(page)-1]
			}
		}
		if got != rows {
			t.Errorf("%d rows, want %d", got, rows)
		}
	}
}
