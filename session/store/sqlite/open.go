package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

//go:embed migrations/*.sql
var migrations embed.FS

// busyMillis is how long a statement waits for a lock. Only a foreign program (a backup, say) can hold one
// against the writer.
const busyMillis = 5000

// pageBytes is SQLite's default page size, which the database is made with.
const pageBytes = 4096

func openMemory(ctx context.Context, _ string, o *options) (*Store, error) {
	db, err := sql.Open("sqlite", Memory+"?"+writerPragmas(o).Encode())
	if err != nil {
		return nil, err
	}
	s := &Store{}
	if s.writer, err = newDatabase(ctx, db, "", o); err != nil {
		return nil, err
	}
	if s.reads, err = prepareReads(ctx, s.writer.conn); err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

func openFile(ctx context.Context, path string, o *options) (_ *Store, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if _, err := onNetwork(filepath.Dir(path), o); err != nil { // before anything is made in it
		return nil, err
	}
	s := &Store{}
	if s.hold, err = take(path, true, o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	path = s.hold.path
	o.fresh = s.hold.info.Size() == 0
	if n := links(s.hold.info); n > 1 {
		o.log.Warn("the database has several names (hard links): open it by one of them alone, "+
			"for what it has in its WAL is found by that name",
			slog.String("path", path), slog.Uint64("names", n))
	}

	db, err := sql.Open("sqlite", dsn(path, writerPragmas(o)))
	if err != nil {
		return nil, err
	}
	wal := path + "-wal"
	left, _ := os.Stat(wal) // by a process that was killed
	if s.writer, err = newDatabase(ctx, db, wal, o); err != nil {
		return nil, err
	}
	s.writer.hold = s.hold
	beside := sql.OpenDB(other{db.Driver(), dsn(path, pragmas(durable...)), s.hold})
	s.writer.checkpoints = newCheckpointer(beside, o.log)
	go s.writer.checkpoints.run()
	if err := s.writer.modernize(path); err != nil {
		return nil, err
	}
	if err := s.writer.owesScrub(); err != nil {
		return nil, err
	}
	if left != nil && left.Size() > 0 {
		s.writer.tidyLater(tidyDelay)
	}
	ro := pragmas("query_only(1)")
	ro.Set("mode", "ro")
	s.readers = sql.OpenDB(other{db.Driver(), dsn(path, ro), s.hold})
	n := max(4, runtime.GOMAXPROCS(0))
	s.readers.SetMaxOpenConns(n)
	s.readers.SetMaxIdleConns(n)
	if s.reads, err = prepareReads(o.rest(ctx), s.readers); err != nil {
		return nil, err
	}
	return s, nil
}

// other opens the connections beside the writer's, unless the database was moved: SQLite opens what has its
// name.
type other struct {
	driver driver.Driver
	dsn    string
	hold   *hold
}

func (r other) Driver() driver.Driver { return r.driver }

func (r other) Connect(context.Context) (driver.Conn, error) {
	conn, err := r.driver.Open(r.dsn)
	moved := r.hold.moved()
	if moved == nil {
		return conn, err
	}
	if err == nil {
		moved = errors.Join(moved, conn.Close())
	}
	return nil, moved
}

// newDatabase takes over db and brings its schema up to date.
func newDatabase(ctx context.Context, db *sql.DB, wal string, o *options) (*writer, error) {
	// One connection, kept: it holds the pragmas, and in memory the data.
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	if err := migrate(ctx, db, strings.TrimSuffix(wal, "-wal"), o); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return newWriter(o.rest(ctx), db, wal, o)
}

// migrate brings the schema up to date, that of an empty database by one script. path is that of the
// database, "" in memory.
func migrate(ctx context.Context, db *sql.DB, path string, o *options) error {
	durable, made := path != "", false
	var mode string
	if err := db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return fmt.Errorf("read the journal mode: %w", err)
	}
	if durable && mode != "wal" {
		return fmt.Errorf("journal mode is %q, want wal: "+
			"the file system must have shared memory, which those on a network lack", mode)
	}
	if o.schema != "" {
		var err error
		if made, err = create(ctx, db, o.schema); err != nil {
			return err
		}
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, o.migrations,
		goose.WithDisableGlobalRegistry(true), goose.WithSlog(slog.New(slog.DiscardHandler)))
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	have, want, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read the schema version: %w", err)
	}
	if have > want {
		return newerSchema(have, want)
	}
	if durable && 0 < have && have < want && !o.unsaved {
		if err := (upgrade{path, have, want, o.log}).save(ctx, db); err != nil {
			return err
		}
		o.saved = true
	}
	ctx = o.rest(ctx)
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("bring the schema from version %d to %d: %w", have, want, err)
	}
	if durable && (made || have == 0) {
		o.log.Info("new, empty database", slog.String("path", path))
	}
	return mark(ctx, db)
}

// save is saveBefore on the connection of db. It takes as long as the database is large, so the deadline of
// ctx does not count.
func (u upgrade) save(ctx context.Context, db *sql.DB) error {
	ctx = context.WithoutCancel(ctx)
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	return errors.Join(u.saveBefore(ctx, conn), conn.Close())
}

// mark writes the application id into a database that has none.
func mark(ctx context.Context, db *sql.DB) error {
	var id int64
	err := db.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id)
	if err == nil && id == 0 {
		_, err = db.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d", applicationID))
	}
	if err != nil {
		return fmt.Errorf("mark the database as one of agentd: %w", err)
	}
	return nil
}

// durable are the pragmas of connections that write.
var durable = []string{
	"synchronous(FULL)",
	"fullfsync(1)", // where fsync alone does not reach the disk
}

func writerPragmas(o *options) url.Values {
	list := []string{
		"journal_mode(WAL)",
		"secure_delete(ON)", // zeros in place of what is deleted
		"foreign_keys(1)",
		"wal_autocheckpoint(0)", // see checkpointer
		fmt.Sprintf("journal_size_limit(%d)", walBytes),
	}
	list = append(list, durable...)
	if o.fresh { // the journal mode makes the first page
		list = append([]string{"auto_vacuum(INCREMENTAL)"}, list...)
		list = append(list, fmt.Sprintf("user_version(%d)", scrubbed))
	}
	if o.maxBytes > 0 {
		list = append(list, fmt.Sprintf("max_page_count(%d)", max(1, o.maxBytes/pageBytes)))
	}
	return pragmas(list...)
}

// pragmas returns driver parameters that run the pragmas on each connection.
func pragmas(list ...string) url.Values {
	return url.Values{"_pragma": append([]string{fmt.Sprintf("busy_timeout(%d)", busyMillis)}, list...)}
}

// dsn returns the URI of an absolute path, in which no character is special.
func dsn(path string, params url.Values) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a drive letter
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: params.Encode()}).String()
}
