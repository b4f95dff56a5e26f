package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// ErrNotEmpty means that Config.Restore would replace a database that holds something.
var ErrNotEmpty = errors.New("database is not empty")

// Restore puts a database in the place of the one at path, which may be missing. It returns ErrLocked while
// that one is open elsewhere, and keeps daemons out until it returns. write writes the new database to a
// file, which it makes itself, and verifies it; if it fails, everything is as it was.
//
// A database that holds something is replaced only if replace is set. It is kept beside path, as the file
// whose name is returned, with a WAL that could not be moved into it beside that. At every moment path leads
// to the old database or to the new one; only an old one that is damaged may lack its WAL there.
func (c Config) Restore(
	ctx context.Context, path string, replace bool, write func(ctx context.Context, file string) error,
) (kept string, err error) {
	r := restorer{path: path, replace: replace, options: options{anyFiles: c.NetworkFiles, network: networkOf}}
	defer func() {
		err = errors.Join(err, r.release())
		if err != nil {
			err = fmt.Errorf("sqlite: restore %s: %w", path, err)
		}
	}()
	if err := r.lock(ctx); err != nil {
		return "", err
	}
	part := fmt.Sprintf("%s.restore-%d", r.path, os.Getpid())
	if err := removeFiles(part); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, removeFiles(part)) }()
	if err := write(ctx, part); err != nil {
		return "", err
	}
	return r.move(part)
}

// restorer replaces one database.
type restorer struct {
	options
	path    string
	replace bool
	exists  bool // there is a database, empty or not
	full    bool // it holds something
	unread  bool // it cannot be read
	hold    *hold
	beside  *fileLock // where there is no database to lock
}

// lock keeps daemons out and looks at what is there.
func (r *restorer) lock(ctx context.Context) (err error) {
	if r.path, err = filepath.Abs(r.path); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.path), 0o700); err != nil {
		return err
	}
	if _, err := onNetwork(filepath.Dir(r.path), &r.options); err != nil {
		return err
	}
	switch _, err := os.Stat(r.path); {
	case errors.Is(err, fs.ErrNotExist):
		r.beside, err = lockFile(r.path + ".lock")
		return err
	case err != nil:
		return err
	}
	if r.hold, err = take(r.path, true, &r.options); err != nil {
		return err
	}
	r.path, r.exists = r.hold.path, true
	if r.full, err = holdsSomething(ctx, r.path); err != nil {
		r.full, r.unread = true, true
	}
	if r.full && !r.replace {
		return ErrNotEmpty
	}
	return nil
}

// holdsSomething reports whether a database has sessions or shared values.
func holdsSomething(ctx context.Context, path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil || info.Size() == 0 {
		return false, err
	}
	rd, err := openReading(ctx, path)
	if err != nil {
		return false, err
	}
	n, err := rd.number(ctx, "SELECT (SELECT count(*) FROM sessions) + (SELECT count(*) FROM shared)")
	return n > 0, errors.Join(err, rd.close())
}

// move puts a file in the place of the database. First the old one becomes a single file: what a killed
// process has left in its WAL would be taken for that of the new one.
func (r *restorer) move(part string) (kept string, err error) {
	if r.exists && !r.unread {
		_ = foldWAL(r.path) // a WAL that cannot be moved is kept, too
	}
	if r.full {
		if kept, err = r.keep(); err != nil {
			return "", err
		}
	}
	if err := removeFiles(r.path+"-wal", r.path+"-shm", r.path+"-journal"); err != nil {
		return kept, err
	}
	if err := os.Rename(part, r.path); err != nil {
		return kept, err
	}
	return kept, syncFolder(filepath.Dir(r.path))
}

// keep gives the old database, and a WAL that is left, a second name each.
func (r *restorer) keep() (kept string, err error) {
	name := r.path + ".replaced-" + time.Now().UTC().Format("20060102-150405")
	for i := 2; ; i++ {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			break
		}
		name = fmt.Sprintf("%s.replaced-%s-%d", r.path, time.Now().UTC().Format("20060102-150405"), i)
	}
	wal := r.path + "-wal"
	if info, err := os.Stat(wal); err == nil && info.Size() > 0 {
		if err := secondName(wal, name+"-wal"); err != nil {
			return "", err
		}
	}
	return name, secondName(r.path, name)
}

// secondName gives a file a second name; where there are no hard links, it copies the file.
func secondName(file, name string) error {
	if err := os.Link(file, name); err == nil {
		return nil
	}
	if err := copyFile(context.Background(), file, name); err != nil {
		return errors.Join(err, removeFiles(name))
	}
	return syncFile(name)
}

// foldWAL moves the WAL of a database that nobody has open into it, and removes it.
func foldWAL(path string) error {
	rd, err := connect(context.Background(), dsn(path, pragmas("synchronous(FULL)")))
	if err == nil {
		var busy, pages, moved int64
		row := rd.conn.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint(TRUNCATE)")
		err = row.Scan(&busy, &pages, &moved)
	}
	return errors.Join(err, rd.close())
}

func (r *restorer) release() error {
	var errs []error
	if r.hold != nil {
		errs = append(errs, r.hold.release())
	}
	if r.beside != nil {
		errs = append(errs, r.beside.release())
	}
	return errors.Join(errs...)
}
