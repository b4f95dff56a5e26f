package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pressly/goose/v3"
	sqlite3 "modernc.org/sqlite/lib"
)

// applicationID is in the header of a database, so that other programs can tell what it is. Databases from
// before have 0.
const applicationID = 0x61676474

// readOnly is a database that is open for reading, on one connection, so that Snapshot can hold a
// transaction. It locks nothing that keeps a daemon out, unless Config.Alone says so.
type readOnly struct {
	path    string // without symlinks
	version int64  // of the schema
	file    *reading
	// upgraded is an upgraded copy of a database of an older schema, in the folder scratch; else nil.
	upgraded *reading
	scratch  string
}

// reading is a connection that reads a file.
type reading struct {
	db   *sql.DB
	conn *sql.Conn
}

// openReadOnly opens a database that exists.
func openReadOnly(ctx context.Context, path string, o *options) (_ *Store, err error) {
	if path, err = existing(path); err != nil {
		return nil, err
	}
	s := &Store{only: &readOnly{path: path}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	if o.alone {
		if s.hold, err = take(path, false, o); err != nil {
			return nil, err
		}
	}
	if s.only.file, err = openReading(ctx, path); err != nil {
		return nil, err
	}
	if s.only.version, err = s.only.file.schema(ctx); err != nil {
		return nil, err
	}
	want, err := newest(o.migrations)
	if err != nil {
		return nil, err
	}
	conn := s.only.file.conn
	switch {
	case s.only.version > want:
		return nil, newerSchema(s.only.version, want)
	case s.only.version < want && o.alone:
		return nil, fmt.Errorf("schema version is %d, want %d: an older agentd has written the database; "+
			"start agentd serve of this version on it, and stop it when it is ready", s.only.version, want)
	case s.only.version < want:
		if err := s.only.upgrade(ctx, o); err != nil {
			return nil, fmt.Errorf("upgrade a copy of schema version %d: %w", s.only.version, err)
		}
		conn = s.only.upgraded.conn
	}
	s.reads, err = prepareReads(ctx, conn)
	return s, err
}

// existing is the path of a database without symlinks. SQLite follows those too, and looks for the WAL
// beside the file that they lead to.
func existing(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if path, err = realPath(path, false); err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is no file", path)
	case info.Size() == 0:
		return "", errors.New("the file is empty, it is no agentd database")
	}
	return path, nil
}

// openReading opens a file for reading. A file that nobody has open, in a folder that cannot be written to,
// is opened as one that does not change.
func openReading(ctx context.Context, path string) (*reading, error) {
	params := pragmas("query_only(1)")
	params.Set("mode", "ro")
	r, err := connect(ctx, dsn(path, params))
	if err == nil {
		err = r.look(ctx)
	}
	_, none := os.Stat(path + "-wal")
	unwritable := code(err) == sqlite3.SQLITE_CANTOPEN || code(err) == sqlite3.SQLITE_READONLY
	if unwritable && errors.Is(none, fs.ErrNotExist) {
		params.Set("immutable", "1")
		err = r.close()
		if err == nil {
			r, err = connect(ctx, dsn(path, params))
		}
		if err == nil {
			err = r.look(ctx)
		}
	}
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// connect opens the one connection of a reading; after an error the result may be nil.
func connect(ctx context.Context, dsn string) (*reading, error) {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	r := &reading{db: db}
	r.conn, err = db.Conn(ctx)
	return r, err
}

// look reads the header, as every first statement does.
func (r *reading) look(ctx context.Context) error {
	_, err := r.number(ctx, "SELECT count(*) FROM sqlite_schema")
	if code(err) == sqlite3.SQLITE_NOTADB {
		return fmt.Errorf("it is no SQLite database: %w", err)
	}
	return err
}

// schema returns the version of the schema, and refuses what is no database of agentd.
func (r *reading) schema(ctx context.Context) (int64, error) {
	id, err := r.number(ctx, "PRAGMA application_id")
	if err != nil {
		return 0, err
	}
	tables, err := r.number(ctx, `SELECT count(*) FROM sqlite_schema
		WHERE type = 'table' AND name IN ('goose_db_version', 'sessions', 'records')`)
	switch {
	case err != nil:
		return 0, err
	case id != applicationID && id != 0:
		return 0, fmt.Errorf("it is the database of another program (application id %#x), not of agentd", id)
	case tables != 3:
		return 0, errors.New("it is no agentd database: the tables of sessions are missing")
	}
	return r.number(ctx, "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied = 1")
}

func (r *reading) number(ctx context.Context, query string) (n int64, err error) {
	err = r.conn.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

// close closes what is open; r may be nil.
func (r *reading) close() error {
	if r == nil {
		return nil
	}
	var errs []error
	if r.conn != nil {
		errs = append(errs, r.conn.Close())
	}
	return errors.Join(append(errs, r.db.Close())...)
}

// upgrade makes a copy of the database, brings its schema up to date and opens it.
func (r *readOnly) upgrade(ctx context.Context, o *options) (err error) {
	if r.scratch, err = os.MkdirTemp("", "agentd-read-"); err != nil {
		return err
	}
	path := filepath.Join(r.scratch, filepath.Base(r.path))
	if err := copyPages(ctx, r.file.conn, path, nil); err != nil {
		return err
	}
	s, err := openAs(ctx, path, func(own *options) {
		own.anyFiles, own.migrations, own.unsaved = true, o.migrations, true
	})
	if err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	r.upgraded, err = openReading(ctx, path)
	return err
}

func (r *readOnly) close() error {
	errs := []error{r.file.close(), r.upgraded.close()}
	if r.scratch != "" {
		errs = append(errs, os.RemoveAll(r.scratch))
	}
	return errors.Join(errs...)
}

// current is the connection that has the schema of this program.
func (r *readOnly) current() *reading {
	if r.upgraded != nil {
		return r.upgraded
	}
	return r.file
}

// newest is the last schema version among migrations, whose files begin with it.
func newest(migrations fs.FS) (version int64, err error) {
	files, err := fs.Glob(migrations, "*.sql")
	for _, name := range files {
		n, err := goose.NumericComponent(name)
		if err != nil {
			return 0, fmt.Errorf("migration %s: %w", name, err)
		}
		version = max(version, n)
	}
	return version, err
}

// newerSchema is the error of a database that a newer build has written.
func newerSchema(have, want int64) error {
	return fmt.Errorf("schema version is %d, this program knows versions up to %d: "+
		"a newer agentd has written the database; run that one, or restore a copy from before", have, want)
}

// Snapshot has the reads of f see one state of a read-only store, whatever is written meanwhile. While f
// runs, the WAL keeps what is written. In any other store f sees each write.
func (s *Store) Snapshot(ctx context.Context, f func(context.Context) error) error {
	if s.only == nil {
		return f(ctx)
	}
	conn := s.only.current().conn
	if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
		return fmt.Errorf("sqlite: begin a snapshot: %w", named(err))
	}
	err := f(ctx)
	if _, end := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK"); err == nil && end != nil {
		err = fmt.Errorf("sqlite: end a snapshot: %w", named(end))
	}
	return err
}
