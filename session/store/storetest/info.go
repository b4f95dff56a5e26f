package storetest

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// infoOf returns what is known of a session that fresh has begun, with the rest of it as f says.
func infoOf(id string, f func(*store.Info)) store.Info {
	i := store.Info{Head: store.Head{ID: id, CreatedAt: epoch, UpdatedAt: epoch}, Creator: "somebody", Version: 1}
	if f != nil {
		f(&i)
	}
	return i
}

func wantInfo(t testing.TB, s store.Store, want store.Info) {
	t.Helper()
	got, err := s.Info(t.Context(), want.ID)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("Info(%q) = %+v, %v, want %+v", want.ID, got, err, want)
	}
	wantHead(t, s, want.Head)
}

func wantKey(t testing.TB, s store.Store, want store.Key) {
	t.Helper()
	got, err := s.Key(t.Context(), want.Scope, want.Name)
	if err != nil || got != want {
		t.Fatalf("Key(%q, %q) = %+v, %v, want %+v", want.Scope, want.Name, got, err, want)
	}
}

func wantNoKey(t testing.TB, s store.Store, scope, name string) {
	t.Helper()
	_, err := s.Key(t.Context(), scope, name)
	wantNamed(t, fmt.Sprintf("Key(%q, %q)", scope, name), err, store.ErrNotFound)
}

var opaque = []string{
	"a", "A", "a ", " a", "á", "a\u0301", "日本\U0001F600",
	"a%_*", "a'b\"c\\", "{\"a\":1}", "a\nb\t", "\u2028", "<&>",
}

var infoTests = []test{
	{"Info/OfANewSession", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		wantInfo(t, s, infoOf("a", nil))
		n := store.NewSession{
			ID:        "b",
			CreatedAt: epoch,
			Creator:   "ann",
			ClientRef: "ref",
			Labels:    map[string]string{"k": "v", "none": ""},
			Budget: record.Budget{
				ModelCalls: 1,
				Tokens:     math.MaxInt64,
				Cost:       123_456_789_123_456_789,
				Wall:       time.Hour + 1,
			},
			DropToolPayloads: true,
			Agent:            "desk é@3",
			Metadata:         `{"k":[1,"é\u0000"]}`,
		}
		if err := s.Create(t.Context(), n, nil); err != nil {
			t.Fatalf("Create: %v", err)
		}
		wantInfo(t, s, store.Info{
			Head:    store.Head{ID: "b", CreatedAt: epoch, UpdatedAt: epoch},
			Creator: "ann", ClientRef: "ref", Labels: map[string]string{"k": "v"}, Budget: n.Budget, Version: 1,
			DropToolPayloads: true, Metadata: n.Metadata, Agent: n.Agent,
		})
		_, err := s.Info(t.Context(), "c")
		wantNamed(t, "Info of no session", err, store.ErrNoSession)
	}},
	{"Info/LabelsAreOpaque", func(t *testing.T, s store.Store) {
		n, labels := fresh("a"), map[string]string{}
		for i, text := range opaque {
			labels[text] = opaque[len(opaque)-1-i]
		}
		n.Labels, n.ClientRef, n.Creator = labels, opaque[8], opaque[9]
		if err := s.Create(t.Context(), n, nil); err != nil {
			t.Fatalf("Create: %v", err)
		}
		wantInfo(t, s, infoOf("a", func(i *store.Info) {
			i.Labels, i.ClientRef, i.Creator = labels, opaque[8], opaque[9]
		}))
		for key, value := range labels {
			list, err := s.Sessions(t.Context(), store.InfoQuery{Labels: map[string]string{key: value}, Limit: 10})
			if err != nil || len(list) != 1 {
				t.Fatalf("Sessions with label %q %q = %v, %v, want one", key, value, list, err)
			}
		}
	}},
	{"Info/FollowsTheLog", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b")
		usage := record.Usage{
			Prompt: math.MaxInt64, Completion: 2, Cached: 3, Thoughts: 4, Total: 5, Calls: 6, Cost: 123_456_789,
		}
		b := batch("a", started(1, "t1"))
		b.Usage, b.LastTurn, b.LastStatus = usage, "t1", "runs"
		add(t, s, b)
		want := infoOf("a", func(i *store.Info) {
			i.LastSeq, i.OpenTurn, i.Usage, i.LastTurn, i.LastStatus = 1, "t1", usage, "t1", "runs"
		})
		wantInfo(t, s, want)
		wantInfo(t, s, infoOf("b", nil))
		b = batch("a", events(1, 1)...)
		b.LastTurn = "t2"
		add(t, s, b)
		want.LastSeq, want.UpdatedAt, want.Usage = 2, b.Records[0].Time, record.Usage{}
		want.LastTurn, want.LastStatus = "t2", ""
		wantInfo(t, s, want)
	}},
}

var updateTests = []test{
	{"Update/ChangesWhatIsSaid", func(t *testing.T, s store.Store) {
		n := fresh("a")
		n.Labels, n.ClientRef = map[string]string{"k": "1", "l": "2"}, "ref"
		if err := s.Create(t.Context(), n, nil); err != nil {
			t.Fatalf("Create: %v", err)
		}
		create(t, s, "b")
		want := infoOf("a", func(i *store.Info) { i.Labels, i.ClientRef = n.Labels, n.ClientRef })
		for what, step := range []struct {
			c store.Change
			f func(*store.Info)
		}{
			{store.Change{}, func(*store.Info) {}},
			{store.Change{Labels: map[string]string{"k": "", "m": "3", "l": "4", "none": ""}}, func(i *store.Info) {
				i.Labels = map[string]string{"l": "4", "m": "3"}
			}},
			{store.Change{ClientRef: new("other")}, func(i *store.Info) { i.ClientRef = "other" }},
			{store.Change{Archived: new(true), At: epoch.Add(time.Hour + 999)}, func(i *store.Info) {
				i.Archived, i.UpdatedAt = true, epoch.Add(time.Hour)
			}},
			{store.Change{ClientRef: new(""), Labels: map[string]string{"l": "", "m": ""}}, func(i *store.Info) {
				i.ClientRef, i.Labels = "", nil
			}},
			{store.Change{Archived: new(false), Version: 6}, func(i *store.Info) { i.Archived = false }},
			{store.Change{Metadata: new(`{"k":1}`)}, func(i *store.Info) { i.Metadata = `{"k":1}` }},
			{store.Change{Metadata: new("")}, func(i *store.Info) { i.Metadata = "" }},
			{store.Change{Metadata: new(`{"l":2}`)}, func(i *store.Info) { i.Metadata = `{"l":2}` }},
			{store.Change{Budget: &record.Budget{Tokens: 5, Cost: 1}}, func(i *store.Info) {
				i.Budget = record.Budget{Tokens: 5, Cost: 1}
			}},
			{store.Change{Budget: &record.Budget{Wall: 7}}, func(i *store.Info) { i.Budget = record.Budget{Wall: 7} }},
			{store.Change{ClientRef: new("more")}, func(i *store.Info) { i.ClientRef = "more" }},
			{store.Change{Budget: &record.Budget{}}, func(i *store.Info) { i.Budget = record.Budget{} }},
		} {
			got, err := s.Update(t.Context(), "a", step.c)
			want.Version++
			step.f(&want)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("Update %d = %+v, %v, want %+v", what, got, err, want)
			}
			wantInfo(t, s, want)
		}
		wantInfo(t, s, infoOf("b", nil))
	}},
	{"Update/Refused", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		change := store.Change{
			Version:   2,
			Labels:    map[string]string{"k": "v"},
			ClientRef: new("ref"),
			Archived:  new(true),
			At:        epoch.Add(time.Hour),
		}
		_, err := s.Update(t.Context(), "a", change)
		wantNamed(t, "Update of a version to come", err, store.ErrConflict)
		_, err = s.Update(t.Context(), "b", change)
		wantNamed(t, "Update of no session", err, store.ErrNoSession)
		_, err = s.Update(t.Context(), "a", store.Change{Labels: map[string]string{"": "v"}, Archived: new(true)})
		wantRefused(t, "Update with a label without a key", err)
		wantInfo(t, s, infoOf("a", nil))
		change.Version = 1
		if _, err = s.Update(t.Context(), "a", change); err != nil {
			t.Fatalf("Update: %v", err)
		}
		_, err = s.Update(t.Context(), "a", change)
		wantNamed(t, "Update of a version that was", err, store.ErrConflict)
	}},
	{"Update/CountsForIdle", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		add(t, s, batch("a", events(0, 1)...))
		if _, err := s.Update(t.Context(), "a", store.Change{At: epoch.Add(time.Hour)}); err != nil {
			t.Fatalf("Update: %v", err)
		}
		for before, want := range map[time.Duration]int{time.Hour: 0, time.Hour + time.Microsecond: 1} {
			if heads, err := s.Idle(t.Context(), epoch.Add(before), 10); err != nil || len(heads) != want {
				t.Fatalf("Idle before %v = %v, %v, want %d", before, heads, err, want)
			}
		}
	}},
	{"Update/OneOfAVersionWins", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		var won atomic.Int64
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				_, err := s.Update(t.Context(), "a", store.Change{Version: 1, ClientRef: new(fmt.Sprint(i))})
				switch {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, store.ErrConflict):
					t.Errorf("Update: %v", err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d of 16 have changed the session, want 1", won.Load())
		}
	}},
}

var keyTests = []test{
	{"Key/OfCreate", func(t *testing.T, s store.Store) {
		key := store.Key{Scope: "one", Name: "k", Content: "c", SessionID: "a"}
		if err := s.Create(t.Context(), fresh("a"), &key); err != nil {
			t.Fatalf("Create: %v", err)
		}
		wantKey(t, s, key)
		wantNoKey(t, s, "one", "K")
		wantNoKey(t, s, "two", "k")
		other := key
		other.SessionID = "b"
		wantNamed(t, "Create under a key that is taken", s.Create(t.Context(), fresh("b"), &other), store.ErrKeyTaken)
		_, err := s.Head(t.Context(), "b")
		wantNamed(t, "Head of what was not made", err, store.ErrNoSession)
		wantNamed(t, "Create of the same again", s.Create(t.Context(), fresh("a"), &key), store.ErrSessionExists)
		other.Scope = "two"
		if err := s.Create(t.Context(), fresh("b"), &other); err != nil {
			t.Fatalf("Create under the key of another scope: %v", err)
		}
		wantKey(t, s, key)
		wantKey(t, s, other)
	}},
	{"Key/OfAppend", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b")
		first, other := batch("a", started(1, "t")), batch("b", started(1, "t"))
		first.Key = &store.Key{Scope: "s", Name: "k", Content: "c", SessionID: "a", ID: "t"}
		other.Key = &store.Key{Scope: "s", Name: "k", Content: "c", SessionID: "b", ID: "t"}
		add(t, s, first)
		add(t, s, first)
		wantNamed(t, "Append under a key that is taken", s.Append(t.Context(), other), store.ErrKeyTaken)
		wantLog(t, s, "b", nil)
		second := batch("a", ended(2, "t"))
		second.Key = first.Key
		wantNamed(t, "another Append under the same key", s.Append(t.Context(), second), store.ErrKeyTaken)
		second.Key = nil
		add(t, s, second)
		add(t, s, first) // the log has gone on
		wantKey(t, s, *first.Key)
		changed := first
		changed.Key = new(*first.Key)
		changed.Key.Content = "d"
		wantNamed(t, "repeat with another content", s.Append(t.Context(), changed), store.ErrKeyTaken)
		changed.Key.Name = "l"
		wantNamed(t, "repeat with another key", s.Append(t.Context(), changed), store.ErrConflict)
		wantNoKey(t, s, "s", "l")
	}},
	{"Key/Malformed", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		for what, key := range map[string]store.Key{
			"without a name":     {Scope: "s", SessionID: "a"},
			"of another session": {Scope: "s", Name: "k", SessionID: "b"},
			"of no session":      {Scope: "s", Name: "k"},
		} {
			b := batch("a", events(0, 1)...)
			b.Key = &key
			wantRefused(t, "Append with a key "+what, s.Append(t.Context(), b))
			f := store.Fork{From: "a", Into: fresh("c"), Key: &key}
			wantRefused(t, "Fork with a key "+what, s.Fork(t.Context(), f))
			wantRefused(t, "Create with a key "+what, s.Create(t.Context(), fresh("c"), &key))
		}
		wantLog(t, s, "a", nil)
		wantNoKey(t, s, "s", "k")
	}},
	{"Key/OneWins", func(t *testing.T, s store.Store) {
		var won atomic.Int64
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				b := batch(fmt.Sprint(i), started(1, "t"))
				b.Create = new(fresh(b.SessionID))
				b.Key = &store.Key{Scope: "s", Name: "k", SessionID: b.SessionID, ID: "t"}
				switch err := s.Append(t.Context(), b); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, store.ErrKeyTaken):
					t.Errorf("Append: %v", err)
				}
			})
		}
		wg.Wait()
		list, err := s.Sessions(t.Context(), store.InfoQuery{Limit: 100})
		if won.Load() != 1 || err != nil || len(list) != 1 {
			t.Fatalf("%d of 16 have won, the sessions are %v, %v; want 1", won.Load(), list, err)
		}
	}},
}
