package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

var concurrencyTests = []test{
	{"Concurrency/OneSession", func(t *testing.T, s store.Store) { oneSession(t, s) }},
	{"Concurrency/ManySessions", manySessions},
	{"Concurrency/OneCreateWins", func(t *testing.T, s store.Store) {
		var won atomic.Int64
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				switch err := s.Create(t.Context(), fresh("a"), nil); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, store.ErrSessionExists):
					t.Errorf("Create: %v", err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d of 16 made the session, want 1", won.Load())
		}
		wantLog(t, s, "a", nil)
	}},
	{"Concurrency/RepeatsOfOneAppend", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for i := range 10 {
					if err := s.Append(t.Context(), batch("a", events(int64(2*i), 2)...)); err != nil {
						t.Errorf("Append: %v", err)
					}
				}
			})
		}
		wg.Wait()
		wantLog(t, s, "a", events(0, 20))
	}},
}

// oneSession makes many writers, of all stores, compete for one log. The log holds each append that succeeded, once,
// and no other one.
func oneSession(t *testing.T, stores ...store.Store) {
	const writers, wins = 8, 15
	create(t, stores[0], "a")
	var mu sync.Mutex
	acked := map[int64]record.Record{}
	var wg sync.WaitGroup
	for w := range writers {
		s := stores[w%len(stores)]
		wg.Go(func() {
			for won := 0; won < wins; {
				head, err := s.Head(t.Context(), "a")
				if err != nil {
					t.Errorf("Head: %v", err)
					return
				}
				recs := events(head.LastSeq, 1+won%3)
				for i := range recs {
					recs[i].Data = fmt.Appendf(nil, "writer %d, win %d, part %d", w, won, i)
				}
				err = s.Append(t.Context(), batch("a", recs...))
				if errors.Is(err, store.ErrConflict) {
					continue
				}
				if err != nil {
					t.Errorf("Append: %v", err)
					return
				}
				won++
				mu.Lock()
				for _, r := range recs {
					if other, taken := acked[r.Seq]; taken {
						t.Errorf("acknowledged twice:\n%s and\n%s", show(other), show(r))
					}
					acked[r.Seq] = r
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	want := make([]record.Record, len(acked))
	for i := range want {
		want[i] = acked[int64(i)+1]
	}
	wantLog(t, stores[0], "a", want)
}

// manySessions writes to many logs at once, and reads some of them meanwhile: a reader sees a beginning of
// the log that ends between two appends.
func manySessions(t *testing.T, s store.Store) {
	const sessions, readers, appends, size = 32, 4, 12, 3
	var wg sync.WaitGroup
	for i := range sessions {
		id := fmt.Sprintf("s%02d", i)
		create(t, s, id)
		done := make(chan struct{})
		wg.Go(func() {
			defer close(done)
			for n := range appends {
				b := batch(id, events(int64(n*size), size)...)
				b.Shared = []store.SharedValue{{Scope: "app", Key: id, Value: fmt.Append(nil, n)}}
				if err := s.Append(t.Context(), b); err != nil {
					t.Errorf("Append(%q): %v", id, err)
					return
				}
			}
		})
		if i >= readers {
			continue
		}
		wg.Go(func() {
			for {
				recs, err := s.Read(t.Context(), id, 0, 1000)
				if err != nil {
					t.Errorf("Read(%q): %v", id, err)
					return
				}
				if len(recs)%size != 0 {
					t.Errorf("Read(%q) sees %d records of appends of %d", id, len(recs), size)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	wg.Wait()
	want := map[string]string{}
	for i := range sessions {
		id := fmt.Sprintf("s%02d", i)
		wantLog(t, s, id, events(0, appends*size))
		want[id] = fmt.Sprint(appends - 1)
	}
	wantShared(t, s, "app", want)
}
