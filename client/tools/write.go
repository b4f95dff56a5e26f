package tools

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/permit"
)

// maxEdit is the largest file that edit_file takes.
const maxEdit = 16 << 20

type writeFileIn struct {
	Path    string `json:"path"`
	Content string `json:"content" jsonschema:"all that the file is to hold"`
}

type writeFileOut struct {
	Status string `json:"status"`
	Bytes  int    `json:"bytes"`
}

func (r *Registry) writeFile(ctx context.Context, in writeFileIn) (*writeFileOut, error) {
	p, err := r.toWrite(ctx, "write_file", in.Path)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := r.replace(ctx, p, []byte(in.Content)); err != nil {
		return nil, err
	}
	return &writeFileOut{Status: "written", Bytes: len(in.Content)}, nil
}

type editFileIn struct {
	Path       string `json:"path"`
	OldString  string `json:"old_string" jsonschema:"the text to replace, exactly as it stands in the file"`
	NewString  string `json:"new_string"`
	ReplaceAll bool   `json:"replace_all,omitempty" jsonschema:"replace each occurrence, and not exactly one"`
}

type editFileOut struct {
	Status       string `json:"status"`
	Replacements int    `json:"replacements"`
}

func (r *Registry) editFile(ctx context.Context, in editFileIn) (*editFileOut, error) {
	switch in.OldString {
	case "":
		return nil, errors.New("old_string is empty: write_file makes a file")
	case in.NewString:
		return nil, errors.New("old_string and new_string are the same")
	}
	p, err := r.toWrite(ctx, "edit_file", in.Path)
	if err != nil {
		return nil, err
	}
	defer p.close()
	f, info, err := r.openFile(p)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info.Size() > maxEdit {
		return nil, fmt.Errorf("%s has %d bytes, at most %d can be edited", p.name, info.Size(), maxEdit)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxEdit+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	n := bytes.Count(data, []byte(in.OldString))
	if n == 0 && in.ReplaceAll {
		return nil, fmt.Errorf("old_string does not occur in %s", p.name)
	}
	if n != 1 && !in.ReplaceAll {
		return nil, fmt.Errorf("old_string occurs %d times in %s, it must occur once", n, p.name)
	}
	if err := r.replace(ctx, p, bytes.ReplaceAll(data, []byte(in.OldString), []byte(in.NewString))); err != nil {
		return nil, err
	}
	return &editFileOut{Status: "edited", Replacements: n}, nil
}

type deleteFileIn struct {
	Path string `json:"path"`
}

type deleteFileOut struct {
	Status string `json:"status"`
}

func (r *Registry) deleteFile(ctx context.Context, in deleteFileIn) (*deleteFileOut, error) {
	p, err := r.at(ctx, "delete_file", in.Path, permit.Write)
	if isMissing(err) {
		return &deleteFileOut{"not there"}, nil
	}
	if err != nil {
		return nil, err
	}
	defer p.close()
	info, err := p.root.Lstat(p.rel) // a link is deleted, not what it leads to
	switch {
	case isMissing(err):
		return &deleteFileOut{"not there"}, nil
	case err != nil:
		return nil, r.explain(p, err)
	case info.IsDir():
		return nil, fmt.Errorf("%s is a folder, and folders are not deleted", p.name)
	case !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0:
		return nil, fmt.Errorf("%s is %s, not a file", p.name, kind(info.Mode()))
	}
	if err := client.CallFrom(ctx).Begin(); err != nil {
		return nil, err
	}
	if err := p.root.Remove(p.rel); err != nil && !isMissing(err) {
		return nil, r.explain(p, err)
	}
	return &deleteFileOut{"deleted"}, nil
}

// toWrite returns the place of a file to be written, where links lead.
func (r *Registry) toWrite(ctx context.Context, tool, path string) (*place, error) {
	p, err := r.at(ctx, tool, path, permit.Write)
	if err != nil {
		return nil, err
	}
	if err = r.target(p); err == nil {
		err = r.undenied(tool, filepath.Join(p.root.Name(), p.rel))
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// replace writes a file beside its place and moves it there: whoever reads sees the old one or the new one.
func (r *Registry) replace(ctx context.Context, p *place, data []byte) (err error) {
	mode := fs.FileMode(0o644)
	switch info, err := p.root.Stat(p.rel); {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is %s, not a file", p.name, kind(info.Mode()))
	case err == nil:
		mode = info.Mode().Perm()
	case !isMissing(err):
		return r.explain(p, err)
	}
	if err := client.CallFrom(ctx).Begin(); err != nil {
		return err
	}
	folder := filepath.Dir(p.rel)
	if err := p.root.MkdirAll(folder, 0o755); err != nil {
		return r.explain(p, err)
	}
	beside := filepath.Join(folder, "."+filepath.Base(p.rel)+"."+rand.Text()[:8])
	f, err := p.root.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return r.explain(p, err)
	}
	defer func() {
		if err != nil {
			_ = p.root.Remove(beside)
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode) // whatever the umask says of a new file: it replaces one that had this mode
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return r.explain(p, err)
	}
	return r.explain(p, p.root.Rename(beside, p.rel))
}
