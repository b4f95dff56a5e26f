package pgserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/internal/test/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

const patience = 30 * time.Second

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func query[T any](t *testing.T, conn *pgx.Conn, sql string) (v T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func run(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// Each URL is a database of its own, of somebody who is no superuser; it is gone after the test.
func TestURL(t *testing.T) {
	var first string
	t.Run("first", func(t *testing.T) {
		first = pgserver.URL(t)
		conn := connect(t, first)
		run(t, conn, "CREATE TABLE x (v text)")
		if query[string](t, conn, "SHOW is_superuser") != "off" {
			t.Error("the owner of the database is a superuser")
		}
		if !query[bool](t, conn, "SELECT 'a' < 'B'") {
			t.Error("text is compared by its bytes")
		}
	})
	conn := connect(t, pgserver.URL(t))
	if n := query[int](t, conn, "SELECT count(*) FROM pg_tables WHERE tablename = 'x'"); n != 0 {
		t.Error("two databases are one")
	}
	if other, err := pgx.Connect(t.Context(), first); err == nil {
		_ = other.Close(t.Context())
		t.Error("the database outlives its test")
	}
}

// What is committed outlives a crash.
func TestKill(t *testing.T) {
	t.Parallel()
	s := pgserver.Start(t, pgserver.Options{Fsync: true, Settings: map[string]string{"max_connections": "20"}})
	url := s.URL(t)
	conn := connect(t, url)
	if query[string](t, conn, "SHOW fsync") != "on" || query[string](t, conn, "SHOW max_connections") != "20" {
		t.Error("the server has other settings")
	}
	run(t, conn, "CREATE TABLE x AS SELECT 1 AS v")
	s.Kill()
	if _, err := conn.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("a killed server answers")
	}
	s.Restart()
	if n := query[int](t, connect(t, url), "SELECT count(*) FROM x"); n != 1 {
		t.Errorf("%d rows after the crash", n)
	}
	s.Stop()
	if _, err := pgx.Connect(t.Context(), url); err == nil {
		t.Error("a stopped server answers")
	}
	s.Restart()
	connect(t, url)
}

// A frozen server answers nothing, and continues where it was.
func TestFreeze(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the children of a server are found on Linux alone")
	}
	s := pgserver.Start(t, pgserver.Options{})
	url := s.URL(t)
	conn := connect(t, url)
	s.Freeze()
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "SELECT 1")
		answered <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := pgx.Connect(ctx, url); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen server answers a new connection: %v", err)
	}
	select {
	case err := <-answered:
		t.Errorf("a frozen server answers: %v", err)
	default:
	}
	s.Thaw()
	if err := <-answered; err != nil {
		t.Error(err)
	}
	s.Freeze() // the end of the test removes it all the same
}

// orphan has TestOrphan be the process that is killed.
const orphan = "PGSERVER_TEST_ORPHAN"

// The servers of a test that is killed end, also a frozen one, and their data is removed.
func TestOrphan(t *testing.T) {
	if os.Getenv(orphan) != "" {
		pgserver.URL(t)
		pgserver.Start(t, pgserver.Options{}).Freeze()
		fmt.Println("started")
		select {}
	}
	pgserver.URL(t) // skips without PostgreSQL
	t.Parallel()
	//nolint:usetesting // t.TempDir is closed to who runs the server in place of root
	dir, err := os.MkdirTemp("", "pgserver-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOrphan$", "-test.v")
	cmd.Env = append(os.Environ(), orphan+"=1", "TMPDIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "started"; {
		t.Log(lines.Text())
	}
	pids := postmasters(t, dir)
	if len(pids) != 2 {
		t.Errorf("%d servers run", len(pids))
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		left, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 && !slices.ContainsFunc(pids, runs) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("left are %v, of the servers %v", left, pids)
		}
	}
}

// postmasters are the processes of the servers with their data below dir.
func postmasters(t *testing.T, dir string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(text), "\n")
		pid, err := strconv.Atoi(first)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// runs says whether a process runs; one that has ended and that nobody has waited for does not.
func runs(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}
