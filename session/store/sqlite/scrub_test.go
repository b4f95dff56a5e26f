package sqlite

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apzuk3/agentd/session/store"
)

// TestScrubBeside deletes and scrubs beside appends that balance the trees: what was
// deleted is gone once no scrub is owed, and the database is whole.
func TestScrubBeside(t *testing.T) {
	t.Parallel()
	const writers, rounds = 4, 2
	dir := t.TempDir()
	s := open(t, dir)
	var over atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	defer over.Store(true) // also when the test fails
	ends := make([]int64, writers)
	for w := range writers {
		wg.Go(func() {
			id := crashSession(w)
			mustCreate(t, s, id)
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for !over.Load() {
				b := crashBatch(id, ends[w])
				b.Rows = append(b.Rows, store.Row{
					Kind: store.RowInteraction, SessionID: id, ID: fmt.Sprint(rng.Uint64()), Seq: 1, CreatedAt: start,
					Status: "open", Data: make([]byte, rng.IntN(900)),
				})
				if err := s.Append(t.Context(), b); err != nil {
					t.Error(err)
					return
				}
				ends[w] += int64(len(b.Records))
			}
		})
	}
	for range rounds {
		mustCopy(t, s, 0)
		tidied(t, s)
		if n := found(t, dir, canary("gone")); len(n) > 0 {
			t.Errorf("the canary is still in %v", n)
		}
		for i := 1; i < 40; i += 2 { // for the next round
			if err := s.Delete(t.Context(), fmt.Sprintf("%04d", i*7919%10_000), 4); err != nil {
				t.Fatal(err)
			}
		}
	}
	over.Store(true)
	wg.Wait()
	for w := range writers {
		if last := wholeBatches(t, s, crashSession(w)); last != ends[w] {
			t.Errorf("session %d ends at %d, want %d", w, last, ends[w])
		}
	}
	mustClose(t, s)
	checkIntegrity(t, filepath.Join(dir, "agentd.db"))
}

// TestScrubLeavesDamage: a page that makes no sense stays as it is, and the scrub ends.
func TestScrubLeavesDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, withScrub(0))
	stopScrub(t, s)
	mustCopy(t, s, 0)
	mustClose(t, s)
	db := readFile(t, dir, "agentd.db")
	var bad []int // pages that have copies
	for at := 2 * pageBytes; at < len(db); at += pageBytes {
		if bytes.Contains(db[at:at+pageBytes], []byte(canary("gone"))) {
			bad = append(bad, at)
		}
	}
	if len(bad) == 0 {
		t.Fatal("no page has copies")
	}
	page := db[bad[0] : bad[0]+pageBytes]
	page[7]++ // the number of fragmented bytes
	page = slices.Clone(page)
	writeFile(t, dir, "agentd.db", db)
	s = open(t, dir, withScrub(0))
	tidied(t, s)
	mustClose(t, s)
	db = readFile(t, dir, "agentd.db")
	if !bytes.Equal(db[bad[0]:bad[0]+pageBytes], page) {
		t.Error("the page that makes no sense was changed")
	}
	if n, want := bytes.Count(db, []byte(canary("gone"))), bytes.Count(page, []byte(canary("gone"))); n != want {
		t.Errorf("the canary is there %d times, want the %d of the damaged page", n, want)
	}
}

// TestScrubOverflow puts words behind payloads, on free pages and behind the list of these,
// where an old or foreign program may have left them.
func TestScrubOverflow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	mustCreate(t, s, "stays", "gone")
	for i := range int64(3) {
		mustAppend(t, s, batchOf("stays", i, 1, 5000*int(i+1)))
	}
	mustAppend(t, s, batchOf("gone", 0, 1, 100_000))
	mustClose(t, s)
	execSQL(t, dir, `DELETE FROM records WHERE session_id = 'gone'`)
	execSQL(t, dir, `DELETE FROM sessions WHERE id = 'gone'`)
	execSQL(t, dir, `PRAGMA user_version = 0`)
	db := readFile(t, dir, "agentd.db")
	word := []byte(canary("gone"))
	put := map[byte]int{}
	for n := 3; n*pageBytes <= len(db); n++ {
		page := db[(n-1)*pageBytes : n*pageBytes]
		kind := db[pageBytes+5*(n-3)]
		if kind != mapFree && (kind < mapOverflowFirst || kind > mapOverflowNext || !bytes.Equal(page[:4], make([]byte, 4))) {
			continue
		}
		if end := page[pageBytes-len(word):]; bytes.Equal(end, make([]byte, len(word))) {
			copy(end, word)
		}
		put[kind]++
	}
	if put[mapFree] < 10 || put[mapOverflowNext] < 2 {
		t.Fatalf("words were put on pages %v", put)
	}
	writeFile(t, dir, "agentd.db", db)
	s = open(t, dir)
	tidied(t, s)
	if n := lastSeq(t, s, "stays"); n != 3 {
		t.Errorf("the log ends at %d", n)
	}
	mustClose(t, s)
	if n := found(t, dir, canary("gone")); len(n) > 0 {
		t.Errorf("the canary is still in %v", n)
	}
	checkIntegrity(t, filepath.Join(dir, "agentd.db"))
}

// FuzzBlank: blanking changes no byte of a cell, blanks all that it can at once, and leaves
// alone what makes no sense.
func FuzzBlank(f *testing.F) {
	dir := f.TempDir()
	s := open(f, dir, withScrub(0))
	mustCreateCanary(f, s, "a")
	mustCreateCanary(f, s, "b")
	if err := s.Delete(f.Context(), "a", 20); err != nil {
		f.Fatal(err)
	}
	mustClose(f, s)
	db := readFile(f, dir, "agentd.db")
	for at := 0; at < len(db); at += pageBytes {
		f.Add(db[at:at+pageBytes], at == 0, byte(0))
	}
	f.Fuzz(func(t *testing.T, page []byte, first bool, reserved byte) {
		at, usable := 0, len(page)-int(reserved)
		if first {
			at = 100
		}
		if len(page) < 512 || len(page) > 1<<16 || usable < 480 {
			return
		}
		before := slices.Clone(page)
		_, _ = restOf(page, at, usable, 7)
		changed, ok := blankTree(page, at, usable)
		if changed != !bytes.Equal(page, before) || changed && !ok {
			t.Fatalf("changed is %v, ok is %v", changed, ok)
		}
		if !ok {
			return
		}
		cells, ok := cellsOf(page, at, usable)
		if !ok {
			t.Fatal("the page makes no sense any more")
		}
		for p, c := range cells {
			if !bytes.Equal(page[p:p+c.size], before[p:p+c.size]) {
				t.Fatalf("the cell at %d was changed", p)
			}
		}
		if changed, ok := blankTree(page, at, usable); changed || !ok {
			t.Fatalf("a second time, changed is %v, ok is %v", changed, ok)
		}
	})
}
