package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	driver "modernc.org/sqlite"
)

// backupPages are copied in one step: 4 MiB, after which the context is looked at.
const backupPages = 1024

// Backup writes a copy of the database to a new file, which only the owner may read, and makes it durable.
// It copies one state, with what the WAL holds, whatever is written meanwhile. Writers do not wait for it;
// the WAL grows until it is done. progress, if not nil, is called with the bytes that are copied and those
// of the database. After an error there is no file. Only a read-only store has a Backup.
//
// The copy is one file without a WAL. A database of an older schema is copied as it is.
func (s *Store) Backup(ctx context.Context, file string, progress func(done, total int64)) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case s.closed:
		return errClosed
	case s.only == nil:
		return errors.New("sqlite: backup: the store was not opened for reading")
	}
	if err := copyPages(ctx, s.only.file.conn, file, progress); err != nil {
		return fmt.Errorf("sqlite: backup %s to %s: %w", s.only.path, file, named(err))
	}
	return nil
}

// copyPages copies the database of a connection to a new file. A read transaction around all steps keeps
// them on one state: without it, SQLite begins again after every foreign write.
func copyPages(ctx context.Context, conn *sql.Conn, file string, progress func(done, total int64)) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeFiles(file, file+"-wal", file+"-shm", file+"-journal"))
		}
	}()
	if err := f.Close(); err != nil { // before SQLite has locks on it
		return err
	}
	if file, err = filepath.Abs(file); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	// The first read begins the transaction.
	if _, err = (&reading{conn: conn}).number(ctx, "SELECT count(*) FROM sqlite_schema"); err == nil {
		err = conn.Raw(func(from any) error { return steps(ctx, from, file, progress) })
	}
	if _, end := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK"); err == nil {
		err = end
	}
	if err != nil {
		return err
	}
	if err := oneFile(ctx, file); err != nil {
		return err
	}
	return syncFile(file)
}

// steps copies all pages of a connection to an empty file. The caller makes it durable.
func steps(ctx context.Context, from any, file string, progress func(done, total int64)) error {
	src, ok := from.(interface {
		NewBackup(uri string) (*driver.Backup, error)
	})
	if !ok {
		return errors.New("the driver has no backup")
	}
	b, err := src.NewBackup(dsn(file, pragmas("journal_mode(OFF)", "synchronous(OFF)")))
	if err != nil {
		return err
	}
	for more := true; more && err == nil; {
		if err = context.Cause(ctx); err == nil {
			more, err = b.Step(backupPages)
		}
		if err == nil && progress != nil {
			all := int64(b.PageCount())
			progress((all-int64(b.Remaining()))*pageBytes, all*pageBytes)
		}
	}
	return errors.Join(err, b.Finish())
}

// oneFile takes a copy out of WAL mode: whoever opens it needs nothing beside it.
func oneFile(ctx context.Context, file string) error {
	r, err := connect(ctx, dsn(file, pragmas("journal_mode(DELETE)")))
	if err == nil {
		var mode string
		err = r.conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode)
		if err == nil && mode != "delete" {
			err = fmt.Errorf("the copy has journal mode %q, want delete", mode)
		}
	}
	return errors.Join(err, r.close())
}

func syncFile(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// removeFiles removes the files that exist.
func removeFiles(files ...string) error {
	var errs []error
	for _, file := range files {
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// keptBefore is how many copies from before an upgrade are kept.
const keptBefore = 2

// upgrade is what is about to happen to the schema of a database.
type upgrade struct {
	path       string
	have, want int64 // versions
	log        *slog.Logger
}

// saveBefore copies a database whose schema is about to become version want, to a file of its name and
// ".before-" and want. A copy that is there stays if its schema is older: an earlier upgrade was cut off
// behind it.
func (u upgrade) saveBefore(ctx context.Context, conn *sql.Conn) error {
	file := u.path + ".before-" + strconv.FormatInt(u.want, 10)
	if earlier, err := versionOf(ctx, file); err == nil && earlier < u.have {
		return nil
	}
	begun := time.Now()
	part := file + ".part"
	if err := removeFiles(part, part+"-wal", part+"-shm", part+"-journal"); err != nil { // of a killed process
		return err
	}
	if err := copyPages(ctx, conn, part, nil); err != nil {
		return fmt.Errorf("copy the database before its schema goes from version %d to %d, to %s: %w",
			u.have, u.want, file, err)
	}
	info, err := os.Stat(part)
	if err == nil {
		err = os.Rename(part, file)
	}
	if err != nil {
		return errors.Join(err, removeFiles(part))
	}
	if err := syncFolder(filepath.Dir(file)); err != nil {
		return err
	}
	u.log.Info("the database was copied before its schema is upgraded",
		slog.Int64("from", u.have), slog.Int64("to", u.want), slog.String("copy", file),
		slog.Int64("bytes", info.Size()), slog.Duration("took", time.Since(begun).Round(time.Millisecond)))
	dropBefore(u.path, u.log)
	return nil
}

// dropBefore removes all but the newest copies from before an upgrade.
func dropBefore(path string, log *slog.Logger) {
	files, err := filepath.Glob(escapeGlob(path) + ".before-*")
	if err != nil {
		return
	}
	versions := map[int64]string{}
	for _, file := range files {
		if n, err := strconv.ParseInt(strings.TrimPrefix(file, path+".before-"), 10, 64); err == nil {
			versions[n] = file
		}
	}
	var all []int64
	for n := range versions {
		all = append(all, n)
	}
	slices.Sort(all)
	for _, n := range all[:max(0, len(all)-keptBefore)] {
		if err := os.Remove(versions[n]); err != nil {
			log.Warn("an old copy from before an upgrade cannot be removed", slog.String("error", err.Error()))
		}
	}
}

// escapeGlob returns a pattern that matches path alone. Windows has no escapes, and no such characters in
// names but brackets.
func escapeGlob(path string) string {
	var out strings.Builder
	for _, c := range path {
		switch {
		case strings.ContainsRune(`*?[`, c):
			out.WriteString("[" + string(c) + "]")
		case c == '\\' && filepath.Separator != '\\':
			out.WriteString(`\\`)
		default:
			out.WriteRune(c)
		}
	}
	return out.String()
}

// versionOf returns the schema version of a file.
func versionOf(ctx context.Context, file string) (int64, error) {
	if _, err := existing(file); err != nil {
		return 0, err
	}
	r, err := openReading(ctx, file)
	if err != nil {
		return 0, err
	}
	version, err := r.schema(ctx)
	return version, errors.Join(err, r.close())
}
