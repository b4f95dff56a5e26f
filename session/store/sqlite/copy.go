package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Copy copies the database at path into an existing folder, and returns the copy's path. It writes nothing
// beside the original, and returns ErrLocked while that is open elsewhere, fs.ErrNotExist if there is none.
func Copy(ctx context.Context, path, dir string) (_ string, err error) {
	h, err := take(path, false, &options{network: networkOf, anyFiles: true})
	if err != nil {
		return "", err
	}
	defer func() { _ = h.release() }()
	path = h.path
	to := filepath.Join(dir, filepath.Base(path))
	if err := copyFile(ctx, path, to); err != nil {
		return "", fmt.Errorf("copy the database: %w", err)
	}
	// What a killed process has written last is in the WAL alone.
	if err := copyFile(ctx, path+"-wal", to+"-wal"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("copy the database: %w", err)
	}
	return to, nil
}

func copyFile(ctx context.Context, from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch _, err := io.CopyN(out, in, 64<<20); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
