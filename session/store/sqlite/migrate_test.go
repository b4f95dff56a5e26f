package sqlite

import (
	"bufio"
	"bytes"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"modernc.org/sqlite"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// The environment of TestOpenChild: where to open the store, whether with next
// after the known migrations, and where the schema's script or a migration hangs: the file, a colon, and
// after how many statements.
const (
	openDirEnv  = "SQLITESTORE_OPEN_DIR"
	openNextEnv = "SQLITESTORE_OPEN_NEXT"
	openHangEnv = "SQLITESTORE_OPEN_HANG"
)

// next is a migration that a later version might bring.
const next = `-- +goose Up
ALTER TABLE sessions ADD COLUMN label TEXT NOT NULL DEFAULT '';
UPDATE sessions SET label = 'from before';
CREATE INDEX sessions_by_label ON sessions (label);
`

const (
	nextFile   = "99999_next.sql"
	schemaFile = "schema.sql"
)

// known returns the migrations of this program.
func known(t *testing.T) fstest.MapFS {
	t.Helper()
	m := fstest.MapFS{}
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		data, err := fs.ReadFile(migrations, name)
		if err != nil {
			t.Fatal(err)
		}
		m[path.Base(name)] = &fstest.MapFile{Data: data}
	}
	return m
}

// later returns the migrations of a later program.
func later(t *testing.T) fstest.MapFS {
	t.Helper()
	m := known(t)
	m[nextFile] = &fstest.MapFile{Data: []byte(next)}
	return m
}

// statementsOf returns how many statements a migration or the schema's script has.
func statementsOf(script string) int { return strings.Count(script, ";\n") }

func hangAfter(script string, statements int) string {
	const up = "-- +goose Up\n"
	head, rest := "", script
	if before, after, migration := strings.Cut(script, up); migration {
		head, rest = before+up, after
	}
	for range statements {
		statement, after, _ := strings.Cut(rest, ";\n")
		head, rest = head+statement+";\n", after
	}
	return head + "SELECT hang();\n" + rest
}

// withMigrations has them make also the schema of an empty database.
func withMigrations(dir fs.FS) option {
	return func(o *options) { o.schema, o.migrations = "", dir }
}

// opener is a process that opens a store.
type opener struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	stdin interface{ Close() error }
}

func startOpener(t *testing.T, dir string, env ...string) *opener {
	t.Helper()
	o := &opener{cmd: exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOpenChild$")}
	o.cmd.Env = append(append(os.Environ(), openDirEnv+"="+dir, "GORACE=atexit_sleep_ms=0"), env...)
	o.cmd.Stderr = os.Stderr
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if o.stdin, err = o.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o.lines = bufio.NewScanner(out)
	return o
}

// says returns the next thing that the process says.
func (o *opener) says(t *testing.T) string {
	t.Helper()
	if !o.lines.Scan() {
		t.Fatalf("the process says no more: %v", o.lines.Err())
	}
	return o.lines.Text()
}

func (o *opener) kill(t *testing.T) {
	t.Helper()
	if err := o.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := o.cmd.Wait(); err == nil {
		t.Fatal("the process was not killed")
	}
}

// TestOpenChild opens a store, says what came of it and stays until its stdin
// closes.
func TestOpenChild(t *testing.T) {
	dir := os.Getenv(openDirEnv)
	if dir == "" {
		return
	}
	var opts []option
	dirFS := known(t)
	if os.Getenv(openNextEnv) != "" {
		dirFS = later(t)
		opts = append(opts, withMigrations(dirFS))
	}
	if at := os.Getenv(openHangEnv); at != "" {
		file, n, _ := strings.Cut(at, ":")
		statements, err := strconv.Atoi(n)
		if err != nil {
			t.Fatal(err)
		}
		if file == schemaFile {
			opts = append(opts, func(o *options) { o.schema = hangAfter(o.schema, statements) })
		} else {
			dirFS[file].Data = []byte(hangAfter(string(dirFS[file].Data), statements))
			opts = append(opts, withMigrations(dirFS))
		}
		sqlite.MustRegisterScalarFunction("hang", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
			fmt.Println("hangs")
			time.Sleep(time.Hour)
			return nil, errors.New("nobody has killed this process")
		})
	}
	s, err := openAs(t.Context(), filepath.Join(dir, "agentd.db"), opts...)
	switch {
	case errors.Is(err, ErrLocked):
		fmt.Println("locked")
		return
	case err != nil:
		t.Fatal(err)
	}
	defer mustClose(t, s)
	fmt.Println("open")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// TestKilledMigration (F34) kills a process in the middle of making the schema,
// and of bringing it to a later version: the next one completes it. Until then, the
// earlier program finds all as it was.
func TestKilledMigration(t *testing.T) {
	t.Parallel()
	scripts := known(t)
	scripts[schemaFile] = &fstest.MapFile{Data: []byte(schema)}
	for file, script := range scripts {
		for at := range statementsOf(string(script.Data)) + 1 {
			t.Run(fmt.Sprintf("%s, after %d", file, at), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				killAt(t, dir, file, at)
				s := open(t, dir)
				defer mustClose(t, s)
				mustCreate(t, s, "a")
				mustAppend(t, s, crashBatch("a", 0))
				wholeBatches(t, s, "a")
			})
		}
	}
	for at := range statementsOf(next) + 1 {
		t.Run(fmt.Sprintf("next, after %d", at), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir)
			mustCreate(t, s, "a")
			mustAppend(t, s, crashBatch("a", 0))
			mustClose(t, s)
			killAt(t, dir, nextFile, at, openNextEnv+"=1")

			s = open(t, dir) // this program
			last := wholeBatches(t, s, "a")
			mustAppend(t, s, crashBatch("a", last))
			mustClose(t, s)

			s = open(t, dir, withMigrations(later(t)))
			if wholeBatches(t, s, "a") <= last {
				t.Error("the append between the programs is lost")
			}
			var label string
			if err := s.readers.QueryRowContext(t.Context(), "SELECT label FROM sessions").Scan(&label); err != nil || label != "from before" {
				t.Errorf("label is %q, %v: the migration is not complete", label, err)
			}
			mustClose(t, s)
			checkIntegrity(t, filepath.Join(dir, "agentd.db"))
		})
	}
}

// killAt kills a process that has done some statements of a migration.
func killAt(t *testing.T, dir, file string, statements int, env ...string) {
	t.Helper()
	o := startOpener(t, dir, append(env, fmt.Sprintf("%s=%s:%d", openHangEnv, file, statements))...)
	if said := o.says(t); said != "hangs" {
		t.Fatalf("the process says %q", said)
	}
	o.kill(t)
}

// TestTwoOpenersAtOnce (F34): one of those that open a fresh database at the same
// time makes it; the others are told at once that it is in use.
func TestTwoOpenersAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("goroutines", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "agentd.db")
		stores := make([]*Store, 8)
		errs := make([]error, len(stores))
		var wg sync.WaitGroup
		for i := range stores {
			wg.Go(func() { stores[i], errs[i] = openAs(t.Context(), file) })
		}
		wg.Wait()
		won := 0
		for i, s := range stores {
			switch {
			case errs[i] == nil:
				won++
				mustCreate(t, s, "a")
				mustClose(t, s)
			case !errors.Is(errs[i], ErrLocked) || !strings.Contains(errs[i].Error(), "another agentd holds"):
				t.Errorf("open: %v, want that it is in use", errs[i])
			}
		}
		if won != 1 {
			t.Errorf("%d have opened the database", won)
		}
	})
	t.Run("processes", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		var all []*opener
		for range 4 {
			all = append(all, startOpener(t, dir))
		}
		said := map[string]int{}
		for _, o := range all {
			said[o.says(t)]++
		}
		for _, o := range all {
			_ = o.stdin.Close()
			if err := o.cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
		if said["open"] != 1 || said["locked"] != 3 {
			t.Errorf("they say %v, want one that it is open", said)
		}
		s := open(t, dir)
		mustCreate(t, s, "a")
		mustClose(t, s)
	})
}

// TestNewerSchemaIsRefused (F33): a program that is older than the database says
// so and changes nothing; the newer one goes on with it.
func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	newer := withMigrations(later(t))
	latest := slices.Max(slices.Collect(maps.Keys(known(t)))) // names begin with the version, in five digits
	want := "schema version is 99999, this program knows versions up to " + strings.TrimLeft(latest[:5], "0")
	s := open(t, dir, newer)
	mustCreate(t, s, "a")
	mustAppend(t, s, crashBatch("a", 0))
	mustClose(t, s)
	before := readFile(t, dir, "agentd.db")
	for range 2 {
		_, err := openAs(t.Context(), filepath.Join(dir, "agentd.db"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("open: %v, want %q in it", err, want)
		}
	}
	if !bytes.Equal(readFile(t, dir, "agentd.db"), before) {
		t.Error("the refused program has changed the database")
	}
	s = open(t, dir, newer)
	defer mustClose(t, s)
	wholeBatches(t, s, "a")
}

// databaseOf makes a database by some of the migrations and runs queries on it. It
// returns the directory.
func databaseOf(t *testing.T, files []string, queries ...string) string {
	t.Helper()
	dir, some := t.TempDir(), fstest.MapFS{}
	for _, name := range files {
		some[name] = known(t)[name]
	}
	db, err := sql.Open("sqlite", dsn(filepath.Join(dir, "agentd.db"), pragmas("journal_mode(WAL)")))
	if err != nil {
		t.Fatal(err)
	}
	o := &options{migrations: some, log: slog.New(slog.DiscardHandler)}
	if err := migrate(t.Context(), db, filepath.Join(dir, "agentd.db"), o); err != nil {
		t.Fatal(err)
	}
	for _, query := range queries {
		if _, err := db.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestRowsOfSchema1 (F33) reads rows as the first version of the schema holds
// them, written out here so that no later code can change what they are.
func TestRowsOfSchema1(t *testing.T) {
	t.Parallel()
	dir := databaseOf(t, []string{"00001_logs.sql"},
		`INSERT INTO sessions (id, created_at, last_seq, open_turn) VALUES ('s', 1700000000000001, 3, 'e-2')`,
		`INSERT INTO records (session_id, seq, turn_id, kind, time, data) VALUES
			('s', 1, 'e-1', 'turn_started', 1700000000000002, CAST('{"prompt":"hi"}' AS BLOB)),
			('s', 2, 'e-1', 'turn_ended', 1700000000000003, x''),
			('s', 3, 'e-2', 'turn_started', 1700000000000004, x'00ff')`,
		`INSERT INTO shared (scope, key, value) VALUES ('user:local', 'k', CAST('{"n":1}' AS BLOB))`,
	)
	s := open(t, dir)
	defer mustClose(t, s)
	at := func(micros int64) time.Time { return time.UnixMicro(micros).UTC() }
	want := store.Head{ID: "s", CreatedAt: at(1700000000000001), LastSeq: 3, OpenTurn: "e-2", UpdatedAt: at(1700000000000004)}
	if head, err := s.Head(t.Context(), "s"); err != nil || head != want {
		t.Errorf("head is %+v, %v", head, err)
	}
	if open, err := s.OpenTurns(t.Context(), "", 10); err != nil || len(open) != 1 || open[0] != want {
		t.Errorf("open turns are %+v, %v", open, err)
	}
	log, err := s.Read(t.Context(), "s", 0, 10)
	if got := fmt.Sprintf("%+v", log); err != nil || got != fmt.Sprintf("%+v", []record.Record{
		{Seq: 1, TurnID: "e-1", Kind: record.KindTurnStarted, Time: at(1700000000000002), Data: []byte(`{"prompt":"hi"}`)},
		{Seq: 2, TurnID: "e-1", Kind: record.KindTurnEnded, Time: at(1700000000000003), Data: []byte{}},
		{Seq: 3, TurnID: "e-2", Kind: record.KindTurnStarted, Time: at(1700000000000004), Data: []byte{0, 0xff}},
	}) {
		t.Errorf("the log is %s, %v", got, err)
	}
	if shared, err := s.Shared(t.Context(), "user:local"); err != nil || len(shared) != 1 || string(shared["k"]) != `{"n":1}` {
		t.Errorf("shared values are %s, %v", shared, err)
	}
	mustAppend(t, s, store.Batch{SessionID: "s", After: 3, Records: []record.Record{
		{Seq: 4, TurnID: "e-2", Kind: record.KindTurnEnded, Time: at(1700000000000005), Data: []byte("{}")},
	}})
	want.LastSeq, want.OpenTurn, want.UpdatedAt = 4, "", at(1700000000000005)
	if idle, err := s.Idle(t.Context(), at(1700000000000006), 10); err != nil || len(idle) != 1 || idle[0] != want {
		t.Errorf("idle sessions are %+v, %v", idle, err)
	}
}

// TestRowsOfSchema2 (F33) reads rows as the second version of the schema holds
// them: what was written before there was an index says so until it has one.
func TestRowsOfSchema2(t *testing.T) {
	t.Parallel()
	dir := databaseOf(t, []string{"00001_logs.sql", "00002_purge.sql"},
		`INSERT INTO sessions (id, created_at, last_seq, open_turn, updated_at, purged) VALUES
			('empty', 1700000000000001, 0, '', 1700000000000001, 0),
			('idle', 1700000000000001, 2, '', 1700000000000003, 0),
			('more', 1700000000000000, 3, 'e-2', 1700000000000004, 2),
			('open', 1700000000000001, 1, 'e-1', 1700000000000002, 0),
			('purged', 1700000000000002, 2, '', 1700000000000003, 2)`,
		`INSERT INTO records (session_id, seq, turn_id, kind, time, data) VALUES
			('idle', 1, 'e-1', 'turn_started', 1700000000000002, x''),
			('idle', 2, 'e-1', 'turn_ended', 1700000000000003, x''),
			('more', 3, 'e-2', 'turn_started', 1700000000000004, x''),
			('open', 1, 'e-1', 'turn_started', 1700000000000002, x'00ff')`,
		`INSERT INTO shared (scope, key, value) VALUES ('app', 'k', CAST('1' AS BLOB))`,
	)
	at := func(micros int64) time.Time { return time.UnixMicro(1700000000000000 + micros).UTC() }
	newest := []store.Info{
		{Head: store.Head{ID: "purged", CreatedAt: at(2), LastSeq: 2, UpdatedAt: at(3), Purged: 2}},
		{Head: store.Head{ID: "open", CreatedAt: at(1), LastSeq: 1, OpenTurn: "e-1", UpdatedAt: at(2)}},
		{Head: store.Head{ID: "idle", CreatedAt: at(1), LastSeq: 2, UpdatedAt: at(3)}},
		{Head: store.Head{ID: "empty", CreatedAt: at(1), UpdatedAt: at(1)}},
		{Head: store.Head{ID: "more", CreatedAt: at(0), LastSeq: 3, OpenTurn: "e-2", UpdatedAt: at(4), Purged: 2}},
	}
	for i := range newest {
		newest[i].Version, newest[i].Creator = 1, "local"
	}
	idle, more, opened := newest[2].Head, newest[4].Head, newest[1].Head

	s := open(t, dir)
	got, err := s.Sessions(t.Context(), store.InfoQuery{Limit: 10})
	if err != nil || !reflect.DeepEqual(got, newest) {
		t.Errorf("the sessions are %+v, %v, want %+v", got, err, newest)
	}
	wantUnindexed(t, s, "", 10, idle, more, opened)
	wantUnindexed(t, s, "", 2, idle, more)
	wantUnindexed(t, s, "idle", 2, more, opened)

	// An append with rows is no index of what was there before.
	row := store.Row{Kind: store.RowTurn, SessionID: "open", ID: "e-1", TurnID: "e-1", Seq: 1, CreatedAt: at(2), Status: "over"}
	b := store.Batch{SessionID: "open", After: 1, Rows: []store.Row{row}}
	b.Records = []record.Record{{Seq: 2, TurnID: "e-1", Kind: record.KindTurnEnded, Time: at(9), Data: []byte("{}")}}
	mustAppend(t, s, b)
	opened.LastSeq, opened.OpenTurn, opened.UpdatedAt = 2, "", at(9)
	wantUnindexed(t, s, "", 10, idle, more, opened)
	if err := s.Index(t.Context(), store.Batch{SessionID: "open"}, 1); !errors.Is(err, store.ErrConflict) {
		t.Errorf("index of a log that has moved on: %v", err)
	}
	row.Status = "indexed"
	index := store.Batch{SessionID: "open", Rows: []store.Row{row}, LastTurn: "e-1", LastStatus: "indexed"}
	if err := s.Index(t.Context(), index, 2); err != nil {
		t.Fatal(err)
	}
	wantUnindexed(t, s, "", 10, idle, more)
	if err := s.Purge(t.Context(), "idle", 2); err != nil { // leaves nothing to index
		t.Fatal(err)
	}
	wantUnindexed(t, s, "", 10, more)
	mustCreate(t, s, "new")
	mustAppend(t, s, batchOf("new", 0, 1, 10))
	fork := store.Fork{From: "open", Seq: 2, Into: newSession("fork")}
	if err := s.Fork(t.Context(), fork); err != nil {
		t.Fatal(err)
	}
	wantUnindexed(t, s, "", 10, more)
	mustClose(t, s)

	s = open(t, dir)
	defer mustClose(t, s)
	wantUnindexed(t, s, "", 10, more)
	rows, err := s.Rows(t.Context(), store.RowQuery{Kind: store.RowTurn, Limit: 10})
	if err != nil || len(rows) != 1 || rows[0].Status != "indexed" {
		t.Errorf("the rows are %+v, %v", rows, err)
	}
	info, err := s.Info(t.Context(), "open")
	if err != nil || info.LastStatus != "indexed" || info.LastTurn != "e-1" {
		t.Errorf("the info is %+v, %v", info, err)
	}
}

func wantUnindexed(t *testing.T, s *Store, after string, limit int, want ...store.Head) {
	t.Helper()
	got, err := s.Unindexed(t.Context(), after, limit)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Unindexed(%q, %d) = %+v, %v, want %+v", after, limit, got, err, want)
	}
}
