package permit

import (
	"os"
	"path/filepath"

	"github.com/apzuk3/agentd/client/conf"
)

// reach is a folder, or a file, in scope.
type reach struct {
	path string // as the configuration has it, absolute
	real string // without links, as they were when the gate was made
	r, w bool
	file bool // it is no folder: nothing lies in it
}

func newReach(root string, p conf.AllowedPath) reach {
	at := p.Path
	if !filepath.IsAbs(at) {
		at = filepath.Join(root, at)
	}
	at = filepath.Clean(at)
	resolved, err := filepath.EvalSymlinks(at)
	if err != nil {
		resolved = at // it is not there yet
	}
	info, err := os.Lstat(resolved)
	return reach{at, resolved, p.Access != "w", p.Access != "r", err == nil && !info.IsDir()}
}

// isFolder reports whether a path is one now: a file may have been allowed before it was there.
func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Reach returns the folder in scope that holds a path, which is absolute and clean, with the access r or w, and the
// path from there. It is the project's folder or one of path_scope, the deepest of them. ok is false out of scope.
func (g *Gate) Reach(path, access string) (folder, rel string, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, in := range g.scope {
		if access == "r" && !in.r || access == "w" && !in.w {
			continue
		}
		for _, base := range []string{in.path, in.real} {
			at, err := filepath.Rel(base, path)
			if err != nil || !filepath.IsLocal(at) || in.file && at != "." || ok && len(in.real) <= len(folder) {
				continue
			}
			if folder, rel, ok = in.real, at, true; in.file || at == "." && !isFolder(in.real) {
				folder, rel = filepath.Dir(in.real), filepath.Base(in.real)
			}
		}
	}
	return folder, rel, ok
}
