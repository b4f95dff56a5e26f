package storetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// eventLog is a store that has the table of events.
type eventLog interface {
	Events(ctx context.Context, q store.EventQuery) ([]store.Event, error)
	LastEvent(ctx context.Context) (int64, error)
}

// eventLogOf returns the event log of a store.
func eventLogOf(t testing.TB, s store.Store) eventLog {
	t.Helper()
	log, ok := s.(eventLog)
	if !ok {
		t.Fatalf("%T has no event log", s)
	}
	return log
}

// logged returns an append with an event for each of its records, on a branch and of an author.
func logged(id, branch, author string, recs ...record.Record) store.Batch {
	b := batch(id, recs...)
	for i := range recs {
		r := &recs[i]
		b.Events = append(b.Events, store.Event{
			Seq: r.Seq, ID: fmt.Sprintf("%s#%d", id, r.Seq), App: "app", SessionID: id, Branch: branch, Author: author,
			Time: r.Time, Invocation: r.TurnID, Metadata: "{}",
		})
	}
	return b
}

// eventsOf returns all events that match q, page by page, and checks that their numbers rise.
func eventsOf(t testing.TB, log eventLog, q store.EventQuery) []store.Event {
	t.Helper()
	var all []store.Event
	for q.Limit = 7; ; {
		page, err := log.Events(t.Context(), q)
		if err != nil {
			t.Fatalf("Events after %d: %v", q.After, err)
		}
		for i := range page {
			if page[i].Number <= q.After {
				t.Fatalf("event %d stands behind %d", page[i].Number, q.After)
			}
			q.After = page[i].Number
		}
		if all = append(all, page...); len(page) < q.Limit {
			return all
		}
	}
}

// wantEvents compares the ids of events.
func wantEvents(t testing.TB, log eventLog, q store.EventQuery, want ...string) {
	t.Helper()
	var got []string
	for _, e := range eventsOf(t, log, q) {
		got = append(got, e.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("events of %+v (-want +got):\n%s", q, diff)
	}
}

var eventLogTests = []test{
	{"Events/Row", func(t *testing.T, s store.Store) {
		log := eventLogOf(t, s)
		create(t, s, "acme/a")
		rec := events(0, 1)[0]
		rec.Time = rec.Time.Add(999 * time.Nanosecond)
		b := batch("acme/a", rec)
		want := store.Event{
			Seq: 1, ID: "acme/a#1#x", App: "app", SessionID: "acme/a:sub:b", Branch: "b", Author: `o'brien "é"`,
			Time: rec.Time, Invocation: "turn", Metadata: `{"goal": "a\u0000b", "turn": 2}`,
		}
		b.Events = []store.Event{want}
		add(t, s, b)
		got := eventsOf(t, log, store.EventQuery{})
		if len(got) != 1 || got[0].Number <= 0 {
			t.Fatalf("got %+v, want one event", got)
		}
		last, err := log.LastEvent(t.Context())
		if err != nil || last != got[0].Number {
			t.Errorf("LastEvent() = %d, %v, want %d", last, err, got[0].Number)
		}
		want.Number, want.Seq, want.User = got[0].Number, 0, "somebody"
		want.Time = want.Time.Truncate(time.Microsecond)
		if diff := cmp.Diff(want, got[0]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}},
	{"Events/Filters", func(t *testing.T, s store.Store) {
		log := eventLogOf(t, s)
		create(t, s, "a", "a:sub:bg.x", "a:sub:bg.x:sub:bg.y", "a2", "t/a", "t/b", "t2/a")
		for i, b := range []store.Batch{
			logged("a", "", "user", events(0, 2)...),
			logged("a:sub:bg.x", "bg.x", "user", events(0, 1)...),
			logged("a:sub:bg.x:sub:bg.y", "bg.x.bg.y", "m", events(0, 1)...),
			logged("a2", "bgnot", "m", events(0, 1)...),
			logged("t/a", "b%d", "m", events(0, 9)...),
			logged("t/b", "b_g", "user", events(0, 1)...),
			logged("t2/a", "", "user", events(0, 1)...),
		} {
			if i%2 == 0 {
				add(t, s, b)
			} else if errs := s.AppendMany(t.Context(), []store.Batch{b}); errs[0] != nil {
				t.Fatal(errs[0])
			}
		}
		none, acme := "", "t"
		wantEvents(t, log, store.EventQuery{SessionID: "a"}, "a#1", "a#2")
		wantEvents(t, log, store.EventQuery{SessionID: "a", Tree: true},
			"a#1", "a#2", "a:sub:bg.x#1", "a:sub:bg.x:sub:bg.y#1")
		wantEvents(t, log, store.EventQuery{SessionID: "a:sub:bg.x", Tree: true},
			"a:sub:bg.x#1", "a:sub:bg.x:sub:bg.y#1")
		wantEvents(t, log, store.EventQuery{BranchPrefix: "bg."}, "a:sub:bg.x#1", "a:sub:bg.x:sub:bg.y#1")
		wantEvents(t, log, store.EventQuery{BranchPrefix: "b_"}, "t/b#1")
		wantEvents(t, log, store.EventQuery{BranchPrefix: "b%", Author: "user"})
		wantEvents(t, log, store.EventQuery{Tenant: &none, Author: "m"}, "a:sub:bg.x:sub:bg.y#1", "a2#1")
		wantEvents(t, log, store.EventQuery{Tenant: &acme, Author: "user"}, "t/b#1")
		if n := len(eventsOf(t, log, store.EventQuery{})); n != 16 {
			t.Errorf("%d events in all, want 16", n)
		}
		if _, err := log.Events(t.Context(), store.EventQuery{}); err == nil {
			t.Error("a query without a limit was taken")
		}
	}},
	{"Events/Repeat", func(t *testing.T, s store.Store) {
		log := eventLogOf(t, s)
		create(t, s, "a")
		b := logged("a", "", "user", events(0, 2)...)
		add(t, s, b)
		add(t, s, b)
		more := logged("a", "", "user", events(2, 1)...)
		more.Events = append(more.Events, b.Events[0]) // of an id that the table has
		more.Events[1].Seq, more.Events[1].Author = 3, "other"
		add(t, s, more)
		wantEvents(t, log, store.EventQuery{}, "a#1", "a#2", "a#3")
		wantEvents(t, log, store.EventQuery{Author: "other"})
	}},
	{"Events/Refused", func(t *testing.T, s store.Store) {
		log := eventLogOf(t, s)
		create(t, s, "a", "b")
		add(t, s, batch("a", events(0, 1)...))
		far := logged("a", "", "user", events(7, 1)...)
		wantErr(t, "Append at a distance", s.Append(t.Context(), far), store.ErrConflict)
		other := logged("a", "", "user", events(0, 1)...)
		other.Records[0].Data = []byte(`"other"`)
		wantErr(t, "Append of another record", s.Append(t.Context(), other), store.ErrConflict)
		errs := s.AppendMany(t.Context(), []store.Batch{other, logged("b", "", "user", events(0, 1)...)})
		wantErr(t, "one of two", errs[0], store.ErrConflict)
		if errs[1] != nil {
			t.Fatal(errs[1])
		}
		for name, spoil := range map[string]func(*store.Event){
			"another session's id": func(e *store.Event) { e.ID = "b#1" },
			"no id":                func(e *store.Event) { e.ID = "" },
			"no session":           func(e *store.Event) { e.SessionID = "" },
			"no application":       func(e *store.Event) { e.App = "" },
			"no author":            func(e *store.Event) { e.Author = "" },
			"another record":       func(e *store.Event) { e.Seq = 1 },
			"no JSON":              func(e *store.Event) { e.Metadata = "{" },
			"no object":            func(e *store.Event) { e.Metadata = "1" },
		} {
			b := logged("a", "", "user", events(1, 1)...)
			spoil(&b.Events[0])
			wantRefused(t, name, s.Append(t.Context(), b))
		}
		wantEvents(t, log, store.EventQuery{}, "b#1")
	}},
	{"Events/GoWithTheirSession", func(t *testing.T, s store.Store) {
		log := eventLogOf(t, s)
		create(t, s, "a", "a%", "a:sub:b", "b")
		for _, id := range []string{"a", "a%", "a:sub:b", "b"} {
			add(t, s, logged(id, "", "user", events(0, 2)...))
		}
		child := logged("a", "c", "m", events(2, 1)...) // of a child that is in the log of its parent
		child.Events[0].SessionID = "a:sub:c"
		add(t, s, child)
		if err := s.Purge(t.Context(), "b", 2); err != nil {
			t.Fatal(err)
		}
		add(t, s, logged("b", "", "user", events(2, 1)...))
		if err := s.Delete(t.Context(), "a", 3); err != nil {
			t.Fatal(err)
		}
		wantEvents(t, log, store.EventQuery{}, "a%#1", "a%#2", "a:sub:b#1", "a:sub:b#2", "b#3")
		create(t, s, "a")
		add(t, s, logged("a", "", "user", events(0, 1)...)) // another session of that id
		wantEvents(t, log, store.EventQuery{SessionID: "a"}, "a#1")
	}},
	{"Events/ForkCopiesNone", func(t *testing.T, s store.Store) {
		log := eventLogOf(t, s)
		create(t, s, "a")
		add(t, s, logged("a", "", "user", events(0, 2)...))
		if err := s.Fork(t.Context(), store.Fork{From: "a", Seq: 2, Into: fresh("f")}); err != nil {
			t.Fatal(err)
		}
		add(t, s, logged("f", "", "user", events(2, 1)...))
		wantEvents(t, log, store.EventQuery{SessionID: "f"}, "f#3")
	}},
	{"Events/AllWaysToAppend", func(t *testing.T, s store.Store) {
		log := eventLogOf(t, s)
		create(t, s, "a")
		b := logged("a", "", "user", events(0, 1)...)
		b.Shared = []store.SharedValue{{Scope: "app", Key: "k", Value: []byte("1")}}
		add(t, s, b)
		b = logged("a", "", "user", events(1, 1)...)
		b.Rewrites = events(0, 1)
		add(t, s, spending(b, "acme", 20, 5, 7))
		add(t, s, spending(logged("a", "", "user", events(2, 1)...), "acme", 20, 5, 7))
		b = logged("n", "", "user", events(0, 1)...)
		b.Create, b.Key = new(fresh("n")), &store.Key{Scope: "s", Name: "k", SessionID: "n"}
		add(t, s, b)
		b = logged("m", "", "user", events(0, 1)...)
		b.Create, b.Key = new(fresh("m")), &store.Key{Scope: "s", Name: "k2", SessionID: "m"}
		add(t, s, spending(b, "acme", 20, 5, 7))
		wantEvents(t, log, store.EventQuery{}, "a#1", "a#2", "a#3", "n#1", "m#1")
	}},
	{"Events/NoneIsMissed", func(t *testing.T, s store.Store) { noEventIsMissed(t, s, s) }},
}

// noEventIsMissed appends to many sessions at once, by two stores on one database, while a reader reads behind the last
// number that it has seen, and checks that it sees each event once, those of a session in their order.
func noEventIsMissed(t *testing.T, a, b store.Store) {
	log := eventLogOf(t, b)
	const sessions, appends = 24, 25
	ids := make([]string, sessions)
	for i := range ids {
		ids[i] = fmt.Sprintf("s%d", i)
	}
	create(t, a, ids...)
	var writers sync.WaitGroup
	over := make(chan struct{})
	for i, id := range ids {
		s := a
		if i%2 == 1 {
			s = b
		}
		writers.Go(func() {
			for n := range int64(appends) {
				next := logged(id, "", "m", events(2*n, 2)...)
				if n%5 == 4 { // these go alone
					next.Shared = []store.SharedValue{{Scope: "user:" + id, Key: "k", Value: []byte("1")}}
				}
				if n%3 == 0 {
					next = spending(next, "acme", 20, 1, 1)
				}
				if err := s.Append(t.Context(), next); err != nil {
					t.Errorf("Append(%q): %v", id, err)
					return
				}
			}
		})
	}
	go func() {
		defer close(over)
		writers.Wait()
	}()
	last, seen := int64(0), map[string]int64{}
	for done := false; ; {
		select {
		case <-over:
			done = true // what follows reads all that is left
		default:
		}
		page := eventsOf(t, log, store.EventQuery{After: last})
		for i := range page {
			e := &page[i]
			id, seq, _ := strings.Cut(e.ID, "#")
			if seen[id]++; seq != fmt.Sprint(seen[id]) {
				t.Errorf("event %s of session %q is number %d", seq, id, seen[id])
			}
			last = e.Number
		}
		if done {
			break
		}
	}
	for _, id := range ids {
		if seen[id] != 2*appends {
			t.Errorf("%d events of session %q were seen, want %d", seen[id], id, 2*appends)
		}
	}
}
