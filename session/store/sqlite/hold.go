package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/apzuk3/agentd/session/store"
)

// hold keeps other stores out of a database: those of this process by holds, those of other processes by a
// lock file beside the database and, on Linux, by a lock on the database itself, which has no other names
// to get around it.
type hold struct {
	path string      // of the database, without symlinks
	info os.FileInfo // of the database, when it was locked
	lock *fileLock   // nil if there was no lock file, and none was to be made
	file *os.File    // the database, which is locked; nil where it is not
}

// holds has what this process has open. A file in it must not be opened: closing any descriptor of it drops
// the locks of fcntl that SQLite has on it.
var holds = struct {
	mu  sync.Mutex // held while a file is looked at, opened and locked
	all map[*hold]struct{}
}{all: map[*hold]struct{}{}}

// inUse says that another store has a file.
func inUse(path string) error {
	return fmt.Errorf("%w: another agentd holds %s; stop it or choose another path", ErrLocked, path)
}

// take locks a database, and makes it if it may be and there is none. SQLite must be closed before release.
func take(path string, create bool, o *options) (_ *hold, err error) {
	holds.mu.Lock()
	defer holds.mu.Unlock()
	if info, err := os.Stat(path); err == nil {
		for h := range holds.all {
			if os.SameFile(h.info, info) {
				return nil, inUse(h.path)
			}
		}
	}
	h := &hold{}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.unlock())
		}
	}()
	if h.path, err = realPath(path, create); err != nil {
		return nil, err
	}
	shared, err := onNetwork(h.path, o) // it may be a symlink, or mounted by itself
	if err != nil {
		return nil, err
	}
	beside := h.path + ".lock"
	if _, err := os.Stat(beside); create || err == nil {
		if h.lock, err = lockFile(beside); err != nil {
			return nil, err
		}
	}
	mode := os.O_RDONLY
	if create {
		mode = os.O_RDWR // what cannot be written is not opened
	}
	f, err := os.OpenFile(h.path, mode, 0)
	if err != nil {
		return nil, err
	}
	if h.info, err = f.Stat(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if shared { // to the server, flock is a lock as those that SQLite takes
		err = f.Close()
	} else {
		h.file, err = lockDatabase(f, h.info)
	}
	if err != nil {
		return nil, err
	}
	holds.all[h] = struct{}{}
	return h, nil
}

func (h *hold) release() error {
	holds.mu.Lock()
	defer holds.mu.Unlock()
	delete(holds.all, h)
	return h.unlock()
}

// unlock gives back the locks that there are.
func (h *hold) unlock() error {
	var errs []error
	if h.file != nil {
		errs = append(errs, unlockDatabase(h.file))
	}
	if h.lock != nil {
		errs = append(errs, h.lock.release())
	}
	return errors.Join(errs...)
}

// moved says that the database's path leads to no file, or to another one, since it was locked: the next
// process would not find what is written to the one that is open.
func (h *hold) moved() error {
	info, err := os.Stat(h.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s was moved or removed while it was open; put it back, with its -wal file",
			store.ErrFailed, h.path)
	case err == nil && !os.SameFile(h.info, info):
		return fmt.Errorf("%w: %s was replaced by another file while it was open", store.ErrFailed, h.path)
	default:
		return nil // or not known, which is SQLite's to notice
	}
}
