package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/apzuk3/agentd/session/store"
)

func TestMemoryInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := openAs(t.Context(), Memory)
		if err != nil {
			t.Fatal(err)
		}
		mustCreate(t, s, "a")
		time.Sleep(72 * time.Hour)
		mustAppend(t, s, batchOf("a", 0, 3, 100))
		if n := lastSeq(t, s, "a"); n != 3 {
			t.Errorf("the log ends at %d, want 3", n)
		}
		if err := s.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		mustClose(t, s)
	})
}

func TestWaitingAppendIsDurablyBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s, err := openAs(t.Context(), Memory, g.option())
		if err != nil {
			t.Fatal(err)
		}
		go func() { g.pass <- struct{}{} }()
		mustCreate(t, s, "a")

		done := appendAsync(t.Context(), s, batchOf("a", 0, 1, 10))
		synctest.Wait() // returns only when all goroutines are durably blocked
		select {
		case err := <-done:
			t.Fatalf("append returned %v before its commit", err)
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begun := time.Now()
		if err := s.Append(ctx, batchOf("a", 1, 1, 10)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("append with a deadline: %v, want %v", err, context.DeadlineExceeded)
		}
		if waited := time.Since(begun); waited != time.Hour {
			t.Errorf("waited %v, want an hour", waited)
		}
		close(g.pass)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := lastSeq(t, s, "a"); n != 1 {
			t.Errorf("the log ends at %d, want 1: an append whose context had ended was begun", n)
		}
		mustClose(t, s)
	})
}

// TestQueueIsBounded fills the queue: who finds no place waits, and leaves when
// its context ends.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s, err := openAs(t.Context(), Memory, g.option())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		const callers = queueLen + 2*groupLen
		done := make(chan error, callers)
		for i := range callers {
			go func() { done <- s.Create(ctx, newSession(fmt.Sprint(i)), nil) }()
		}
		synctest.Wait()
		if n := len(s.writer.queue); n != queueLen {
			t.Errorf("%d operations in the queue, want %d", n, queueLen)
		}
		cancel()
		for range callers {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("create: %v, want %v", err, context.Canceled)
			}
		}
		close(g.pass)
		mustClose(t, s)
	})
}

// TestOneCommitServesMany has appends of many sessions queue up behind a commit.
func TestOneCommitServesMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s, err := openAs(t.Context(), Memory, g.option())
		if err != nil {
			t.Fatal(err)
		}
		const sessions = 50
		go func() {
			for range sessions {
				g.pass <- struct{}{}
			}
		}()
		for i := range sessions {
			mustCreate(t, s, fmt.Sprint(i))
			<-g.entered
		}
		dones := []<-chan error{appendAsync(t.Context(), s, batchOf("0", 0, 1, 10))}
		<-g.entered
		for i := 1; i < sessions; i++ {
			dones = append(dones, appendAsync(t.Context(), s, batchOf(fmt.Sprint(i), 0, 2, 10)))
		}
		synctest.Wait()
		close(g.pass)
		for _, done := range dones {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := len(g.entered); n != 1 {
			t.Errorf("%d commits for %d appends that waited, want 1", n, sessions-1)
		}
		mustClose(t, s)
	})
}

// TestBadAppendFailsAlone puts appends of every fate in one group.
func TestBadAppendFailsAlone(t *testing.T) {
	for _, tooBig := range []bool{false, true} {
		t.Run(fmt.Sprintf("tooBig=%v", tooBig), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate()
				s, err := openAs(t.Context(), Memory, g.option(), withMaxBytes(1<<20))
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					for range 3 {
						g.pass <- struct{}{}
					}
				}()
				mustCreate(t, s, "good", "bad", "other")
				hold := appendAsync(t.Context(), s, batchOf("other", 0, 1, 10))
				synctest.Wait()

				// One after another into the queue, for their order matters.
				queue := func(ctx context.Context, b store.Batch) <-chan error {
					done := appendAsync(ctx, s, b)
					synctest.Wait()
					return done
				}
				left, leave := context.WithCancel(t.Context())
				first := queue(t.Context(), batchOf("good", 0, 2, 100))
				conflict := queue(t.Context(), batchOf("bad", 5, 1, 100))
				unknown := queue(t.Context(), batchOf("nobody", 0, 1, 100))
				gone := queue(left, batchOf("bad", 0, 1, 100))
				big := make(<-chan error)
				if tooBig {
					big = queue(t.Context(), batchOf("bad", 0, 2, 800<<10))
				}
				second := queue(t.Context(), batchOf("good", 2, 2, 100))
				late := queue(t.Context(), batchOf("good", 2, 1, 200))
				leave()
				close(g.pass)

				for what, c := range map[string]struct {
					done <-chan error
					want error
				}{
					"held": {hold, nil}, "first": {first, nil}, "second": {second, nil},
					"conflict": {conflict, store.ErrConflict}, "late": {late, store.ErrConflict},
					"unknown": {unknown, store.ErrNoSession}, "gone": {gone, context.Canceled},
				} {
					if err := <-c.done; !errors.Is(err, c.want) {
						t.Errorf("%s append: %v, want %v", what, err, c.want)
					}
				}
				if tooBig {
					if err := <-big; code(err) != sqlite3.SQLITE_FULL {
						t.Errorf("append of what does not fit: %v, want SQLITE_FULL", err)
					}
				}
				if good, bad := lastSeq(t, s, "good"), lastSeq(t, s, "bad"); good != 4 || bad != 0 {
					t.Errorf("the logs end at %d and %d, want 4 and 0", good, bad)
				}
				mustClose(t, s)
			})
		})
	}
}

// TestUnknownOutcome fails a COMMIT in both ways: the transaction is on disk or
// it is not, and the store cannot know.
func TestUnknownOutcome(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		t.Run(fmt.Sprintf("persisted=%v", persisted), func(t *testing.T) {
			dir := t.TempDir()
			errDisk := errors.New("the disk is on fire")
			commits := 0
			s := open(t, dir, withCommit(func(commit func() error) error {
				if commits++; commits != 3 {
					return commit()
				}
				if persisted {
					return errors.Join(errDisk, commit())
				}
				return errDisk
			}))
			mustCreate(t, s, "a")
			mustAppend(t, s, batchOf("a", 0, 2, 100))
			lost := batchOf("a", 2, 2, 100)
			for _, c := range []struct {
				what string
				call func() error
			}{
				{"the append", func() error { return s.Append(t.Context(), lost) }},
				{"its repeat", func() error { return s.Append(t.Context(), lost) }},
				{"another's", func() error { return s.Append(t.Context(), batchOf("b", 0, 1, 100)) }},
				{"a new session", func() error { return s.Create(t.Context(), newSession("b"), nil) }},
				{"ping", func() error { return s.Ping(t.Context()) }},
			} {
				err := c.call()
				if !errors.Is(err, errDisk) || !strings.Contains(err.Error(), "open it anew") {
					t.Errorf("%s: %v, want the cause and the advice to open the store anew", c.what, err)
				}
			}
			if commits != 3 {
				t.Errorf("%d commits, want none after the failed one", commits-3)
			}
			lastSeq(t, s, "a") // reading goes on
			mustClose(t, s)

			s = open(t, dir)
			want := int64(2)
			if persisted {
				want = 4
			}
			if n := lastSeq(t, s, "a"); n != want {
				t.Errorf("opened anew, the log ends at %d, want %d", n, want)
			}
			mustAppend(t, s, lost) // the same way on, whatever has happened
			if n := lastSeq(t, s, "a"); n != 4 {
				t.Errorf("after the repeat, the log ends at %d, want 4", n)
			}
			mustClose(t, s)
		})
	}
}

// TestDiskFull fills the database to its cap and makes room again.
func TestDiskFull(t *testing.T) {
	s := open(t, t.TempDir(), withMaxBytes(512<<10))
	defer mustClose(t, s)
	mustCreate(t, s, "a", "b")
	var n int64
	for {
		err := s.Append(t.Context(), batchOf("a", n, 2, 8<<10))
		if err != nil {
			if code(err) != sqlite3.SQLITE_FULL {
				t.Fatalf("append to a full disk: %v, want SQLITE_FULL", err)
			}
			break
		}
		if n += 2; n > 64 {
			t.Fatalf("%d records of 8 KiB are in 512 KiB", n)
		}
	}
	if got := lastSeq(t, s, "a"); got != n {
		t.Errorf("the log ends at %d, want %d: a part of the failed append was written", got, n)
	}
	// Small appends take what room is left, and Ping does not mistake that for room.
	for m, err := int64(0), error(nil); err == nil; m++ {
		err = s.Append(t.Context(), batchOf("b", m, 1, 1000))
	}
	for range 3 {
		if err := s.Ping(t.Context()); code(err) != sqlite3.SQLITE_FULL {
			t.Errorf("ping on a full disk: %v, want SQLITE_FULL", err)
		}
	}

	if err := s.SetMaxBytes(t.Context(), 40<<20); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("ping after room was made: %v", err)
	}
	mustAppend(t, s, batchOf("a", n, 2, 8<<10))
	if got := lastSeq(t, s, "a"); got != n+2 {
		t.Errorf("the log ends at %d, want %d", got, n+2)
	}
}

func TestWriterEmptiesLargeWAL(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	defer mustClose(t, s)
	mustCreate(t, s, "a")
	mustAppend(t, s, batchOf("a", 0, 4, 256<<10))
	size := func() int64 {
		info, err := os.Stat(filepath.Join(dir, "agentd.db-wal"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	if size() < 1<<20 {
		t.Fatalf("the WAL has %d bytes, want a MiB to begin with", size())
	}
	err := s.write(t.Context(), 0, func(*tx) (refusal, fault error) {
		s.writer.walNext, s.writer.unlooked = 1<<20, lookBytes
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, batchOf("a", 4, 1, 100)) // after the trim
	if size() >= 1<<20 {
		t.Errorf("the WAL has %d bytes, want it emptied", size())
	}
	if n := lastSeq(t, s, "a"); n != 5 {
		t.Errorf("the log ends at %d, want 5", n)
	}
}
