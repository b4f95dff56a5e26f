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

// runShared checks what a store promises that several processes have open. Each test has two of them on one database,
// which is empty at first.
func runShared(t *testing.T, open func(t *testing.T) (a, b store.Store)) {
	runTwo(t, open, sharedStoreTests)
}

func runTwo(t *testing.T, open func(t *testing.T) (a, b store.Store), tests []sharedStoreTest) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a, b := open(t)
			test.run(t, a, b)
			closeStore(t, a)
			closeStore(t, b)
		})
	}
}

// sharedStoreTest is one promise of two stores on one database.
type sharedStoreTest struct {
	name string
	run  func(t *testing.T, a, b store.Store)
}

// sharedEventTests are those of stores that keep events.
var sharedEventTests = []sharedStoreTest{
	{"Two/NoEventIsMissed", func(t *testing.T, a, b store.Store) { noEventIsMissed(t, a, b) }},
	{"Two/EventsOfAnOlderOwner", func(t *testing.T, a, b store.Store) {
		log := eventLogOf(t, a)
		create(t, a, "s")
		recs := events(0, 3)
		of := func(epoch int64, author string, r record.Record) store.Batch {
			next := logged("s", "", author, r)
			next.Epoch = epoch
			return next
		}
		add(t, a, of(1, "a", recs[0]))
		add(t, b, of(2, "b", recs[1]))
		wantNamed(t, "Append of an older owner", a.Append(t.Context(), of(1, "a", recs[2])), store.ErrFenced)
		errs := a.AppendMany(t.Context(), []store.Batch{of(1, "a", recs[1])})
		wantNamed(t, "AppendMany of an older owner", errs[0], store.ErrFenced)
		add(t, b, of(2, "b", recs[2]))
		wantEvents(t, log, store.EventQuery{Author: "a"}, "s#1")
		wantEvents(t, log, store.EventQuery{}, "s#1", "s#2", "s#3")
	}},
}

var sharedStoreTests = []sharedStoreTest{
	{"Two/EachSeesTheOther", func(t *testing.T, a, b store.Store) {
		create(t, a, "s")
		for n := range int64(6) {
			w, r := a, b
			if n%2 == 1 {
				w, r = b, a
			}
			next := batch("s", events(n, 1)...)
			next.Shared = []store.SharedValue{{Scope: "app", Key: "n", Value: fmt.Append(nil, n)}}
			next.Rows = []store.Row{row(turnRow, "s", "t", 1, fmt.Sprint(n))}
			add(t, w, next)
			wantLog(t, r, "s", events(0, int(n)+1))
			wantShared(t, r, "app", map[string]string{"n": fmt.Sprint(n)})
			wantRow(t, r, next.Rows[0])
		}
	}},
	{"Two/OneSession", func(t *testing.T, a, b store.Store) { oneSession(t, a, b) }},
	{"Two/AnOlderOwnerIsFenced", func(t *testing.T, a, b store.Store) {
		create(t, a, "s")
		log := events(0, 4)
		add(t, a, owned(1, "s", log[0]))
		add(t, b, owned(2, "s", log[1]))
		// Its batch is in the log, and still it is no answer for it.
		wantNamed(t, "repeat of an older owner", a.Append(t.Context(), owned(1, "s", log[0])), store.ErrFenced)
		// Neither are the bytes that the new owner has written, or that it would write next.
		for _, late := range log[1:3] {
			wantNamed(t, "Append of an older owner", a.Append(t.Context(), owned(1, "s", late)), store.ErrFenced)
		}
		errs := a.AppendMany(t.Context(), []store.Batch{owned(1, "s", log[2])})
		wantNamed(t, "AppendMany of an older owner", errs[0], store.ErrFenced)
		add(t, b, owned(2, "s", log[2]))
		wantRecords(t, all(t, a, "s"), log[:3])
		wantEpoch(t, a, "s", 2)
	}},
	{"Two/OwnersTakeTurns", ownersTakeTurns},
	{"Two/RepeatsOfOneAppend", func(t *testing.T, a, b store.Store) {
		create(t, a, "s")
		for n := range int64(20) {
			next := batch("s", events(3*n, 3)...)
			both(t, a, b, func(_ int, s store.Store) error { return s.Append(t.Context(), next) },
				func(first, second error) {
					if first != nil || second != nil {
						t.Fatalf("two repeats at the same time: %v, %v", first, second)
					}
				})
		}
		wantLog(t, a, "s", events(0, 60))
	}},
	{"Two/OneKey", func(t *testing.T, a, b store.Store) {
		for n := range 20 {
			var made [2]store.Batch
			for i := range made {
				made[i] = creating(fresh(fmt.Sprintf("s%d-%d", n, i)))
				made[i].Key = &store.Key{Scope: "k", Name: fmt.Sprint(n), SessionID: made[i].SessionID}
			}
			both(t, a, b, func(i int, s store.Store) error { return s.Append(t.Context(), made[i]) },
				func(first, second error) {
					winner, loser := 0, 1
					if first != nil {
						winner, loser, second = 1, 0, first
					}
					wantNamed(t, "Append with the key of another", second, store.ErrKeyTaken)
					wantKey(t, a, *made[winner].Key)
					wantErr(t, "Head of what was refused", headErr(t, b, made[loser].SessionID), store.ErrNoSession)
				})
		}
	}},
	{"Two/OneCreateWins", func(t *testing.T, a, b store.Store) {
		for n := range 20 {
			id := fmt.Sprint("s", n)
			both(t, a, b, func(_ int, s store.Store) error { return s.Create(t.Context(), fresh(id), nil) },
				func(first, second error) {
					if first != nil {
						first, second = second, first
					}
					if first != nil {
						t.Fatalf("Create: %v", first)
					}
					wantNamed(t, "second Create", second, store.ErrSessionExists)
				})
			made := creating(fresh("made" + id)) // the same bytes are a repeat
			both(t, a, b, func(_ int, s store.Store) error { return s.Append(t.Context(), made) },
				func(first, second error) {
					if first != nil || second != nil {
						t.Fatalf("two appends that create one session: %v, %v", first, second)
					}
				})
		}
	}},
	{"Two/Bound", func(t *testing.T, a, b store.Store) {
		const most, callers = 7, 20
		var made atomic.Int64
		var wg sync.WaitGroup
		for i := range callers {
			s := [2]store.Store{a, b}[i%2]
			wg.Go(func() {
				n := ofAtMost(fmt.Sprint("acme/", i), most)
				switch err := s.Append(t.Context(), creating(n)); {
				case err == nil:
					made.Add(1)
				case !n.IsTooMany(err):
					t.Errorf("Append: %v", err)
				}
			})
		}
		wg.Wait()
		if made.Load() != most {
			t.Fatalf("%d sessions were made, want %d", made.Load(), most)
		}
	}},
	{"Two/SharedInAnyOrder", sharedInAnyOrder},
	{"Two/PurgeAgainstAnOwner", func(t *testing.T, a, b store.Store) {
		for n := range 10 {
			id := fmt.Sprint("s", n)
			create(t, a, id)
			add(t, a, owned(1, id, events(0, 2)...))
			both(t, a, b, func(i int, s store.Store) error {
				if i == 0 {
					return s.Purge(t.Context(), id, 2)
				}
				return s.Append(t.Context(), owned(2, id, events(2, 1)...))
			}, func(purged, appended error) {
				if appended != nil {
					t.Fatalf("Append: %v", appended)
				}
				want := events(2, 1)
				if purged != nil {
					wantNamed(t, "Purge of a log that has gone on", purged, store.ErrConflict)
					want = events(0, 3)
				}
				recs, err := a.Read(t.Context(), id, 0, 10)
				if err != nil {
					t.Fatalf("Read: %v", err)
				}
				wantRecords(t, recs, want)
			})
			wantNamed(t, "Purge of an older owner", a.Purge(t.Context(), id, 2), store.ErrConflict)
		}
	}},
	{"Two/DeleteAgainstAnOwner", func(t *testing.T, a, b store.Store) {
		for n := range 10 {
			id := fmt.Sprint("s", n)
			create(t, a, id)
			add(t, a, owned(1, id, events(0, 2)...))
			both(t, a, b, func(i int, s store.Store) error {
				if i == 0 {
					return s.Delete(t.Context(), id, 2)
				}
				return s.Append(t.Context(), owned(2, id, events(2, 1)...))
			}, func(deleted, appended error) {
				if appended == nil {
					wantNamed(t, "Delete of a log that has gone on", deleted, store.ErrConflict)
					wantRecords(t, all(t, a, id), events(0, 3))
					return
				}
				wantNamed(t, "Append to what was removed", appended, store.ErrNoSession)
				if deleted != nil {
					t.Fatalf("Delete: %v", deleted)
				}
				recs, err := b.Read(t.Context(), id, 0, 10)
				wantErr(t, "Read of what was removed", err, store.ErrNoSession)
				if len(recs) > 0 {
					t.Fatalf("%d records are left", len(recs))
				}
			})
		}
	}},
	{"Two/ForkAgainstAnOwner", func(t *testing.T, a, b store.Store) {
		for n := range 10 {
			id, into := fmt.Sprint("s", n), fmt.Sprint("f", n)
			create(t, a, id)
			add(t, a, owned(1, id, events(0, 2)...))
			both(t, a, b, func(i int, s store.Store) error {
				if i == 0 {
					return s.Fork(t.Context(), store.Fork{From: id, Seq: 2, Into: fresh(into)})
				}
				return errors.Join(s.Append(t.Context(), owned(2, id, events(2, 1)...)), s.Purge(t.Context(), id, 3))
			}, func(forked, others error) {
				if others != nil {
					t.Fatalf("Append and Purge: %v", others)
				}
				if forked != nil {
					wantNamed(t, "Fork of a log that was purged", forked, store.ErrConflict)
					wantErr(t, "Head of no fork", headErr(t, b, into), store.ErrNoSession)
					return
				}
				wantRecords(t, all(t, b, into), events(0, 2))
				wantEpoch(t, b, into, 0)
			})
		}
	}},
	{"Two/ShorterLog", func(t *testing.T, a, b store.Store) {
		// The database has lost what it has acknowledged, as after a failover without a synchronous standby: a writer
		// that knows more must notice, whatever it does.
		create(t, a, "s")
		add(t, a, owned(1, "s", events(0, 3)...))
		wantNamed(t, "Append behind the end", b.Append(t.Context(), owned(1, "s", events(5, 1)...)), store.ErrConflict)
		wantNamed(t, "Purge of a longer log", b.Purge(t.Context(), "s", 5), store.ErrConflict)
		wantNamed(t, "Delete of a longer log", b.Delete(t.Context(), "s", 5), store.ErrConflict)
		fork := store.Fork{From: "s", Seq: 5, Into: fresh("f")}
		wantNamed(t, "Fork of a longer log", b.Fork(t.Context(), fork), store.ErrConflict)
		repeat := owned(1, "s", events(2, 2)...) // of which the log has the half
		wantNamed(t, "repeat that the log has half of", b.Append(t.Context(), repeat), store.ErrConflict)
		wantRecords(t, all(t, a, "s"), events(0, 3))
	}},
}

// both calls f with each store at the same time, and then then with the errors.
func both(t *testing.T, a, b store.Store, f func(i int, s store.Store) error, then func(first, second error)) {
	t.Helper()
	var errs [2]error
	var wg sync.WaitGroup
	for i, s := range []store.Store{a, b} {
		wg.Go(func() { errs[i] = f(i, s) })
	}
	wg.Wait()
	then(errs[0], errs[1])
}

// ownersTakeTurns has two owners take a session from each other. The epochs along the log do not fall, and each append
// that was acknowledged is in it once.
func ownersTakeTurns(t *testing.T, a, b store.Store) {
	const rounds = 60
	create(t, a, "s")
	var epochs atomic.Int64
	var mu sync.Mutex // protects acked
	acked := map[string]bool{}
	own := func(s store.Store) error {
		for range rounds {
			mine := epochs.Add(1)
			for { // until another owner has come
				head, err := s.Head(t.Context(), "s")
				if err != nil {
					return err
				}
				rec := events(head.LastSeq, 1)[0]
				rec.Data = fmt.Appendf(nil, "%020d, record %d", mine, rec.Seq)
				err = s.Append(t.Context(), owned(mine, "s", rec))
				switch {
				case errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrFenced):
					continue
				case err == nil:
					mu.Lock()
					acked[string(rec.Data)] = true
					mu.Unlock()
					if rec.Seq%3 != 0 {
						continue
					}
				case !errors.Is(err, store.ErrFenced):
					return err
				}
				break
			}
		}
		return nil
	}
	both(t, a, b, func(_ int, s store.Store) error { return own(s) }, func(first, second error) {
		if err := errors.Join(first, second); err != nil {
			t.Fatal(err)
		}
	})
	log := all(t, a, "s")
	for i, r := range log {
		if i > 0 && string(r.Data[:20]) < string(log[i-1].Data[:20]) {
			t.Errorf("record %d is of an older owner than the one before: %q behind %q", r.Seq, r.Data, log[i-1].Data)
		}
		delete(acked, string(r.Data))
	}
	for data := range acked {
		t.Errorf("%q was acknowledged and is not in the log", data)
	}
}

// sharedInAnyOrder has both stores write the same shared values and the same tenants' spending, each in another order:
// all succeed, and nothing is lost.
func sharedInAnyOrder(t *testing.T, a, b store.Store) {
	const sessions, appends = 8, 10
	var wg sync.WaitGroup
	for i := range sessions {
		id, s := fmt.Sprint("s", i), [2]store.Store{a, b}[i%2]
		create(t, s, id)
		wg.Go(func() {
			for n := range int64(appends) {
				next := spending(batch(id, events(n, 1)...), fmt.Sprint("tenant", (i+int(n))%3), 20, 1, 2)
				for k := range 4 {
					v := store.SharedValue{Scope: "app", Key: fmt.Sprint("k", (i+k)%4), Value: fmt.Append(nil, n)}
					next.Shared = append(next.Shared, v)
				}
				if n%2 == 1 {
					next.Shared = nil
				}
				if err := s.Append(t.Context(), next); err != nil {
					t.Errorf("Append: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	var sum record.Spent
	for i := range 3 {
		spent, err := a.Spent(t.Context(), fmt.Sprint("tenant", i), 20, 20)
		if err != nil {
			t.Fatal(err)
		}
		sum.Tokens, sum.Cost = sum.Tokens+spent.Tokens, sum.Cost+spent.Cost
	}
	if want := (record.Spent{Tokens: sessions * appends, Cost: 2 * sessions * appends}); sum != want {
		t.Errorf("%+v was spent, want %+v", sum, want)
	}
}
