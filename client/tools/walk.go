package tools

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/apzuk3/agentd/client/conf"
	"github.com/apzuk3/agentd/client/permit"
)

// skipped are folders that no walk goes into.
var skipped = []string{".git", ".svn", ".hg", "node_modules", "vendor"}

// walk calls visit, which must not close its place, for each regular file below a path whose base name matches a
// pattern, "" for all, in the order of their paths, until it returns false. It follows no links, and passes over files
// that a deny rule forbids. A path that is a file is that file.
func (r *Registry) walk(
	ctx context.Context, tool, from, pattern string, visit func(*place) (more bool, err error),
) error {
	if _, err := filepath.Match(pattern, ""); err != nil {
		return fmt.Errorf("the pattern %q is malformed: want * ? [a-z] and other characters, \\ before those", pattern)
	}
	if from == "" {
		from = "."
	}
	top, err := r.at(ctx, tool, from, permit.Read)
	if err != nil {
		return err
	}
	defer top.close()
	info, err := r.statPlace(top)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is %s, neither a file nor a folder", top.name, kind(info.Mode()))
		}
		_, err := visit(top)
		return err
	}
	start := filepath.ToSlash(top.rel)
	behind := resolved(top.path)
	return fs.WalkDir(top.root.FS(), start, func(at string, entry fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && at == start:
			return r.explain(top, err)
		case err != nil:
			return nil //nolint:nilerr // it has gone, or is not to be read
		case entry.IsDir() && at != start && slices.Contains(skipped, entry.Name()):
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		if pattern != "" {
			if ok, _ := filepath.Match(pattern, entry.Name()); !ok {
				return nil
			}
		}
		rel, err := filepath.Rel(top.rel, filepath.FromSlash(at))
		if err != nil {
			return err
		}
		abs := filepath.Join(top.path, rel)
		if r.gate.Denies(tool, abs) || behind != top.path && r.gate.Denies(tool, filepath.Join(behind, rel)) {
			return nil
		}
		p := &place{root: top.root, rel: filepath.FromSlash(at), path: abs, name: r.name(abs)}
		more, err := visit(p)
		if err == nil && !more {
			return fs.SkipAll
		}
		return err
	})
}

type statIn struct {
	Path string `json:"path"`
}

type statOut struct {
	Path    string `json:"path"`
	Exists  bool   `json:"exists"`
	IsDir   bool   `json:"is_dir"`
	Size    int64  `json:"size"`
	ModTime string `json:"mod_time,omitempty"`
	Mode    string `json:"mode,omitempty"`
}

func (r *Registry) stat(ctx context.Context, in statIn) (*statOut, error) {
	p, err := r.at(ctx, "stat", in.Path, permit.Read)
	if isMissing(err) {
		return &statOut{Path: in.Path}, nil
	}
	if err != nil {
		return nil, err
	}
	defer p.close()
	info, err := p.root.Stat(p.rel)
	if isMissing(err) {
		return &statOut{Path: p.name}, nil
	}
	if err != nil {
		return nil, r.explain(p, err)
	}
	return &statOut{
		Path: p.name, Exists: true, IsDir: info.IsDir(), Size: info.Size(),
		ModTime: info.ModTime().UTC().Format(time.RFC3339), Mode: info.Mode().String(),
	}, nil
}

type listDirIn struct {
	Path string `json:"path,omitempty" jsonschema:"the folder; the project's if it is missing"`
}

type listDirOut struct {
	Entries   []dirEntry `json:"entries"`
	Truncated bool       `json:"truncated,omitempty"`
}

type dirEntry struct {
	Name  string `json:"name"`
	IsDir bool   `json:"is_dir"`
	Size  int64  `json:"size"`
}

func (r *Registry) listDir(ctx context.Context, in listDirIn) (*listDirOut, error) {
	if in.Path == "" {
		in.Path = "."
	}
	p, err := r.at(ctx, "list_dir", in.Path, permit.Read)
	if err != nil {
		return nil, err
	}
	defer p.close()
	info, err := r.statPlace(p)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is no folder", p.name)
	}
	entries, err := fs.ReadDir(p.root.FS(), filepath.ToSlash(p.rel))
	if err != nil {
		return nil, r.explain(p, err)
	}
	out := &listDirOut{Entries: []dirEntry{}}
	room := newList(r.cfg.Cap("list_dir", conf.OutputCap{}))
	for _, entry := range entries {
		e := dirEntry{Name: valid([]byte(entry.Name())), IsDir: entry.IsDir()}
		if info, err := entry.Info(); err == nil {
			e.Size = info.Size()
		}
		if !room.fits(e.Name) {
			out.Truncated = true
			break
		}
		out.Entries = append(out.Entries, e)
	}
	return out, nil
}

type globIn struct {
	Pattern string `json:"pattern" jsonschema:"a pattern for the base name, such as *.go"`
	Path    string `json:"path,omitempty" jsonschema:"the folder to search; the project's if it is missing"`
}

type globOut struct {
	Paths     []string `json:"paths"`
	Truncated bool     `json:"truncated,omitempty"`
}

func (r *Registry) glob(ctx context.Context, in globIn) (*globOut, error) {
	if in.Pattern == "" {
		return nil, fmt.Errorf("the pattern is empty: * is all files")
	}
	if base := path.Base(filepath.ToSlash(in.Pattern)); base != in.Pattern {
		return nil, fmt.Errorf("the pattern %q is for base names and has no folder in it: give path %q and pattern %q",
			in.Pattern, path.Dir(filepath.ToSlash(in.Pattern)), base)
	}
	out := &globOut{Paths: []string{}}
	room := newList(r.cfg.Cap("glob", conf.OutputCap{}))
	err := r.walk(ctx, "glob", in.Path, in.Pattern, func(p *place) (bool, error) {
		if !room.fits(p.name) {
			out.Truncated = true
			return false, nil
		}
		out.Paths = append(out.Paths, valid([]byte(p.name)))
		return true, nil
	})
	return out, err
}
