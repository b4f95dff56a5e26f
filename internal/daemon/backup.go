package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/apzuk3/agentd/adkbridge"
	"github.com/apzuk3/agentd/internal/check"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// CheckFinding is something wrong with a database.
type CheckFinding = check.Finding

// CheckSummary counts what was checked.
type CheckSummary = check.Summary

// Errors of Backup and Restore.
var (
	// ErrNotEmpty is why Restore keeps a database that holds something.
	ErrNotEmpty = sqlite.ErrNotEmpty
	// ErrFindings means that the copy that was made has findings, and was removed.
	ErrFindings = errors.New("the copy has findings")
	// ErrExists is why Backup keeps a file.
	ErrExists = errors.New("the file exists")
)

// Copying says what Check, Backup and Restore work on.
type Copying struct {
	// DataDir is the folder of the database.
	DataDir string
	// StoreURL has Check read a database of PostgreSQL, see Config.StoreURL; Backup and Restore work on folders alone.
	StoreURL session.Secret
	// File is the backup. Check reads it in place of the database unless it is empty.
	File string
	// Replace has Backup replace File, and Restore the database, if there is one.
	Replace bool
	// KeepFindings has Backup and Restore keep a copy that has findings; Restore none of the file itself.
	KeepFindings bool
	// AllowNetworkFiles has Restore write to a network file system.
	AllowNetworkFiles bool
	// Encryption are the keys of a database that is encrypted. The copy stays so.
	Encryption Encryption
	// Finding receives what is wrong.
	Finding func(CheckFinding)
	// Progress, if not nil, is called with bytes of the copy, then with records that were checked; total is 0
	// where it is not known.
	Progress func(what string, done, total int64)
}

// Copied says what Backup and Restore have written.
type Copied struct {
	CheckSummary
	Bytes int64
	// Kept is where Restore has kept the database that was there, "" for none.
	Kept string
}

// Check compares what a database holds with the rules that it is written by; see package check. It only
// reads, also beside a daemon that has the database open.
func Check(ctx context.Context, c Copying) (CheckSummary, error) {
	if c.File != "" {
		return c.checkFile(ctx, c.File, c.Finding)
	}
	db, err := openSource(ctx, &Config{DataDir: c.DataDir, StoreURL: c.StoreURL, Encryption: c.Encryption})
	if err != nil {
		return CheckSummary{}, err
	}
	return c.check(ctx, db, c.Finding)
}

// Backup writes a copy of the database to a file, also while a daemon has the database open. The file gets
// its name when it is whole, checked and durable.
func Backup(ctx context.Context, c Copying) (_ Copied, err error) {
	source := filepath.Join(c.DataDir, databaseFile)
	if err := c.mayWrite(source); err != nil {
		return Copied{}, err
	}
	db, err := open(ctx, source)
	if err != nil {
		return Copied{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	part := fmt.Sprintf("%s.part-%d", c.File, os.Getpid())
	defer func() { err = errors.Join(err, remove(part)) }()
	out, err := c.copy(ctx, db, part, func(CheckFinding) bool { return c.KeepFindings })
	if err != nil {
		return out, err
	}
	return out, c.name(part)
}

// Restore puts a backup in the place of the database of a stopped daemon.
func Restore(ctx context.Context, c Copying) (out Copied, err error) {
	target := filepath.Join(c.DataDir, databaseFile)
	if same(c.File, target) {
		return Copied{}, fmt.Errorf("%s is the database itself", c.File)
	}
	cfg := sqlite.Config{NetworkFiles: c.AllowNetworkFiles}
	kept, err := cfg.Restore(ctx, target, c.Replace, func(ctx context.Context, part string) (err error) {
		db, err := open(ctx, c.File)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		tolerates := func(f CheckFinding) bool { return c.KeepFindings && f.Rule != check.RuleFile }
		out, err = c.copy(ctx, db, part, tolerates)
		return err
	})
	out.Kept = kept
	return out, err
}

// copy writes a copy of db and checks it. tolerates says which findings it may have.
func (c *Copying) copy(
	ctx context.Context, db *sqlite.Store, part string, tolerates func(CheckFinding) bool,
) (out Copied, err error) {
	if _, err := newSource(ctx, db, c.Encryption); err != nil { // before all is copied
		return out, err
	}
	err = db.Backup(ctx, part, func(done, total int64) { c.progress("copied", done, total) })
	if err != nil {
		return out, err
	}
	refused := 0
	out.CheckSummary, err = c.checkFile(ctx, part, func(f CheckFinding) {
		if !tolerates(f) {
			refused++
		}
		c.Finding(f)
	})
	switch {
	case err != nil:
		return out, fmt.Errorf("check the copy: %w", err)
	case refused > 0:
		return out, fmt.Errorf("%w (%d) and is not kept", ErrFindings, refused)
	}
	info, err := os.Stat(part)
	if err == nil {
		out.Bytes = info.Size()
	}
	return out, err
}

// checkFile checks the database of a file.
func (c *Copying) checkFile(ctx context.Context, file string, finding func(CheckFinding)) (CheckSummary, error) {
	db, err := open(ctx, file)
	if err != nil {
		return CheckSummary{}, err
	}
	s, err := newSource(ctx, db, c.Encryption)
	if err != nil {
		return CheckSummary{}, errors.Join(fmt.Errorf("%s: %w", file, err), db.Close())
	}
	return c.check(ctx, s, finding)
}

// check checks a database, and closes it.
func (c *Copying) check(ctx context.Context, db *source, finding func(CheckFinding)) (_ CheckSummary, err error) {
	defer func() { err = errors.Join(err, db.Close()) }()
	return check.Run(ctx, db, check.Config{
		Decode:   adkbridge.New(adkbridge.Config{}).Decode,
		Report:   finding,
		Progress: func(s CheckSummary) { c.progress("checked", s.Records, 0) },
	})
}

func (c *Copying) progress(what string, done, total int64) {
	if c.Progress != nil {
		c.Progress(what, done, total)
	}
}

// mayWrite refuses a file that exists, unless it is to be replaced and is no database of a daemon.
func (c *Copying) mayWrite(source string) error {
	info, err := os.Stat(c.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, own := range []string{source, source + "-wal", source + "-shm", source + ".lock"} {
		if same(c.File, own) {
			return fmt.Errorf("%s belongs to the database that is copied", c.File)
		}
	}
	_, daemon := os.Stat(c.File + ".lock")
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no file", c.File)
	case !c.Replace:
		return fmt.Errorf("%w: %s", ErrExists, c.File)
	case daemon == nil:
		return fmt.Errorf("%s is the database of a daemon: %s.lock is beside it", c.File, c.File)
	}
	return nil
}

// same reports whether two paths lead to one file.
func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// name gives a finished copy its name.
func (c *Copying) name(part string) error {
	if !c.Replace {
		err := os.Link(part, c.File) // which replaces nothing
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%w: %s", ErrExists, c.File)
		}
		if err == nil {
			return syncFolder(filepath.Dir(c.File))
		}
	}
	if err := os.Rename(part, c.File); err != nil { // also where there are no hard links
		return err
	}
	return syncFolder(filepath.Dir(c.File))
}

// remove removes a file if it exists.
func remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncFolder makes the names in a folder durable. Windows has no such call, and writes names by itself.
func syncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
