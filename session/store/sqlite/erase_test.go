package sqlite

import (
	"bytes"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/store"
)

// canary is what a session holds and nothing else does.
func canary(id string) string { return "canary of " + id + "." }

// mustCreateCanary makes a session whose canary is in its log, in each table that
// belongs to it, and in records of one page and of many.
func mustCreateCanary(t testing.TB, s *Store, id string) {
	t.Helper()
	word := canary(id)
	n := newSession(id)
	n.ClientRef, n.Labels = word, map[string]string{"label": word, word: "label"}
	key := &store.Key{Scope: "scope", Name: word, Content: word, SessionID: id, ID: word}
	if err := s.Create(t.Context(), n, key); err != nil {
		t.Fatal(err)
	}
	b := batchOf(id, 0, 20, 10)
	for i := range b.Records {
		b.Records[i].Data = bytes.Repeat([]byte(word), 1+i*i*4)
	}
	b.LastTurn, b.LastStatus = word, word
	for _, kind := range []store.RowKind{store.RowTurn, store.RowInteraction} {
		b.Rows = append(b.Rows, store.Row{
			Kind: kind, SessionID: id, ID: word, TurnID: word, Seq: 1, CreatedAt: start, Status: word,
			Data: bytes.Repeat([]byte(word), 400),
		})
	}
	mustAppend(t, s, b)
}

// found returns how often a word is in each file of a folder that has it.
func found(t testing.TB, dir, word string) map[string]int {
	t.Helper()
	n := map[string]int{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if count := bytes.Count(data, []byte(word)); count > 0 {
			n[name] = count
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// tidied waits until the writer has nothing to tidy up and to scrub.
func tidied(t testing.TB, s *Store) {
	t.Helper()
	for busy := true; busy; {
		err := s.write(t.Context(), 0, func(*tx) (refusal, fault error) {
			scrub := &s.writer.scrub
			if scrub.owed && scrub.timer != nil && scrub.next == 0 {
				scrub.timer.Reset(0) // at once, however long the last one took
			}
			busy = s.writer.tidyTimer != nil || scrub.owed
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // polls; the writer's own time decides
	}
}

// TestErase looks for what a session held in all files, after it was deleted and after it
// was purged, while the store runs and after it was closed.
func TestErase(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(s *Store, id string) error{
		"delete": func(s *Store, id string) error { return s.Delete(t.Context(), id, 20) },
		"purge":  func(s *Store, id string) error { return s.Purge(t.Context(), id, 20) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir)
			mustCreateCanary(t, s, "gone")
			mustCreateCanary(t, s, "stays")
			if len(found(t, dir, canary("gone"))) == 0 {
				t.Fatal("the canary is nowhere before")
			}
			if err := remove(s, "gone"); err != nil {
				t.Fatal(err)
			}
			tidied(t, s)
			if name == "purge" { // labels, keys and the client's reference are still the session's
				if n := found(t, dir, strings.Repeat(canary("gone"), 3)); len(n) > 0 {
					t.Errorf("records are still in %v while the store is open", n)
				}
				if err := s.Delete(t.Context(), "gone", 20); err != nil {
					t.Fatal(err)
				}
				tidied(t, s)
			}
			if n := found(t, dir, canary("gone")); len(n) > 0 {
				t.Errorf("the canary is still in %v while the store is open", n)
			}
			mustClose(t, s)
			if n := found(t, dir, canary("gone")); len(n) > 0 {
				t.Errorf("the canary is still in %v after a clean stop", n)
			}
			if len(found(t, dir, canary("stays"))) == 0 {
				t.Error("the canary of the other session is gone as well")
			}
			checkIntegrity(t, filepath.Join(dir, "agentd.db"))
		})
	}
}

// TestEraseTenant: the name of a tenant is nowhere when its last session is removed.
func TestEraseTenant(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	word := canary("tenant")
	for i := range 300 { // counts of many pages
		mustCreate(t, s, fmt.Sprintf("other-%d/a", i))
	}
	for _, id := range []string{"a", "b", "c"} {
		mustCreate(t, s, word+"/"+id)
	}
	for _, id := range []string{"a", "b", "c"} {
		tidied(t, s)
		if len(found(t, dir, word)) == 0 {
			t.Fatalf("the canary is nowhere before %s is removed", id)
		}
		if err := s.Delete(t.Context(), word+"/"+id, 0); err != nil {
			t.Fatal(err)
		}
	}
	tidied(t, s)
	if n := found(t, dir, word); len(n) > 0 {
		t.Errorf("the canary is still in %v", n)
	}
	mustClose(t, s)
	checkIntegrity(t, filepath.Join(dir, "agentd.db"))
}

// TestEraseAfterKill: a process that was killed right after a delete leaves the canary in
// the WAL; the next one removes it.
func TestEraseAfterKill(t *testing.T) {
	t.Parallel()
	dir, left := t.TempDir(), t.TempDir()
	s := open(t, dir)
	defer mustClose(t, s)
	mustCreateCanary(t, s, "gone")
	if err := s.Delete(t.Context(), "gone", 20); err != nil {
		t.Fatal(err)
	}
	// The tidying happens on the writer's goroutine, which this occupies.
	err := s.write(t.Context(), 0, func(*tx) (refusal, fault error) {
		for _, name := range []string{"agentd.db", "agentd.db-wal"} {
			writeFile(t, left, name, readFile(t, dir, name))
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := found(t, left, canary("gone")); len(n) == 0 {
		t.Fatal("the canary is nowhere before")
	}
	again := open(t, left)
	defer mustClose(t, again)
	tidied(t, again)
	if n := found(t, left, canary("gone")); len(n) > 0 {
		t.Errorf("the canary is still in %v", n)
	}
}

// TestEraseWaitsForReaders: a reader that needs the WAL delays the tidying and stops no
// appends.
func TestEraseWaitsForReaders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	defer mustClose(t, s)
	mustCreateCanary(t, s, "gone")
	mustCreate(t, s, "busy")
	reader, err := s.readers.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := reader.QueryRowContext(t.Context(), "SELECT count(*) FROM records").Scan(&n); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "gone", 20); err != nil {
		t.Fatal(err)
	}
	tried := func() (tried bool) {
		err := s.write(t.Context(), 0, func(*tx) (refusal, fault error) {
			tried = s.writer.tidyBack > 0
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return tried
	}
	for i := int64(0); !tried(); i++ {
		mustAppend(t, s, batchOf("busy", i, 1, 10))
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	tidied(t, s)
	if n := found(t, dir, canary("gone")); len(n) > 0 {
		t.Errorf("the canary is still in %v", n)
	}
}

// TestShrink: the file shrinks by and by once much was deleted, whether it was made now or
// by a program that knew no vacuum.
func TestShrink(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T) string{
		"new": func(t *testing.T) string { return t.TempDir() },
		"old": func(t *testing.T) string { return databaseOf(t, []string{"00001_logs.sql"}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := prepare(t)
			s := open(t, dir)
			const sessions, size = 16, 1 << 20
			for n := range sessions {
				id := fmt.Sprint(n)
				mustCreate(t, s, id)
				mustAppend(t, s, batchOf(id, 0, 1, size))
			}
			for n := range sessions {
				if err := s.Delete(t.Context(), fmt.Sprint(n), 1); err != nil {
					t.Fatal(err)
				}
			}
			tidied(t, s)
			info, err := os.Stat(filepath.Join(dir, "agentd.db"))
			if err != nil {
				t.Fatal(err)
			}
			if limit := int64(freePages+200) * pageBytes; info.Size() > limit {
				t.Errorf("the file has %d bytes, want at most %d", info.Size(), limit)
			}
			mustClose(t, s)
			checkIntegrity(t, filepath.Join(dir, "agentd.db"))
		})
	}
}

// large is more than a start rebuilds, and a stop once did.
const large = 66 << 20

// withScrub sets how long Close scrubs.
func withScrub(limit time.Duration) option {
	return func(o *options) { o.scrubStop = limit }
}

// mustCopy fills a store with sessions, every second of which has the canary of "gone" in rows
// that SQLite moves from page to page, and one of size bytes. It deletes the ones with the canary.
func mustCopy(t *testing.T, s *Store, size int) {
	t.Helper()
	const sessions, turns = 40, 4
	if size > 0 {
		mustCreate(t, s, "large")
		for i := range int64(size >> 20) {
			mustAppend(t, s, batchOf("large", i, 1, 1<<20))
		}
	}
	add := func(id string, n int, word string) {
		b := batchOf(id, int64(n), 1, 10)
		b.Rows = []store.Row{{
			Kind: store.RowTurn, SessionID: id, ID: fmt.Sprint("turn", n), TurnID: fmt.Sprint("turn", n), Seq: int64(n + 1),
			CreatedAt: start.Add(time.Duration(n) * time.Second), Status: "over", Data: bytes.Repeat([]byte(word), 10+37*n),
		}}
		mustAppend(t, s, b)
	}
	name := func(i int) string { return fmt.Sprintf("%04d", i*7919%10_000) } // in no order
	for i := range sessions {
		mustCreate(t, s, name(i))
	}
	for n := range turns {
		for i := range sessions {
			word := "stays. "
			if i%2 == 0 {
				word = canary("gone")
			}
			add(name(i), n, word)
		}
	}
	for i := 0; i < sessions; i += 2 {
		if err := s.Delete(t.Context(), name(i), turns); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEraseCopies looks for what sessions held after a clean stop where SQLite had moved
// rows between pages: the pages that they came from keep copies until they are scrubbed.
func TestEraseCopies(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"small": 0, "large": large} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir, withScrub(damageLimit))
			mustCopy(t, s, size)
			mustClose(t, s)
			if n := found(t, dir, canary("gone")); len(n) > 0 {
				t.Errorf("the canary is still in %v after a clean stop", n)
			}
			if info, err := os.Stat(filepath.Join(dir, "agentd.db")); err != nil || info.Size() < int64(size) {
				t.Errorf("the database has %d bytes, %v, want at least %d", info.Size(), err, size)
			}
			checkIntegrity(t, filepath.Join(dir, "agentd.db"))
		})
	}
}

// TestEraseCopiesLater: a stop that has no time to scrub leaves copies, and the next start
// scrubs.
func TestEraseCopiesLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, withScrub(0))
	stopScrub(t, s)
	mustCopy(t, s, 0)
	mustClose(t, s)
	if n := found(t, dir, canary("gone")); len(n) == 0 {
		t.Fatal("the canary is nowhere before: nothing was copied")
	}
	s = open(t, dir, withScrub(0))
	tidied(t, s)
	if n := found(t, dir, canary("gone")); len(n) > 0 {
		t.Errorf("the canary is still in %v after the next start", n)
	}
	mustClose(t, s)
	checkIntegrity(t, filepath.Join(dir, "agentd.db"))
}

// stopScrub keeps the writer from scrubbing before Close.
func stopScrub(t *testing.T, s *Store) {
	t.Helper()
	err := s.write(t.Context(), 0, func(*tx) (refusal, fault error) {
		s.writer.scrub.timer = time.NewTimer(damageLimit)
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestEraseCopiesAfterKill kills a process at any transaction of a scrub: the next one
// goes on.
func TestEraseCopiesAfterKill(t *testing.T) {
	t.Parallel()
	var kill func() // behind each commit
	dir := t.TempDir()
	s := open(t, dir, withScrub(damageLimit), withCommit(func(commit func() error) error {
		err := commit()
		if kill != nil {
			kill()
		}
		return err
	}))
	stopScrub(t, s)
	mustCopy(t, s, 3<<20)
	var left []string
	copies := func() {
		to := t.TempDir()
		for _, name := range []string{"agentd.db", "agentd.db-wal"} {
			writeFile(t, to, name, readFile(t, dir, name))
		}
		left = append(left, to)
	}
	err := s.write(t.Context(), 0, func(*tx) (refusal, fault error) {
		kill = copies
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	if len(left) < 4 {
		t.Fatalf("%d transactions, want some of a scrub", len(left))
	}
	if n := found(t, left[0], canary("gone")); len(n) == 0 {
		t.Fatal("the canary is nowhere before")
	}
	for i, dir := range left {
		again := open(t, dir)
		tidied(t, again)
		if n := found(t, dir, canary("gone")); len(n) > 0 {
			t.Errorf("killed at transaction %d, the canary is still in %v", i, n)
		}
		mustClose(t, again)
		checkIntegrity(t, filepath.Join(dir, "agentd.db"))
	}
}
