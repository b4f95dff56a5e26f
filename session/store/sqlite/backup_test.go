package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/apzuk3/agentd/session/store"
)

// openToRead opens a database for reading until the test ends.
func openToRead(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, Config{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustClose(t, s) })
	return s
}

// backup copies a database and returns the copy.
func backup(t *testing.T, path string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "backup.db")
	if err := openToRead(t, path).Backup(t.Context(), file, nil); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestBackupHoldsWhatTheWALHolds backs up a store in use: what is in its WAL alone is in the copy, which is
// one file for its owner.
func TestBackupHoldsWhatTheWALHolds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	defer mustClose(t, s)
	mustCreate(t, s, "a")
	mustAppend(t, s, batchOf("a", 0, 50, 500))
	path := filepath.Join(dir, "agentd.db")
	var progress int
	file := filepath.Join(t.TempDir(), "backup.db")
	r := openToRead(t, path)
	err := r.Backup(t.Context(), file, func(done, total int64) {
		if progress++; done > total || total == 0 {
			t.Errorf("%d of %d bytes", done, total)
		}
	})
	if err != nil || progress == 0 {
		t.Fatalf("%v, %d times progress", err, progress)
	}
	info, err := os.Stat(file)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for _, beside := range []string{"-wal", "-shm", "-journal"} {
		if _, err := os.Stat(file + beside); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("there is a file %s: %v", beside, err)
		}
	}
	b := openToRead(t, file)
	if n := lastSeq(t, b, "a"); n != 50 {
		t.Errorf("the copy has %d records, want 50", n)
	}
	if problems, err := b.Integrity(t.Context()); err != nil || len(problems) > 0 {
		t.Errorf("%q, %v", problems, err)
	}
	if err := r.Backup(t.Context(), file, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second copy to the file: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Backup(ctx, file+"2", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a copy whose context has ended: %v", err)
	}
	if _, err := os.Stat(file + "2"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it has left a file: %v", err)
	}
	if err := s.Backup(t.Context(), file+"3", nil); err == nil {
		t.Error("a store that writes has made a copy")
	}
}

// TestBackupUnderLoad copies a database again and again while many sessions append: every log of every copy
// is a beginning of the log, in whole appends.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	defer mustClose(t, s)
	const sessions = 8
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{}, sessions)
	for i := range sessions {
		id := fmt.Sprint("s", i)
		mustCreate(t, s, id)
		go func() {
			defer func() { done <- struct{}{} }()
			for after := int64(0); ctx.Err() == nil; {
				b := crashBatch(id, after)
				if err := s.Append(context.Background(), b); err != nil {
					t.Error(err)
					return
				}
				after += int64(len(b.Records))
			}
		}()
	}
	var last [sessions]int64
	for range 5 {
		b := openToRead(t, backup(t, filepath.Join(dir, "agentd.db")))
		if problems, err := b.Integrity(t.Context()); err != nil || len(problems) > 0 {
			t.Errorf("%q, %v", problems, err)
		}
		for i := range sessions {
			n := wholeBatches(t, b, fmt.Sprint("s", i))
			if n < last[i] {
				t.Errorf("session %d ends at %d, in an earlier copy at %d", i, n, last[i])
			}
			last[i] = n
		}
	}
	cancel()
	for range sessions {
		<-done
	}
}

// TestReadOnly reads a database that is open elsewhere, in snapshots, and writes nothing.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	defer mustClose(t, s)
	mustCreate(t, s, "a")
	mustAppend(t, s, batchOf("a", 0, 3, 10))
	r := openToRead(t, filepath.Join(dir, "agentd.db"))
	err := r.Snapshot(t.Context(), func(ctx context.Context) error {
		if _, err := r.Head(ctx, "a"); err != nil {
			return err
		}
		mustAppend(t, s, batchOf("a", 3, 3, 10))
		if n := lastSeq(t, r, "a"); n != 3 {
			t.Errorf("the snapshot has %d records, want 3", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := lastSeq(t, r, "a"); n != 6 {
		t.Errorf("after the snapshot there are %d records, want 6", n)
	}
	for name, err := range map[string]error{
		"append":    r.Append(t.Context(), batchOf("a", 6, 1, 10)),
		"create":    r.Create(t.Context(), newSession("b"), nil),
		"ping":      r.Ping(t.Context()),
		"purge":     r.Purge(t.Context(), "a", 6),
		"cap":       r.SetMaxBytes(t.Context(), 1),
		"shared":    r.SetShared(t.Context(), []store.SharedValue{{Scope: "app", Key: "k"}}),
		"many":      r.AppendMany(t.Context(), []store.Batch{batchOf("a", 6, 1, 10)})[0],
		"attempts":  r.SetAttempts(t.Context(), "a", 1, false),
		"no shared": func() error { _, err := r.Shared(t.Context(), "app"); return err }(),
	} {
		if want := name != "no shared"; errors.Is(err, errReadOnly) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	for file, want := range map[string]string{"none.db": "no such file", "empty.db": "is empty", "text.db": "no SQLite database"} {
		path := filepath.Join(dir, file)
		text := map[string]string{"empty.db": "", "text.db": strings.Repeat("no database ", 1000)}
		if text, ok := text[file]; ok {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Open(t.Context(), path, Config{ReadOnly: true})
		if err == nil || file != "none.db" && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", file, err, want)
		}
	}
}

// killed returns a folder as a killed process leaves it: with a WAL.
func killed(t *testing.T, ids ...string) (path string) {
	t.Helper()
	dir, left := t.TempDir(), t.TempDir()
	s := open(t, dir)
	defer mustClose(t, s)
	mustCreate(t, s, ids...)
	for _, id := range ids {
		mustAppend(t, s, batchOf(id, 0, 5, 100))
	}
	for _, name := range []string{"agentd.db", "agentd.db-wal"} {
		if err := os.WriteFile(filepath.Join(left, name), readFile(t, dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(left, "agentd.db")
}

// TestRestore puts a copy in the place of a database that has a WAL: the old one is kept whole.
func TestRestore(t *testing.T) {
	t.Parallel()
	from := backup(t, killed(t, "new"))
	write := func(ctx context.Context, file string) error { return openToRead(t, from).Backup(ctx, file, nil) }
	path := killed(t, "old")
	if _, err := (Config{}).Restore(t.Context(), path, false, write); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("over a database with a session: %v", err)
	}
	fails := func(context.Context, string) error { return errors.New("no such copy") }
	if _, err := (Config{}).Restore(t.Context(), path, true, fails); err == nil || !strings.Contains(err.Error(), "no such copy") {
		t.Errorf("a copy that cannot be made: %v", err)
	}
	kept, err := Config{}.Restore(t.Context(), path, true, write)
	if err != nil || kept == "" {
		t.Fatalf("%q, %v", kept, err)
	}
	for file, want := range map[string]string{path: "new", kept: "old"} {
		s, err := Open(t.Context(), file, Config{})
		if err != nil {
			t.Fatal(err)
		}
		if n := lastSeq(t, s, want); n != 5 {
			t.Errorf("%s: %d records of session %s", file, n, want)
		}
		if _, err := (Config{}).Restore(t.Context(), file, true, write); !errors.Is(err, ErrLocked) {
			t.Errorf("over a database that is open: %v", err)
		}
		mustClose(t, s)
	}
	for _, where := range []string{filepath.Join(t.TempDir(), "none", "agentd.db"), emptyDatabase(t)} {
		if kept, err := (Config{}).Restore(t.Context(), where, false, write); err != nil || kept != "" {
			t.Errorf("over no sessions: %q, %v", kept, err)
		}
		if n := lastSeq(t, openToRead(t, where), "new"); n != 5 {
			t.Errorf("%d records", n)
		}
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.restore-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// emptyDatabase is a database without sessions.
func emptyDatabase(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	mustClose(t, open(t, dir))
	return filepath.Join(dir, "agentd.db")
}

// TestRestoreOverDamage keeps a database that cannot be opened, with its WAL.
func TestRestoreOverDamage(t *testing.T) {
	t.Parallel()
	path := killed(t, "old")
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	wal := bytes.Repeat([]byte("y"), 8192)
	if err := os.WriteFile(path+"-wal", wal, 0o600); err != nil {
		t.Fatal(err)
	}
	from := backup(t, killed(t, "new"))
	kept, err := Config{}.Restore(t.Context(), path, true, func(ctx context.Context, file string) error {
		return openToRead(t, from).Backup(ctx, file, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := lastSeq(t, openToRead(t, path), "new"); n != 5 {
		t.Errorf("%d records", n)
	}
	if got := readFile(t, filepath.Dir(kept), filepath.Base(kept)); got[0] != 'x' {
		t.Error("the old database is another")
	}
	if got, err := os.ReadFile(kept + "-wal"); err != nil || !bytes.Equal(got, wal) {
		t.Errorf("the WAL was not kept: %d bytes, %v", len(got), err)
	}
}

// TestCopyBeforeAnUpgrade: an older database is copied before its schema changes, once, and the last two
// such copies are kept.
func TestCopyBeforeAnUpgrade(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "agentd.db")
	var log bytes.Buffer
	logged := func(o *options) { o.log = slog.New(slog.NewTextHandler(&log, nil)) }
	versions := known(t)
	last, err := newest(versions)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, logged)
	mustCreate(t, s, "a")
	mustAppend(t, s, batchOf("a", 0, 5, 100))
	mustClose(t, s)
	if got := log.String(); strings.Count(got, "new, empty database") != 1 || strings.Contains(got, "copied") {
		t.Errorf("the first start logs %q", got)
	}
	for i := int64(1); i <= 3; i++ {
		versions[fmt.Sprintf("%05d_more.sql", last+i)] = &fstest.MapFile{
			Data: fmt.Appendf(nil, "-- +goose Up\nALTER TABLE sessions ADD COLUMN more%d INTEGER NOT NULL DEFAULT 0;\n", i),
		}
		log.Reset()
		mustClose(t, open(t, dir, logged, withMigrations(versions)))
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "copied before its schema is upgraded") {
			t.Errorf("upgrade %d logs %q", i, got)
		}
	}
	files, err := filepath.Glob(path + ".before-*")
	if err != nil || len(files) != 2 {
		t.Fatalf("there are %q, %v", files, err)
	}
	for _, file := range files {
		version, err := versionOf(t.Context(), file)
		if want := fmt.Sprintf("%s.before-%d", path, version+1); err != nil || file != want || version < last+1 {
			t.Errorf("%s has schema version %d, %v", file, version, err)
		}
	}
	mustClose(t, open(t, dir, logged, withMigrations(versions))) // nothing to upgrade
	if again, err := filepath.Glob(path + "*before*"); err != nil || len(again) != 2 {
		t.Errorf("there are %q, %v", again, err)
	}
	// An upgrade that was cut off after its first step: the copy from before that one stays.
	first, second := fmt.Sprintf("%s.before-%d", path, last+2), fmt.Sprintf("%s.before-%d", path, last+3)
	halfway, before := readFile(t, dir, filepath.Base(second)), readFile(t, dir, filepath.Base(first))
	for file, data := range map[string][]byte{path: halfway, second: before} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, open(t, dir, withMigrations(versions)))
	if !bytes.Equal(readFile(t, dir, filepath.Base(second)), before) {
		t.Error("the copy from before the upgrade was replaced")
	}
}

// TestReadOnlyOfAnOlderSchema reads a database that a daemon of this build would upgrade, and leaves it.
func TestReadOnlyOfAnOlderSchema(t *testing.T) {
	t.Parallel()
	dir := databaseOf(t, []string{"00001_logs.sql"},
		`INSERT INTO sessions (id, created_at, last_seq) VALUES ('s', 1700000000000001, 1)`,
		`INSERT INTO records (session_id, seq, turn_id, kind, time, data) VALUES ('s', 1, 'e-1', 'event', 1700000000000002, x'')`)
	before := readFile(t, dir, "agentd.db")
	path := filepath.Join(dir, "agentd.db")
	s, err := Open(t.Context(), path, Config{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	scratch := s.only.scratch
	if n := lastSeq(t, s, "s"); n != 1 {
		t.Errorf("%d records", n)
	}
	file := filepath.Join(t.TempDir(), "copy.db")
	if err := s.Backup(t.Context(), file, nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	if version, err := versionOf(t.Context(), file); err != nil || version != 1 {
		t.Errorf("the copy has schema version %d, %v", version, err)
	}
	if _, err := os.Stat(scratch); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", scratch, err)
	}
	if !bytes.Equal(readFile(t, dir, "agentd.db"), before) {
		t.Error("the database has changed")
	}
}

// TestAppendsPassALongReader: a reader that needs the WAL, such as a backup, does not hold up the writer when
// the WAL is due to be emptied.
func TestAppendsPassALongReader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	defer mustClose(t, s)
	mustCreate(t, s, "a")
	r := openToRead(t, filepath.Join(dir, "agentd.db"))
	err := r.Snapshot(t.Context(), func(ctx context.Context) error {
		if _, err := r.Head(ctx, "a"); err != nil {
			return err
		}
		err := s.write(ctx, 0, func(*tx) (refusal, fault error) {
			s.writer.walNext, s.writer.unlooked = 0, lookBytes
			return nil, nil
		})
		begun := time.Now()
		mustAppend(t, s, batchOf("a", 0, 1, 100))
		mustAppend(t, s, batchOf("a", 1, 1, 100))
		if took := time.Since(begun); took > busyMillis*time.Millisecond/2 {
			t.Errorf("two appends beside a reader took %v", took)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
