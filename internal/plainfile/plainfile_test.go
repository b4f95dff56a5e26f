package plainfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/plainfile"
)

// TestRead: a file is read up to its bound, through links inside the folder; nothing else is.
func TestRead(t *testing.T) {
	dir, far := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{filepath.Join(dir, "a"): "12345", filepath.Join(far, "secret"): "hidden"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(os.Symlink("a", filepath.Join(dir, "inside")), os.Symlink(filepath.Join(far, "secret"), filepath.Join(dir, "outside")),
		os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "inside"} {
		if data, err := plainfile.Read(dir, name, 5); err != nil || string(data) != "12345" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if _, err := plainfile.Read(dir, "a", 4); err == nil || err.Error() != "it has more than 4 bytes" {
		t.Errorf("too long: %v", err)
	}
	if _, err := plainfile.Read(dir, "gone", 5); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("gone: %v", err)
	}
	for _, name := range []string{"outside", "../x"} {
		if data, err := plainfile.Read(dir, name, 100); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	_, err = plainfile.Read(dir, "folder", 5)
	if not, ok := errors.AsType[*plainfile.NotRegularError](err); !ok || !not.Mode.IsDir() {
		t.Errorf("a folder: %v", err)
	}
}

// TestReplace: a file is new as a whole, with its mode, and nothing is left beside it.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, text := range []string{strings.Repeat("x", 100), "short"} {
		if err := plainfile.Replace(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != text {
			t.Errorf("%q, %v", data, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := plainfile.Replace(filepath.Join(dir, "f", "g"), nil, 0o600); err == nil {
		t.Error("a file is a folder")
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := plainfile.Replace(filepath.Join(dir, "d"), nil, 0o600); err == nil {
		t.Error("a folder is replaced")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
	}
}
