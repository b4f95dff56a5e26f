package pgserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/internal/test/heldaddr"
)

// role owns the databases of tests. It is no superuser.
const role = "agentd"

// Options are for a server of a test's own.
type Options struct {
	// Fsync has the server write to the disk what it acknowledges. Without, a crash of the server loses nothing either:
	// only a crash of the machine would.
	Fsync bool
	// Settings are parameters of postgresql.conf.
	Settings map[string]string
}

// Server is a PostgreSQL server. Its methods must not be called at the same time, except URL.
type Server struct {
	t         testing.TB // nil of the server that all tests share
	c         *cluster
	databases databases
}

// databases counts the databases of a server.
type databases struct {
	mu sync.Mutex
	n  int
}

// one is the server that the tests of this process share.
var one struct {
	mu  sync.Mutex
	s   *Server
	err error
}

// URL makes an empty database on the server that the tests of this process share, and drops it at the end of the test,
// whoever is connected to it. The URL has a password.
func URL(t testing.TB) string {
	t.Helper()
	bin := programs(t)
	one.mu.Lock()
	if one.s == nil && one.err == nil {
		one.s, one.err = shared(bin)
	}
	s, err := one.s, one.err
	one.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	return s.URL(t)
}

func shared(bin string) (*Server, error) {
	addr, _, err := heldaddr.Hold() // as long as the process lives
	if err != nil {
		return nil, err
	}
	c, err := newCluster(bin, addr, Options{})
	if err != nil {
		return nil, err
	}
	return &Server{c: c}, nil
}

// Start starts a server that ends with the test.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	c, err := newCluster(programs(t), heldaddr.New(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of PostgreSQL ends with:\n%s", c.logged())
		}
		if err := c.remove(); err != nil {
			t.Error(err)
		}
	})
	return &Server{t: t, c: c}
}

// URL makes an empty database, which is dropped with the server, or with the test if tests share the server.
func (s *Server) URL(t testing.TB) string {
	t.Helper()
	s.databases.mu.Lock()
	s.databases.n++
	name := "test" + strconv.Itoa(s.databases.n)
	s.databases.mu.Unlock()
	if err := s.c.do(t.Context(), "CREATE DATABASE "+name+" OWNER "+role); err != nil {
		t.Fatal(err)
	}
	if s.t == nil {
		t.Cleanup(func() {
			if err := s.c.do(context.WithoutCancel(t.Context()), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
				t.Error(err)
			}
		})
	}
	return s.c.url(role, name)
}

// Addr is the server's host and port.
func (s *Server) Addr() string { return s.c.addr }

// Kill ends the server and all its processes with SIGKILL.
func (s *Server) Kill() { s.must(s.c.kill()) }

// Stop has the server end: it breaks the connections of clients and undoes what they have not committed.
func (s *Server) Stop() { s.must(s.c.stop(os.Interrupt)) }

// Restart starts a server that was killed or stopped, with its data and on its address, and waits until it answers.
func (s *Server) Restart() { s.must(s.c.start()) }

// Freeze stops all processes of the server with SIGSTOP: connections stay, and nothing is answered.
func (s *Server) Freeze() { s.must(s.c.freeze()) }

// Thaw has a frozen server continue.
func (s *Server) Thaw() { s.must(s.c.thaw()) }

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Errorf("PostgreSQL: %v", err)
	}
}

// do runs a statement as the superuser. It waits for no synchronous standby: a test may name one that does not exist.
func (c *cluster) do(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, c.url("postgres", "postgres")+"&synchronous_commit=local")
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

func (c *cluster) url(user, database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(user, c.password), Host: c.addr, Path: "/" + database}
	u.RawQuery = "sslmode=disable"
	return u.String()
}

// programs is the folder with PostgreSQL's programs.
func programs(t testing.TB) string {
	t.Helper()
	for _, dir := range folders() {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir
		}
	}
	const missing = "PostgreSQL is missing: scripts/postgres installs it, AGENTD_POSTGRES_BIN names its folder"
	if os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// folders are where the programs may be, best first.
func folders() []string {
	if !supported {
		return nil
	}
	if dir := os.Getenv("AGENTD_POSTGRES_BIN"); dir != "" {
		return []string{dir}
	}
	var dirs []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if program, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres")); err == nil {
			dirs = append(dirs, filepath.Dir(program))
		}
	}
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(debian, func(a, b string) int { return version(b) - version(a) })
	return append(dirs, debian...)
}

// version is the number of the version in the name of a folder of Debian.
func version(dir string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	if err != nil {
		return 0
	}
	return n
}

// settings are the parameters of a server, for a machine that runs many tests.
func settings(addr string, o Options) []string {
	host, port, _ := strings.Cut(addr, ":")
	all := map[string]string{
		"listen_addresses": host, "port": port, "unix_socket_directories": "", "max_connections": "200",
		"shared_buffers": "32MB", "min_wal_size": "32MB", "max_wal_size": "256MB", "jit": "off",
		"fsync": "off", "full_page_writes": "off", "log_line_prefix": "%m [%p] ",
		"timezone": "UTC", "log_timezone": "UTC",
	}
	if o.Fsync {
		all["fsync"], all["full_page_writes"] = "on", "on"
	}
	maps.Copy(all, o.Settings)
	var args []string
	for name, value := range all {
		args = append(args, "-c", fmt.Sprintf("%s=%s", name, value))
	}
	return args
}

// Move has the server keep a database, which nobody is connected to, in an empty folder.
func (s *Server) Move(database, dir string) {
	s.t.Helper()
	u, err := url.Parse(database)
	name := ""
	if err == nil {
		name, err = strings.TrimPrefix(u.Path, "/"), hand(dir)
	}
	for _, statement := range []string{
		"CREATE TABLESPACE in_" + name + " LOCATION '" + dir + "'",
		"ALTER DATABASE " + name + " SET TABLESPACE in_" + name,
	} {
		if err == nil {
			err = s.c.do(s.t.Context(), statement)
		}
	}
	if err != nil {
		s.t.Fatal(err)
	}
}
