package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// epoch is when the suite's sessions were made.
var epoch = time.Date(2031, 2, 3, 4, 5, 6, 789012000, time.UTC)

// pageSize is how many records all reads at a time, so that it pages.
const pageSize = 777

// fresh is a session that the suite makes.
func fresh(id string) store.NewSession {
	return store.NewSession{ID: id, CreatedAt: epoch, Creator: "somebody"}
}

func create(t testing.TB, s store.Store, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := s.Create(t.Context(), fresh(id), nil); err != nil {
			t.Fatalf("Create(%q): %v", id, err)
		}
	}
}

// events returns n records that follow after.
func events(after int64, n int) []record.Record {
	recs := make([]record.Record, n)
	for i := range recs {
		seq := after + int64(i) + 1
		recs[i] = record.Record{
			Seq: seq, TurnID: "turn", Kind: record.KindEvent,
			Time: epoch.Add(time.Duration(seq) * time.Millisecond),
			Data: fmt.Appendf(nil, `{"n":%d}`, seq),
		}
	}
	return recs
}

// batch returns an append of recs. Their first sequence number says where the log ends.
func batch(id string, recs ...record.Record) store.Batch {
	return store.Batch{SessionID: id, After: recs[0].Seq - 1, Records: recs}
}

func started(seq int64, turn string) record.Record {
	return record.Record{Seq: seq, TurnID: turn, Kind: record.KindTurnStarted, Time: epoch, Data: []byte(`{}`)}
}

func ended(seq int64, turn string) record.Record {
	return record.Record{Seq: seq, TurnID: turn, Kind: record.KindTurnEnded, Time: epoch, Data: []byte(`{}`)}
}

func add(t testing.TB, s store.Store, b store.Batch) {
	t.Helper()
	if err := s.Append(t.Context(), b); err != nil {
		t.Fatalf("Append(%q after %d): %v", b.SessionID, b.After, err)
	}
}

// all reads a whole log in pages and checks that each is full but the last.
func all(t testing.TB, s store.Store, id string) []record.Record {
	t.Helper()
	var log []record.Record
	for {
		page, err := s.Read(t.Context(), id, int64(len(log)), pageSize)
		if err != nil {
			t.Fatalf("Read(%q after %d): %v", id, len(log), err)
		}
		if len(page) > pageSize {
			t.Fatalf("Read(%q after %d) returned %d records, the limit is %d", id, len(log), len(page), pageSize)
		}
		log = append(log, page...)
		if store.LastPage(page, pageSize) {
			return log
		}
	}
}

// wantLog checks the whole log of a session and that its head agrees.
func wantLog(t testing.TB, s store.Store, id string, want []record.Record) {
	t.Helper()
	wantRecords(t, all(t, s, id), want)
	open := ""
	for _, r := range want {
		switch r.Kind {
		case record.KindTurnStarted:
			open = r.TurnID
		case record.KindTurnEnded:
			open = ""
		default:
			// No other kind starts or ends a turn.
		}
	}
	updated := epoch
	if n := len(want); n > 0 {
		updated = want[n-1].Time.UTC().Truncate(time.Microsecond)
	}
	wantHead(t, s, store.Head{ID: id, CreatedAt: epoch, LastSeq: int64(len(want)), OpenTurn: open, UpdatedAt: updated})
}

func wantHead(t testing.TB, s store.Store, want store.Head) {
	t.Helper()
	got, err := s.Head(t.Context(), want.ID)
	if err != nil || got != want {
		t.Fatalf("Head(%q) = %+v, %v, want %+v", want.ID, got, err, want)
	}
}

// wantRecords compares up to the precision that is promised.
func wantRecords(t testing.TB, got, want []record.Record) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d records, want %d", len(got), len(want))
	}
	for i := range want {
		if !same(got[i], want[i]) {
			t.Fatalf("record at place %d is\n%s, want\n%s", i, show(got[i]), show(want[i]))
		}
	}
}

// same reports whether got is what a store returns for want. A time is in UTC and cut to the microsecond,
// not rounded.
func same(got, want record.Record) bool {
	return got.Seq == want.Seq && got.TurnID == want.TurnID && got.Kind == want.Kind &&
		got.Time.Equal(want.Time.Truncate(time.Microsecond)) && got.Time.Location() == time.UTC &&
		bytes.Equal(got.Data, want.Data)
}

// show cuts long data.
func show(r record.Record) string {
	data := r.Data[:min(len(r.Data), 64)]
	return fmt.Sprintf("{seq %d, turn %q, kind %q, time %v, %d bytes of data %q}",
		r.Seq, r.TurnID, r.Kind, r.Time, len(r.Data), data)
}

func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: error is %v, want %v", what, err, want)
	}
}

// wantRefused checks that an error is ErrMalformed alone.
func wantRefused(t testing.TB, what string, err error) {
	t.Helper()
	wantNamed(t, what, err, store.ErrMalformed)
}

// wantNamed checks that an error is one of package store's and no other one.
func wantNamed(t testing.TB, what string, err, want error) {
	t.Helper()
	wantErr(t, what, err, want)
	for _, other := range []error{
		store.ErrConflict, store.ErrFenced, store.ErrNoSession, store.ErrSessionExists, store.ErrMalformed,
		store.ErrFull, store.ErrFailed, store.ErrKeyTaken, store.ErrNotFound,
	} {
		if errors.Is(err, other) && !errors.Is(want, other) {
			t.Fatalf("%s: error is %v, want %v alone", what, err, want)
		}
	}
}

// sameRow reports whether got is what a store returns for want.
func sameRow(got, want store.Row) bool {
	data, location := bytes.Equal(got.Data, want.Data), got.CreatedAt.Location() == time.UTC
	equal := got.CreatedAt.Equal(micro(want.CreatedAt))
	got.Data, want.Data, got.CreatedAt, want.CreatedAt = nil, nil, time.Time{}, time.Time{}
	return data && location && equal && reflect.DeepEqual(got, want)
}
