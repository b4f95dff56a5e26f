package sqlite

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/apzuk3/agentd/session/store"
)

const ioErrorEnv = "SQLITESTORE_IOERROR_DIR"

// TestCheckpointFails has the kernel fail the writing of the database by a checkpoint, in such
// a process: nothing is acknowledged from then on, and all that was is there.
func TestCheckpointFails(t *testing.T) {
	dir := os.Getenv(ioErrorEnv)
	if dir != "" {
		checkpointChild(t, dir)
		return
	}
	dir = t.TempDir()
	inChild(t, dir)
	s := open(t, dir)
	defer mustClose(t, s)
	if n := lastSeq(t, s, "a"); n < 2 {
		t.Errorf("the log ends at %d, want what was acknowledged", n)
	}
	mustAppend(t, s, batchOf("a", lastSeq(t, s, "a"), 1, 10))
}

func checkpointChild(t *testing.T, dir string) {
	s := open(t, dir)
	mustCreate(t, s, "a")
	limitFiles(t, 4<<20)
	for n := int64(0); ; n++ {
		if n == 100 {
			t.Fatal("no checkpoint fails")
		}
		mustAppend(t, s, batchOf("a", n, 1, 1<<20))
		if err := s.writer.checkpoints.checkpoint(); err != nil {
			t.Logf("the kernel refused: %v", err)
			break
		}
	}
	last := lastSeq(t, s, "a")
	for _, err := range []error{s.Append(t.Context(), batchOf("a", last, 1, 1)), s.Ping(t.Context())} {
		if !errors.Is(err, store.ErrFailed) || !strings.Contains(err.Error(), "checkpoint") {
			t.Errorf("after the failure: %v, want %v by the checkpoint", err, store.ErrFailed)
		}
	}
	_ = s.Close() // folding the WAL in hits the limit as well
}

// inChild runs the test in a process of its own, which is to say that the kernel refused.
func inChild(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), ioErrorEnv+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "the kernel refused") {
		t.Fatalf("child: %v\n%s", err, out)
	}
}

// limitFiles bounds how long the files of this process may grow.
func limitFiles(t *testing.T, n uint64) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
		t.Fatal(err)
	}
}

// TestIOError has the kernel fail the writing of the WAL, in a process whose
// files may not grow past a limit, and looks at what is left.
func TestIOError(t *testing.T) {
	dir := os.Getenv(ioErrorEnv)
	if dir != "" {
		ioErrorChild(t, dir)
		return
	}
	dir = t.TempDir()
	inChild(t, dir)
	s := open(t, dir)
	defer mustClose(t, s)
	if n := wholeBatches(t, s, "a"); n == 0 {
		t.Error("nothing is left")
	}
	b := crashBatch("a", lastSeq(t, s, "a"))
	mustAppend(t, s, b)
}

func ioErrorChild(t *testing.T, dir string) {
	s := open(t, dir)
	mustCreate(t, s, "a")
	limitFiles(t, 512<<10)
	var last int64
	for {
		b := crashBatch("a", last)
		err := s.Append(t.Context(), b)
		if err == nil {
			last += int64(len(b.Records))
			continue
		}
		if code(err) != sqlite3.SQLITE_IOERR {
			t.Fatalf("append: %v, want SQLITE_IOERR", err)
		}
		break
	}
	if n := wholeBatches(t, s, "a"); n != last {
		t.Errorf("the log ends at %d, %d was acknowledged", n, last)
	}
	for _, err := range []error{s.Append(t.Context(), crashBatch("a", last)), s.Ping(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "open it anew") {
			t.Errorf("after the failure: %v, want the advice to open the store anew", err)
		}
	}
	t.Logf("the kernel refused to write past %d records", last)
	if err := s.Close(); err != nil && !errors.Is(err, errClosed) {
		t.Logf("close: %v", err) // folding the WAL in may hit the limit as well
	}
}
