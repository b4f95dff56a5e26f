package sqlitestore

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"
)

const ioErrorEnv = "SQLITESTORE_IOERROR_DIR"

// TestIOError has the kernel fail the writing of the WAL, in a process whose
// files may not grow past a limit, and looks at what is left.
func TestIOError(t *testing.T) {
	dir := os.Getenv(ioErrorEnv)
	if dir != "" {
		ioErrorChild(t, dir)
		return
	}
	dir = t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestIOError$", "-test.v")
	cmd.Env = append(os.Environ(), ioErrorEnv+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "the kernel refused") {
		t.Fatalf("child: %v\n%s", err, out)
	}
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
	signal.Ignore(syscall.SIGXFSZ)
	limit := syscall.Rlimit{Cur: 256 << 10, Max: 256 << 10}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
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
