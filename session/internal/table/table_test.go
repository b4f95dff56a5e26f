package table_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/apzuk3/agentd/session/internal/table"
)

// value is what the tests keep.
type value struct {
	name            string
	broken, useless bool
	ended           bool
}

func newTable(idle int) *table.Table[*value] {
	return table.New(table.Policy[*value]{
		MaxIdle: idle,
		Broken:  func(v *value) bool { return v.broken },
		Useless: func(v *value) bool { return v.useless },
	})
}

// use returns the entry of an id, which it makes if there is none.
func use(t *table.Table[*value], id string) *table.Entry[*value] {
	e, found := t.Use(id)
	if !found {
		e.Set(&value{name: id}, nil)
	}
	return e
}

// users are those of each value that is ready.
func users(t *table.Table[*value]) map[string]int {
	out := map[string]int{}
	t.Each(func(v *value, users, _ int) { out[v.name] = users })
	return out
}

// Those that are idle the longest leave the table; one that is used again does not.
func TestIdle(t *testing.T) {
	tab := newTable(2)
	var entries []*table.Entry[*value]
	for i := range 3 {
		entries = append(entries, use(tab, fmt.Sprint(i)))
	}
	tab.Keep(entries[0])
	for _, e := range entries {
		tab.Release(e)
	}
	if got, want := users(tab), map[string]int{"0": 1, "1": 0, "2": 0}; !reflect.DeepEqual(got, want) {
		t.Errorf("users: %v, want %v", got, want)
	}
	use(tab, "1") // 2 is idle the longest now
	tab.Release(entries[0])
	tab.Release(entries[1])
	if got, want := users(tab), map[string]int{"0": 0, "1": 0}; !reflect.DeepEqual(got, want) {
		t.Errorf("users: %v, want %v", got, want)
	}
}

// A broken value leaves the table when the next one asks for it; a useless one when its last user does.
func TestPolicy(t *testing.T) {
	tab := newTable(1)
	tab.Release(use(tab, "idle"))
	old := use(tab, "a")
	old.Value.broken = true
	e := use(tab, "a")
	if e == old {
		t.Fatal("a broken value is used again")
	}
	tab.Release(old) // which is no idle entry, and does not touch the one in its place
	if got, want := users(tab), map[string]int{"a": 1, "idle": 0}; !reflect.DeepEqual(got, want) {
		t.Errorf("users: %v, want %v", got, want)
	}
	e.Value.useless = true
	if tab.Find("a") != e {
		t.Error("a useless value left the table while it was used")
	}
	if tab.Release(e); tab.Find("a") != nil {
		t.Error("a useless value stays without users")
	}
}

// Who comes before an entry is ready waits for it, and gets its value or its error.
func TestWait(t *testing.T) {
	tab := newTable(9)
	e, found := tab.Use("a")
	if found {
		t.Fatal("a new table has an entry")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	again, found := tab.Use("a")
	if err := again.Wait(ended); !found || again != e || !errors.Is(err, context.Canceled) {
		t.Errorf("an entry that is not ready: %v, %v", found, err)
	}
	if _, ok := e.Now(); ok || len(users(tab)) != 0 || tab.Find("a") != e {
		t.Error("an entry that is not ready has a value, or is not in the table")
	}
	fails := errors.New("fails")
	e.Set(nil, fails)
	if err := again.Wait(t.Context()); !errors.Is(err, fails) {
		t.Errorf("wait: %v, want the error of the entry", err)
	}
	tab.Release(e)
	if tab.Find("a") != e {
		t.Error("an error left the table before its last user")
	}
	if tab.Release(again); tab.Find("a") != nil {
		t.Error("an error stays without users")
	}
}

// What somebody uses is not replaced; what nobody uses, or some only observe, is.
func TestReplace(t *testing.T) {
	tab := newTable(9)
	end := func(v *value) { v.ended = true }
	e := use(tab, "a")
	if tab.Replace("a", end) != nil {
		t.Error("an entry in use was replaced")
	}
	seen := use(tab, "a")
	tab.Observe(seen)
	if tab.Replace("a", end) != nil || e.Value.ended {
		t.Error("an entry in use was replaced, beside one that observes")
	}
	tab.Release(e)
	next := tab.Replace("a", end)
	if next == nil || next == e || !e.Value.ended || tab.Find("a") != next {
		t.Fatal("an entry that is only observed was not replaced")
	}
	tab.ReleaseObserver(seen)
	if tab.Find("a") != next || tab.Replace("a", end) != nil {
		t.Error("the entry that is not ready yet left the table")
	}
	tab.Remove(next)
	next.Set(nil, errors.New("kept"))
	tab.Release(next)
	tab.Release(use(tab, "a"))
	if last := tab.Replace("a", end); last == nil || tab.Find("a") != last {
		t.Error("an idle entry was not replaced")
	}
}

// Many use, observe and replace entries at the same time: none is lost, and in the end nobody uses any.
func TestConcurrently(t *testing.T) {
	tab := newTable(3)
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 500 {
				id := fmt.Sprint((i + worker) % 5)
				switch i % 7 {
				case 0:
					if e := tab.Replace(id, func(*value) {}); e != nil {
						e.Set(&value{name: id}, nil)
						tab.Release(e)
					}
				default:
					e := use(tab, id)
					if err := e.Wait(t.Context()); err != nil || e.Value.name != id {
						t.Errorf("%s: %v, %v", id, e.Value, err)
					}
					if i%2 == 0 {
						tab.Observe(e)
						tab.ReleaseObserver(e)
					} else {
						tab.Release(e)
					}
				}
			}
		})
	}
	all.Wait()
	got := users(tab)
	for id, n := range got {
		if n != 0 {
			t.Errorf("%s has %d users", id, n)
		}
	}
	if len(got) > 3 {
		t.Errorf("%d entries are idle, at most 3 may", len(got))
	}
}
