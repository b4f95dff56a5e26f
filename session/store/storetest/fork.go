package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

var batchTests = []test{
	{"Append/Creates", func(t *testing.T, s store.Store) {
		b := batch("a", started(1, "t"), events(1, 1)[0])
		n := fresh("a")
		n.Labels, n.ClientRef = map[string]string{"k": "v"}, "ref"
		b.Create, b.Rows = &n, []store.Row{row(turnRow, "a", "t", 1, "runs")}
		b.Usage, b.LastTurn, b.LastStatus = record.Usage{Total: 1}, "t", "runs"
		b.Key = &store.Key{Scope: "s", Name: "k", Content: "c", SessionID: "a", ID: "t"}
		b.Shared = []store.SharedValue{{Scope: "app", Key: "k", Value: []byte(`1`)}}
		add(t, s, b)
		want := infoOf("a", func(i *store.Info) {
			i.LastSeq, i.OpenTurn, i.UpdatedAt, i.Labels, i.ClientRef = 2, "t", b.Records[1].Time, n.Labels, "ref"
			i.Usage, i.LastTurn, i.LastStatus = b.Usage, "t", "runs"
		})
		whole := func() {
			t.Helper()
			wantInfo(t, s, want)
			wantLog(t, s, "a", b.Records)
			wantRow(t, s, b.Rows[0])
			wantKey(t, s, *b.Key)
			wantShared(t, s, "app", map[string]string{"k": "1"})
		}
		whole()
		again := b
		again.Rows = []store.Row{row(turnRow, "a", "t", 1, "over")}
		again.Usage, again.LastTurn, again.LastStatus = record.Usage{Total: 9}, "u", "over"
		again.Shared = []store.SharedValue{{Scope: "app", Key: "k", Value: []byte(`2`)}}
		again.Create = new(fresh("a"))
		add(t, s, again) // a repeat
		whole()
		more := batch("a", ended(3, "t"))
		more.Usage, more.LastTurn, more.LastStatus = b.Usage, "t", "runs"
		add(t, s, more)
		add(t, s, b) // the log has gone on
		want.LastSeq, want.OpenTurn, want.UpdatedAt = 3, "", epoch
		wantInfo(t, s, want)
		other := b
		other.Records = []record.Record{started(1, "u")}
		wantNamed(t, "Append that makes a session of another log", s.Append(t.Context(), other), store.ErrSessionExists)
		wantInfo(t, s, want)
	}},
	{"Append/CreatesNothing", func(t *testing.T, s store.Store) {
		create(t, s, "empty")
		key := &store.Key{Scope: "s", Name: "k", SessionID: "named"}
		if err := s.Create(t.Context(), fresh("named"), key); err != nil {
			t.Fatalf("Create: %v", err)
		}
		fill := func(id string, recs ...record.Record) store.Batch {
			b := batch(id, recs...)
			b.Create, b.Rows = new(fresh(id)), []store.Row{row(turnRow, id, "t", 1, "runs")}
			b.Shared = []store.SharedValue{{Scope: "app", Key: "k", Value: []byte(`1`)}}
			return b
		}
		taken := fill("a", started(1, "t"))
		taken.Key = &store.Key{Scope: "s", Name: "k", SessionID: "a"}
		another, nameless := fill("a", started(1, "t")), fill("", started(1, "t"))
		another.Create.ID = "b"
		labelled := fill("a", started(1, "t"))
		labelled.Create.Labels = map[string]string{"": "v"}
		for what, c := range map[string]struct {
			b    store.Batch
			want error
		}{
			"whose key is taken":         {taken, store.ErrKeyTaken},
			"that there is":              {fill("empty", started(1, "t")), store.ErrSessionExists},
			"of another id":              {another, store.ErrMalformed},
			"without an id":              {nameless, store.ErrMalformed},
			"with a label without a key": {labelled, store.ErrMalformed},
			"after records":              {fill("a", events(1, 1)...), store.ErrMalformed},
			"that ends a turn":           {fill("a", ended(1, "t")), store.ErrMalformed},
		} {
			wantNamed(t, "Append that makes a session "+what, s.Append(t.Context(), c.b), c.want)
			wantSessions(t, s, store.InfoQuery{}, "named", "empty")
			wantInfo(t, s, infoOf("empty", nil))
			wantRows(t, s, store.RowQuery{Kind: turnRow})
			wantShared(t, s, "app", nil)
		}
	}},
}

// parent makes session "a" with a log of n events in a turn that is over, rows, labels and a key, and
// returns its log.
func parent(t testing.TB, s store.Store, n int) []record.Record {
	t.Helper()
	log := slices.Concat([]record.Record{started(1, "t")}, events(1, n), []record.Record{ended(int64(n)+2, "t")})
	for i := range log[1 : n+1] {
		log[1+i].Data = []byte{byte(i), 0, 0xff}
	}
	b := batch("a", log...)
	made := fresh("a")
	made.Labels, made.ClientRef = map[string]string{"k": "v"}, "ref"
	made.Budget = record.Budget{Tokens: 9}
	b.Create, b.Key = &made, &store.Key{Scope: "s", Name: "parent", SessionID: "a"}
	b.Rows = []store.Row{row(turnRow, "a", "t", 1, "over"), row(askRow, "a", "i", 2, "asks")}
	b.Usage, b.LastTurn, b.LastStatus = record.Usage{Total: 7}, "t", "over"
	b.Shared = []store.SharedValue{{Scope: "app", Key: "k", Value: []byte(`1`)}}
	add(t, s, b)
	return log
}

// forkOf returns a fork of "a" that is made an hour later.
func forkOf(into string, seq int64) store.Fork {
	n := fresh(into)
	n.CreatedAt = epoch.Add(time.Hour)
	return store.Fork{From: "a", Seq: seq, At: seq, Into: n}
}

func mustFork(t testing.TB, s store.Store, f store.Fork) {
	t.Helper()
	if err := s.Fork(t.Context(), f); err != nil {
		t.Fatalf("Fork(%q at %d into %q): %v", f.From, f.Seq, f.Into.ID, err)
	}
}

func forkInfo(f store.Fork) store.Info {
	return store.Info{
		Head: store.Head{
			ID:        f.Into.ID,
			CreatedAt: f.Into.CreatedAt,
			UpdatedAt: f.Into.CreatedAt,
			LastSeq:   f.Seq,
			OpenTurn:  f.OpenTurn,
		},
		Creator:    f.Into.Creator,
		Labels:     f.Into.Labels,
		ClientRef:  f.Into.ClientRef,
		Budget:     f.Into.Budget,
		Version:    1,
		LastTurn:   f.LastTurn,
		LastStatus: f.LastStatus,
		ForkedFrom: f.From,
		ForkedAt:   f.At,
		Inherited:  f.Seq,
	}
}

var forkTests = []test{
	{"Fork/Recodes", func(t *testing.T, s store.Store) {
		log := parent(t, s, 40)
		f := forkOf("b", 41)
		f.Recode = func(r *record.Record) error {
			r.Data = append([]byte{byte(r.Seq)}, r.Data...)
			return nil
		}
		mustFork(t, s, f)
		want := slices.Clone(log[:41])
		for i := range want {
			want[i].Data = append([]byte{byte(want[i].Seq)}, want[i].Data...)
		}
		wantRecords(t, all(t, s, "b"), want)
		wantInfo(t, s, forkInfo(f))
		wantRecords(t, all(t, s, "a"), log)
	}},
	{"Fork/CannotRecode", func(t *testing.T, s store.Store) {
		log := parent(t, s, 40)
		f := forkOf("b", 41)
		f.Rows = []store.Row{row(turnRow, "b", "t", 1, "over")}
		f.Key = &store.Key{Scope: "s", Name: "k", SessionID: "b"}
		f.Recode = func(r *record.Record) error {
			if r.Seq == 30 {
				return store.ErrDamaged
			}
			return nil
		}
		wantNamed(t, "Fork of a record that cannot be changed", s.Fork(t.Context(), f), store.ErrDamaged)
		wantSessions(t, s, store.InfoQuery{}, "a")
		wantRows(t, s, store.RowQuery{Kind: turnRow, SessionID: "b"})
		wantNoKey(t, s, "s", "k")
		f.Recode = nil
		mustFork(t, s, f)
		wantRecords(t, all(t, s, "b"), log[:41])
	}},
	{"Fork/InheritsTheLog", func(t *testing.T, s store.Store) {
		log := parent(t, s, 50)
		before, err := s.Info(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		for i, seq := range []int64{1, 2, 15, 16, 17, 32, 33, 51, 52} {
			f := forkOf("f"+string(rune('a'+i)), seq)
			f.At = seq + 1<<40
			f.Into.Labels, f.Into.ClientRef = map[string]string{"fork": "yes"}, "forked"
			f.Into.Budget = record.Budget{ModelCalls: int64(i)}
			f.Rows = []store.Row{row(turnRow, f.Into.ID, "t", 1, "stopped")}
			f.LastTurn, f.LastStatus, f.OpenTurn = "t", "stopped", []string{"t", ""}[i%2]
			f.Key = &store.Key{Scope: "s", Name: f.Into.ID, SessionID: f.Into.ID}
			mustFork(t, s, f)
			wantInfo(t, s, forkInfo(f))
			wantRecords(t, all(t, s, f.Into.ID), log[:seq])
			wantRows(t, s, store.RowQuery{Kind: turnRow, SessionID: f.Into.ID}, f.Rows...)
			wantNoRow(t, s, askRow, f.Into.ID, "i")
			wantKey(t, s, *f.Key)
		}
		wantInfo(t, s, before)
		wantLog(t, s, "a", log)
		wantRow(t, s, row(turnRow, "a", "t", 1, "over"))
		wantKey(t, s, store.Key{Scope: "s", Name: "parent", SessionID: "a"})
		wantShared(t, s, "app", map[string]string{"k": "1"})
	}},
	{"Fork/GoesItsOwnWay", func(t *testing.T, s store.Store) {
		log := parent(t, s, 2)
		f := forkOf("f", 2)
		f.OpenTurn = "t"
		mustFork(t, s, f)
		more := []record.Record{ended(3, "t"), started(4, "u"), ended(5, "u")}
		add(t, s, batch("f", more...))
		add(t, s, batch("f", more...))
		add(t, s, batch("a", events(4, 1)...))
		wantRecords(t, all(t, s, "f"), append(slices.Clone(log[:2]), more...))
		wantLog(t, s, "a", append(slices.Clone(log), events(4, 1)...))
		second := forkOf("g", 4)
		second.From, second.OpenTurn = "f", "u"
		mustFork(t, s, second)
		wantInfo(t, s, forkInfo(second))
		wantRecords(t, all(t, s, "g"), append(slices.Clone(log[:2]), more[:2]...))
		// Nothing that happens to the one it comes from matters any more.
		if err := s.Delete(t.Context(), "a", 5); err != nil {
			t.Fatalf("Delete: %v", err)
		}
		if err := s.Purge(t.Context(), "f", 5); err != nil {
			t.Fatalf("Purge: %v", err)
		}
		wantRecords(t, all(t, s, "g"), append(slices.Clone(log[:2]), more[:2]...))
		wantInfo(t, s, forkInfo(second))
	}},
	{"Fork/OfNothing", func(t *testing.T, s store.Store) {
		parent(t, s, 2)
		f := forkOf("f", 0)
		mustFork(t, s, f)
		wantInfo(t, s, forkInfo(f))
		wantRecords(t, all(t, s, "f"), nil)
		add(t, s, batch("f", events(0, 3)...))
		wantRecords(t, all(t, s, "f"), events(0, 3))
		if err := s.Purge(t.Context(), "a", 4); err != nil {
			t.Fatalf("Purge: %v", err)
		}
		mustFork(t, s, forkOf("g", 0)) // needs no record
	}},
	{"Fork/Refused", func(t *testing.T, s store.Store) {
		log := parent(t, s, 2)
		create(t, s, "b", "purged")
		add(t, s, batch("purged", events(0, 3)...))
		if err := s.Purge(t.Context(), "purged", 3); err != nil {
			t.Fatalf("Purge: %v", err)
		}
		add(t, s, batch("purged", events(3, 3)...))
		change := func(f func(*store.Fork)) store.Fork {
			out := forkOf("f", 2)
			out.Rows = []store.Row{row(turnRow, "f", "t", 1, "stopped")}
			f(&out)
			return out
		}
		for what, c := range map[string]struct {
			f    store.Fork
			want error
		}{
			"of no session":        {change(func(f *store.Fork) { f.From = "c" }), store.ErrNoSession},
			"of a session unnamed": {change(func(f *store.Fork) { f.From = "" }), store.ErrNoSession},
			"of itself":            {change(func(f *store.Fork) { f.From = "f" }), store.ErrNoSession},
			"of what is to come":   {change(func(f *store.Fork) { f.Seq = 5 }), store.ErrConflict},
			"of what is gone":      {change(func(f *store.Fork) { f.From, f.Seq = "purged", 5 }), store.ErrConflict},
			"into one there is": {change(func(f *store.Fork) {
				f.Into.ID, f.Rows = "b", nil
			}), store.ErrSessionExists},
			"into itself": {change(func(f *store.Fork) {
				f.Into.ID, f.Rows = "a", nil
			}), store.ErrSessionExists},
			"into no name":  {change(func(f *store.Fork) { f.Into.ID, f.Rows = "", nil }), store.ErrMalformed},
			"below the log": {change(func(f *store.Fork) { f.Seq = -1 }), store.ErrMalformed},
			"with an empty label": {change(func(f *store.Fork) {
				f.Into.Labels = map[string]string{"": "x"}
			}), store.ErrMalformed},
			"under a taken key": {change(func(f *store.Fork) {
				f.Key = &store.Key{Scope: "s", Name: "parent", SessionID: "f"}
			}), store.ErrKeyTaken},
		} {
			wantNamed(t, "Fork "+what, s.Fork(t.Context(), c.f), c.want)
			wantSessions(t, s, store.InfoQuery{}, "purged", "b", "a")
			wantLog(t, s, "a", log)
			wantInfo(t, s, infoOf("b", nil))
		}
		mustFork(t, s, forkOf("f", 2))
		// What has happened is known by the new session, whatever becomes of the old one.
		if err := s.Delete(t.Context(), "a", 4); err != nil {
			t.Fatalf("Delete: %v", err)
		}
		wantNamed(t, "the same Fork again", s.Fork(t.Context(), forkOf("f", 2)), store.ErrSessionExists)
	}},
	{"Delete/TakesAll", func(t *testing.T, s store.Store) {
		parent(t, s, 2)
		b := withRows("b", 1, row(turnRow, "b", "t", 1, "over"))
		b.Create, b.Key = new(fresh("b")), &store.Key{Scope: "s", Name: "b", SessionID: "b"}
		b.Create.Labels = map[string]string{"k": "v"}
		add(t, s, b)
		wantNamed(t, "Delete of a log that has moved on", s.Delete(t.Context(), "a", 3), store.ErrConflict)
		wantNamed(t, "Delete of what is to come", s.Delete(t.Context(), "a", 5), store.ErrConflict)
		wantSessions(t, s, store.InfoQuery{}, "b", "a")
		wantRow(t, s, row(turnRow, "a", "t", 1, "over"))
		if err := s.Delete(t.Context(), "a", 4); err != nil {
			t.Fatalf("Delete: %v", err)
		}
		gone := func() {
			t.Helper()
			wantNamed(t, "second Delete", s.Delete(t.Context(), "a", 4), store.ErrNoSession)
			_, err := s.Info(t.Context(), "a")
			wantNamed(t, "Info", err, store.ErrNoSession)
			_, err = s.Read(t.Context(), "a", 0, 10)
			wantNamed(t, "Read", err, store.ErrNoSession)
			wantNamed(t, "Append", s.Append(t.Context(), batch("a", events(4, 1)...)), store.ErrNoSession)
			wantNoRow(t, s, turnRow, "a", "t")
			wantNoRow(t, s, askRow, "a", "i")
			wantNoKey(t, s, "s", "parent")
		}
		gone()
		wantSessions(t, s, store.InfoQuery{Labels: map[string]string{"k": "v"}}, "b")
		wantSessions(t, s, store.InfoQuery{ClientRef: "ref"})
		wantRows(t, s, store.RowQuery{Kind: turnRow}, row(turnRow, "b", "t", 1, "over"))
		wantKey(t, s, *b.Key)
		wantRecords(t, all(t, s, "b"), events(0, 1))
		wantShared(t, s, "app", map[string]string{"k": "1"})
		// The id and the key are free, and nothing comes back.
		key := &store.Key{Scope: "s", Name: "parent", SessionID: "a"}
		if err := s.Create(t.Context(), fresh("a"), key); err != nil {
			t.Fatalf("Create of an id that was deleted: %v", err)
		}
		wantInfo(t, s, infoOf("a", nil))
		wantLog(t, s, "a", nil)
		wantNoRow(t, s, turnRow, "a", "t")
	}},
	{"Delete/WhateverItsState", func(t *testing.T, s store.Store) {
		create(t, s, "empty", "open", "purged", "unknown")
		add(t, s, batch("open", started(1, "t")))
		add(t, s, batch("purged", events(0, 2)...))
		if err := s.Purge(t.Context(), "purged", 2); err != nil {
			t.Fatalf("Purge: %v", err)
		}
		for id, last := range map[string]int64{"empty": 0, "open": 1, "purged": 2} {
			if err := s.Delete(t.Context(), id, last); err != nil {
				t.Fatalf("Delete(%q): %v", id, err)
			}
		}
		wantSessions(t, s, store.InfoQuery{}, "unknown")
		wantOpen(t, s, "", 10)
	}},
}
