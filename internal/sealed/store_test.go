package sealed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
	"github.com/apzuk3/agentd/session/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFile(t *testing.T) {
	t.Parallel()
	storetest.Harness{Open: func(t *testing.T) store.Store { return openAt(t, t.TempDir()) }}.Run(t)
}

func TestMemory(t *testing.T) {
	t.Parallel()
	storetest.Harness{Open: func(t *testing.T) store.Store {
		inner, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return New(inner, openRing(t, inner, keys(t, "a")))
	}}.Run(t)
}

func TestDurable(t *testing.T) {
	t.Parallel()
	storetest.Harness{OpenAt: func(t *testing.T, dir string) store.Store { return openAt(t, dir) }}.Run(t)
}

func TestFull(t *testing.T) {
	t.Parallel()
	storetest.Harness{OpenFull: func(t *testing.T) (store.Store, func()) {
		inner := openInner(t, t.TempDir(), sqlite.Config{MaxBytes: 1 << 20})
		return New(inner, openRing(t, inner, keys(t, "a"))), func() {
			if err := inner.SetMaxBytes(t.Context(), 8<<20); err != nil {
				t.Fatal(err)
			}
		}
	}}.Run(t)
}

// fixedKeys are files of keys of tests, so that a store is opened again with the same.
var fixedKeys = map[string]string{
	"a": "a " + strings.Repeat("YWFh", 10) + "YWE=",
	"b": "b " + strings.Repeat("YmJi", 10) + "YmI=",
}

// keys is a config with a file of keys, the first of which wraps.
func keys(t testing.TB, ids ...string) Config {
	t.Helper()
	text := "# keys of a test\n\n"
	for _, id := range ids {
		text += fixedKeys[id] + "\n"
	}
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Config{KeysFile: file}
}

func openInner(t testing.TB, dir string, cfg sqlite.Config) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(dir, "agentd.db"), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openRing(t testing.TB, db DB, cfg Config) *Ring {
	t.Helper()
	r, err := Open(t.Context(), db, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// openAt returns the store in dir, which the caller closes.
func openAt(t testing.TB, dir string) *Store {
	t.Helper()
	inner := openInner(t, dir, sqlite.Config{})
	return New(inner, openRing(t, inner, keys(t, "a")))
}

func closed(t testing.TB, s store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

var at = time.Date(2031, 2, 3, 4, 5, 6, 7000, time.UTC)

// canary is what no file of a store may have.
const canary = "canary-3f1c"

// filled is a batch with the canary everywhere where a caller's text is only carried.
func filled(id string) store.Batch {
	key := store.Key{Scope: "s", Name: "k-" + id, Content: canary, SessionID: id, ID: "t"}
	return store.Batch{
		SessionID: id, Create: &store.NewSession{ID: id, CreatedAt: at, Metadata: `{"m":"` + canary + `"}`},
		Records: []record.Record{
			{Seq: 1, TurnID: "t", Kind: record.KindTurnStarted, Time: at, Data: []byte(`{"p":"` + canary + `"}`)},
			{Seq: 2, TurnID: "t", Kind: record.KindTurnEnded, Time: at, Data: []byte(`{"o":"` + canary + `"}`)},
		},
		Rows: []store.Row{{
			Kind: store.RowTurn, SessionID: id, ID: "t", TurnID: "t", Seq: 1, CreatedAt: at, Status: "over",
			Data: []byte(`"` + canary + `"`),
		}},
		Shared: []store.SharedValue{{Scope: "app", Key: "k-" + id, Value: json.RawMessage(`"` + canary + `"`)}},
		Key:    &key,
	}
}

func add(t testing.TB, s store.Store, b store.Batch) {
	t.Helper()
	if err := s.Append(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// wantFilled checks that a session has what filled has written.
func wantFilled(t testing.TB, s store.Store, id string) {
	t.Helper()
	want := filled(id)
	recs, err := s.Read(t.Context(), id, 0, 10)
	if err != nil || len(recs) != 2 || !bytes.Equal(recs[0].Data, want.Records[0].Data) {
		t.Fatalf("records are %v, %v", recs, err)
	}
	row, err := s.Row(t.Context(), store.RowTurn, id, "t")
	if err != nil || !bytes.Equal(row.Data, want.Rows[0].Data) {
		t.Fatalf("row is %s, %v", row.Data, err)
	}
	shared, err := s.Shared(t.Context(), "app")
	if err != nil || string(shared["k-"+id]) != string(want.Shared[0].Value) {
		t.Fatalf("shared values are %s, %v", shared, err)
	}
	key, err := s.Key(t.Context(), "s", "k-"+id)
	if err != nil || key != *want.Key {
		t.Fatalf("key is %+v, %v", key, err)
	}
	info, err := s.Info(t.Context(), id)
	if err != nil || info.Metadata != want.Create.Metadata {
		t.Fatalf("metadata is %s, %v", info.Metadata, err)
	}
}

// inFiles reports whether a file of a store has the canary.
func inFiles(t testing.TB, dir string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("files of %s: %v, %v", dir, files, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte(canary)) {
			return true
		}
	}
	return false
}

// Nothing that is only carried is in the files, also not while the store is open; without the wrapper it is.
func TestNothingIsClear(t *testing.T) {
	dir, open := t.TempDir(), t.TempDir()
	s, plain := openAt(t, dir), openInner(t, open, sqlite.Config{})
	add(t, s, filled("x"))
	add(t, plain, filled("x"))
	if !inFiles(t, open) {
		t.Error("the canary is not in the files of a clear store")
	}
	if inFiles(t, dir) {
		t.Error("the canary is in the files of a sealed store")
	}
	wantFilled(t, s, "x")
	closed(t, s)
	closed(t, plain)
	if inFiles(t, dir) {
		t.Error("the canary is in the files of a sealed store that was closed")
	}
}

// A database from before opens, also with sealed values beside clear ones, and a fork of clear records is sealed.
func TestMixed(t *testing.T) {
	dir := t.TempDir()
	plain := openInner(t, dir, sqlite.Config{})
	add(t, plain, filled("before"))
	closed(t, plain)
	s := openAt(t, dir)
	defer closed(t, s)
	add(t, s, filled("after"))
	wantFilled(t, s, "before")
	wantFilled(t, s, "after")
	if err := s.Fork(t.Context(), store.Fork{From: "before", Seq: 2, Into: store.NewSession{ID: "fork", CreatedAt: at}}); err != nil {
		t.Fatal(err)
	}
	raw, err := s.Store.Read(t.Context(), "fork", 0, 10)
	if err != nil || len(raw) != 2 {
		t.Fatalf("%d records, %v", len(raw), err)
	}
	for _, r := range raw {
		if _, sealed := keyOf(r.Data); !sealed {
			t.Errorf("record %d of the fork is clear", r.Seq)
		}
	}
	add(t, s, filled("before")) // a repeat of what was written before
}

// A page of a store ends when its sealed values are large, which is before the opened ones are: readers take a page
// that is too small for the last one.
func TestPagesAreWhole(t *testing.T) {
	s := openAt(t, t.TempDir())
	defer closed(t, s)
	const records, size = 12, store.ReadBytes/4 - 10 // four sealed ones fill a page, four opened ones do not
	b := filled("x")
	b.Records, b.Rows, b.Key, b.Shared = nil, nil, nil, nil
	for i := range int64(records) {
		b.Records = append(b.Records, record.Record{
			Seq: i + 1, TurnID: "t", Kind: record.KindEvent, Time: at, Data: bytes.Repeat([]byte{'x'}, size),
		})
		b.Rows = append(b.Rows, store.Row{
			Kind: store.RowTurn, SessionID: "x", ID: fmt.Sprint(i), Seq: i + 1, CreatedAt: at, Status: "over",
			Data: bytes.Repeat([]byte{'y'}, size),
		})
	}
	add(t, s, b)
	got := 0
	for after := int64(0); ; {
		page, err := s.Read(t.Context(), "x", after, 100)
		if err != nil {
			t.Fatal(err)
		}
		if got += len(page); store.LastPage(page, 100) {
			break
		}
		after = page[len(page)-1].Seq
	}
	if got != records {
		t.Errorf("read %d records, want %d", got, records)
	}
	got = 0
	for q := (store.RowQuery{Kind: store.RowTurn, Limit: 100}); ; {
		page, err := s.Rows(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if got += len(page); q.IsLast(page) {
			break
		}
		q.After = &page[len(page)-1]
	}
	if got != records {
		t.Errorf("read %d rows, want %d", got, records)
	}
}

// A value opens at its own place alone.
func TestMovedValuesDoNotOpen(t *testing.T) {
	inner := openInner(t, t.TempDir(), sqlite.Config{})
	defer closed(t, inner)
	r := openRing(t, inner, keys(t, "a"))
	type spot struct {
		Session, Turn, Kind, ID, Scope, Key string
		Seq, Micro                          int64
	}
	// Parts of few letters, so that two spots often differ in one thing, or in where a part ends.
	word := rapid.StringOfN(rapid.SampledFrom([]rune{'a', 'b', '/', 1}), 0, 3, -1)
	draw := rapid.Custom(func(t *rapid.T) spot {
		return spot{
			word.Draw(t, "session"), word.Draw(t, "turn"), word.Draw(t, "kind"), word.Draw(t, "id"), word.Draw(t, "scope"),
			word.Draw(t, "key"), rapid.Int64Range(1, 2).Draw(t, "seq"), rapid.Int64Range(0, 1).Draw(t, "time"),
		}
	})
	places := map[string]func(s spot) (place []byte, same any){
		"record": func(s spot) ([]byte, any) {
			r := record.Record{Seq: s.Seq, TurnID: s.Turn, Kind: record.Kind(s.Kind), Time: time.UnixMicro(s.Micro)}
			return recordPlace(s.Session, &r), [5]any{s.Session, s.Turn, s.Kind, s.Seq, s.Micro}
		},
		"row": func(s spot) ([]byte, any) {
			r := store.Row{SessionID: s.Session, Kind: store.RowKind(s.Kind), ID: s.ID}
			return rowPlace(&r), [3]string{s.Session, s.Kind, s.ID}
		},
		"shared": func(s spot) ([]byte, any) { return sharedPlace(s.Scope, s.Key), [2]string{s.Scope, s.Key} },
		"key": func(s spot) ([]byte, any) {
			k := store.Key{Scope: s.Scope, Name: s.Key, SessionID: s.Session, ID: s.ID}
			return keyPlace(&k), [4]string{s.Scope, s.Key, s.Session, s.ID}
		},
	}
	names := rapid.SampledFrom([]string{"record", "row", "shared", "key"})
	rapid.Check(t, func(t *rapid.T) {
		from, to := names.Draw(t, "from"), names.Draw(t, "to")
		a, idA := places[from](draw.Draw(t, "a"))
		b, idB := places[to](draw.Draw(t, "b"))
		key, err := r.take(context.Background(), 1)
		if err != nil {
			t.Fatal(err)
		}
		value := rapid.SliceOf(rapid.Byte()).Draw(t, "value")
		sealed := key.seal(a, value)
		got, err := r.open(context.Background(), b, sealed)
		if from == to && idA == idB {
			if err != nil || !bytes.Equal(got, value) {
				t.Fatalf("its own place: %q, %v", got, err)
			}
			return
		}
		if !errors.Is(err, store.ErrDamaged) {
			t.Fatalf("%s %q opens as %s %q: %v", from, a, to, b, err)
		}
		sealed[rapid.IntRange(len(magic), len(sealed)-1).Draw(t, "at")] ^= 1
		if _, err := r.open(context.Background(), a, sealed); !errors.Is(err, store.ErrDamaged) {
			t.Fatalf("a changed value opens: %v", err)
		}
	})
}

// Values that are swapped between rows of the database are damaged ones, and nothing else is.
func TestSwapped(t *testing.T) {
	s := openAt(t, t.TempDir())
	defer closed(t, s)
	for _, id := range []string{"x", "y", "z"} {
		add(t, s, filled(id))
	}
	inner, _ := s.Store.(*sqlite.Store)
	swaps := map[string]string{
		// The sum is that of the record, which a swap of whole records would not change; NULL is none.
		"records": `UPDATE records SET sum = NULL, data = (SELECT data FROM records WHERE session_id = 'y' AND seq = 1)
			WHERE session_id = 'x' AND seq = 1`,
		"entries": `UPDATE entries SET data = (SELECT data FROM entries WHERE session_id = 'y') WHERE session_id = 'x'`,
		"keys":    `UPDATE keys SET content = (SELECT content FROM keys WHERE name = 'k-y') WHERE name = 'k-x'`,
		"shared":  `UPDATE shared SET value = (SELECT value FROM shared WHERE key = 'k-y') WHERE key = 'k-x'`,
	}
	for _, name := range []string{"records", "entries", "keys", "shared"} {
		execute(t, inner, swaps[name])
		var err error
		switch name {
		case "records":
			_, err = s.Read(t.Context(), "x", 0, 10)
		case "entries":
			_, err = s.Row(t.Context(), store.RowTurn, "x", "t")
		case "keys":
			_, err = s.Key(t.Context(), "s", "k-x")
		case "shared": // which are kept in memory until a write
			if err = s.SetShared(t.Context(), []store.SharedValue{{Scope: "other", Key: "k", Value: []byte("1")}}); err == nil {
				_, err = s.Shared(t.Context(), "app")
			}
		}
		if !errors.Is(err, store.ErrDamaged) {
			t.Errorf("%s: the error is %v, want %v", name, err, store.ErrDamaged)
		}
		if name == "records" {
			if err := s.Fork(t.Context(), store.Fork{From: "x", Seq: 2, Into: store.NewSession{ID: "f", CreatedAt: at}}); !errors.Is(err, store.ErrDamaged) {
				t.Errorf("a fork of a damaged log: %v, want %v", err, store.ErrDamaged)
			}
		}
		if name != "shared" { // which are of all sessions
			wantFilled(t, s, "z")
		}
	}
	add(t, s, filled("more")) // the store goes on
}

func execute(t testing.TB, s *sqlite.Store, query string) {
	t.Helper()
	err := s.Transact(t.Context(), func(ctx context.Context, c *sqlConn) error {
		_, err := c.ExecContext(ctx, query)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
