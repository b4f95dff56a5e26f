package tools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/apzuk3/agentd/client/permit"
	"github.com/apzuk3/agentd/internal/plainfile"
)

// place is a path in reach: what it is called, and where it is opened.
type place struct {
	root *os.Root
	rel  string // from root, "." for root itself
	path string // absolute, without .. and double slashes
	name string // what the model sees: from the project's folder, or absolute outside of it
}

func (p *place) close() { _ = p.root.Close() }

// at returns a place for a path that a model has given, if the gate agrees.
func (r *Registry) at(ctx context.Context, tool, path, effect string) (*place, error) {
	abs, err := r.absolute(path)
	if err != nil {
		return nil, err
	}
	if err := r.allowed(ctx, tool, permit.Path, abs, effect); err != nil {
		return nil, err
	}
	if err := r.undenied(tool, abs); err != nil {
		return nil, err
	}
	return r.open(abs, effect)
}

// undenied refuses a path whose links lead to what a deny rule forbids.
func (r *Registry) undenied(tool, abs string) error {
	if at := resolved(abs); at != abs && r.gate.Denies(tool, at) {
		return fmt.Errorf("%s(%s) is %w: it is %s, by a link, which a rule of permissions.deny forbids", tool,
			r.name(abs), permit.ErrDenied, r.name(at))
	}
	return nil
}

// resolved is a path without links, as far as there is something.
func resolved(abs string) string {
	rest := ""
	for at := abs; ; at = filepath.Dir(at) {
		if to, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(to, rest)
		}
		if at == filepath.Dir(at) {
			return abs
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

// maxPath is the longest path, in bytes.
const maxPath = 4096

// absolute returns a path as the gate takes it.
func (r *Registry) absolute(path string) (string, error) {
	switch {
	case path == "":
		return "", errors.New("the path is empty")
	case len(path) > maxPath:
		return "", fmt.Errorf("the path has %d bytes, at most %d are allowed", len(path), maxPath)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("the path %q has a NUL byte", path)
	case !filepath.IsAbs(path):
		path = filepath.Join(r.cfg.Root, path)
	}
	return filepath.Clean(path), nil
}

// open opens the folder that confines a path that the gate has let through.
func (r *Registry) open(abs, effect string) (*place, error) {
	access := "r"
	if effect != permit.Read {
		access = "w"
	}
	folder, rel, ok := r.gate.Reach(abs, access)
	if !ok { // a person has consented to this path alone
		folder, rel = filepath.Dir(abs), filepath.Base(abs)
		if folder == abs {
			rel = "."
		}
	}
	p := &place{rel: rel, path: abs, name: r.name(abs)}
	var err error
	if p.root, err = os.OpenRoot(folder); err != nil {
		return nil, r.explain(p, err)
	}
	return p, nil
}

// name is what a path is called in results.
func (r *Registry) name(abs string) string {
	if rel, err := filepath.Rel(r.cfg.Root, abs); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return abs
}

// explain says what is wrong with a place, for a model.
func (r *Registry) explain(p *place, err error) error {
	var why string
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		why = "there is no such file or folder"
	case errors.Is(err, fs.ErrPermission):
		why = "the system does not permit it"
	case errors.Is(err, syscall.ENOTDIR):
		why = "a part of the path is no folder"
	case errors.Is(err, syscall.ENOSPC):
		why = "the disk is full"
	default:
		why = err.Error()
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			why = e.Err.Error()
		}
	}
	if strings.Contains(why, "escapes from parent") {
		why = "it leads out of the folders in reach, by a link"
	}
	return &placeError{p.name + ": " + why, err}
}

// placeError is what is wrong with a place.
type placeError struct {
	text string
	err  error
}

func (e *placeError) Error() string { return e.text }
func (e *placeError) Unwrap() error { return e.err }

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// kind names what is no regular file.
func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeSymlink != 0:
		return "a link"
	default:
		return "no regular file"
	}
}

// stat returns what a place is, links followed.
func (r *Registry) statPlace(p *place) (fs.FileInfo, error) {
	info, err := p.root.Stat(p.rel)
	return info, r.explain(p, err)
}

// openFile opens a regular file for reading, and nothing else.
func (r *Registry) openFile(p *place) (*os.File, fs.FileInfo, error) {
	f, info, err := plainfile.Open(p.root, p.rel)
	if not, ok := errors.AsType[*plainfile.NotRegularError](err); ok {
		return nil, nil, fmt.Errorf("%s is %s, not a file", p.name, kind(not.Mode))
	}
	return f, info, r.explain(p, err)
}

// maxLinks bounds the links of one path.
const maxLinks = 16

// target follows the links that a file to be written is, so that what they lead to is replaced and they stay.
func (r *Registry) target(p *place) error {
	for range maxLinks {
		info, err := p.root.Lstat(p.rel)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
			return nil
		}
		if err != nil {
			return r.explain(p, err)
		}
		to, err := p.root.Readlink(p.rel)
		if err != nil {
			return r.explain(p, err)
		}
		if filepath.IsAbs(to) {
			return fmt.Errorf("%s is a link to an absolute path, %s: name that path", p.name, to)
		}
		// Lexically, as if no folder of the path were a link: if one is, the file is looked up elsewhere in the root.
		if p.rel = filepath.Join(filepath.Dir(p.rel), to); !filepath.IsLocal(p.rel) {
			return fmt.Errorf("%s: it leads out of the folders in reach, by a link", p.name)
		}
	}
	return fmt.Errorf("%s: more than %d links follow one another", p.name, maxLinks)
}
