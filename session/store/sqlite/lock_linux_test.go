package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func hardLinked(t *testing.T, dir string) string {
	t.Helper()
	other := t.TempDir()
	mustDo(t, os.Link(filepath.Join(dir, "agentd.db"), filepath.Join(other, "agentd.db")))
	return other
}

// TestHardLink (F40): see TestOtherNames.
func TestHardLink(t *testing.T) {
	t.Parallel()
	refusedElsewhere(t, hardLinked)
}

const (
	// mountEnv makes TestMountChild mount one path on another, given as FROM:TO, and
	// then do what TestOpenChild does.
	mountEnv = "SQLITESTORE_MOUNT"
	// copyEnv makes TestBackupChild copy the database of one path to another.
	copyEnv = "SQLITESTORE_COPY"
)

// TestMountChild is the process of TestBindMount.
func TestMountChild(t *testing.T) {
	from, to, ok := strings.Cut(os.Getenv(mountEnv), ":")
	if !ok {
		return
	}
	err := syscall.Mount(from, to, "", syscall.MS_BIND, "")
	if errors.Is(err, fs.ErrPermission) {
		fmt.Println("may not mount")
		return
	}
	mustDo(t, err)
	TestOpenChild(t)
}

// TestBindMount (F40): a database is locked for those who see it elsewhere.
func TestBindMount(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{"the file": "agentd.db", "its folder": "."} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, other := t.TempDir(), t.TempDir()
			s := open(t, dir)
			defer mustClose(t, s)
			mustCreate(t, s, "a")
			if file != "." {
				mustDo(t, os.WriteFile(filepath.Join(other, file), nil, 0o600))
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMountChild$")
			cmd.Env = append(os.Environ(), openDirEnv+"="+other, "GORACE=atexit_sleep_ms=0",
				fmt.Sprintf("%s=%s:%s", mountEnv, filepath.Join(dir, file), filepath.Join(other, file)))
			cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // its mounts are its own
			out, err := cmd.CombinedOutput()
			if errors.Is(err, fs.ErrPermission) || strings.HasPrefix(string(out), "may not mount\n") {
				t.Skip("this test mounts a file, which needs root (CAP_SYS_ADMIN)")
			}
			if err != nil || !strings.HasPrefix(string(out), "locked\n") {
				t.Errorf("the process says %q, %v, want that the database is locked", out, err)
			}
			mustAppend(t, s, batchOf("a", 0, 1, 10))
		})
	}
}

// TestRefusalKeepsSQLitesLocks: to close any descriptor of a file drops all locks that a
// process has on it with fcntl, which are SQLite's. It is not parallel: it looks at all locks of
// this process.
func TestRefusalKeepsSQLitesLocks(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	defer mustClose(t, s)
	mustCreate(t, s, "a")
	path := filepath.Join(dir, "agentd.db")
	before := locksHere(t)
	if !strings.Contains(before, "POSIX") || !strings.Contains(before, "FLOCK") {
		t.Fatalf("the locks of an open database are %q, want SQLite's and the store's", before)
	}
	for _, other := range []string{path, filepath.Join(hardLinked(t, dir), "agentd.db"), filepath.Join(symlinkedFile(t, dir), "agentd.db")} {
		if _, err := openAs(t.Context(), other); !errors.Is(err, ErrLocked) {
			t.Errorf("open %s: %v", other, err)
		}
		if _, err := Copy(t.Context(), other, t.TempDir()); !errors.Is(err, ErrLocked) {
			t.Errorf("copy %s: %v", other, err)
		}
	}
	if after := locksHere(t); after != before {
		t.Errorf("the locks were %q and are %q", before, after)
	}
}

// locksHere returns the kernel's list of the locks of this process, without what changes.
func locksHere(t *testing.T) string {
	t.Helper()
	all, err := os.ReadFile("/proc/locks")
	var out []string
	for line := range strings.Lines(string(all)) {
		if strings.Contains(line, fmt.Sprintf(" %d ", os.Getpid())) {
			_, lock, _ := strings.Cut(line, ": ") // behind its number
			out = append(out, lock)
		}
	}
	if len(out) == 0 {
		t.Skipf("/proc/locks shows no locks of this process here: %v", err)
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

// TestKillFreesTheLock (F40) kills who has the database open: it is free at once, under each name.
func TestKillFreesTheLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mustClose(t, open(t, dir))
	o := startOpener(t, dir)
	if said := o.says(t); said != "open" {
		t.Fatalf("the process says %q", said)
	}
	o.kill(t)
	mustClose(t, open(t, dir))
	mustClose(t, open(t, hardLinked(t, dir)))
}

// TestBackupChild is the process of TestBackup.
func TestBackupChild(t *testing.T) {
	from, to, ok := strings.Cut(os.Getenv(copyEnv), ":")
	if !ok {
		return
	}
	db, err := sql.Open("sqlite", "file:"+from+"?mode=ro")
	mustDo(t, err)
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "VACUUM INTO ?", to); err != nil {
		t.Fatal(err)
	}
}

// TestBackup has another process copy a database that is open, by SQLite's own means.
func TestBackup(t *testing.T) {
	t.Parallel()
	dir, into := t.TempDir(), t.TempDir()
	s := open(t, dir)
	defer mustClose(t, s)
	mustCreate(t, s, "a")
	mustAppend(t, s, batchOf("a", 0, 3, 1000))
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBackupChild$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s:%s", copyEnv, filepath.Join(dir, "agentd.db"), filepath.Join(into, "agentd.db")))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	backup := open(t, into)
	defer mustClose(t, backup)
	if n := lastSeq(t, backup, "a"); n != 3 {
		t.Errorf("the backup's log ends at %d, want 3", n)
	}
}
