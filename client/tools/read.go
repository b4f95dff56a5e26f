package tools

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/apzuk3/agentd/client/conf"
	"github.com/apzuk3/agentd/client/permit"
)

// largeText is how much the tools that read return, unless the configuration says otherwise.
var largeText = conf.OutputCap{KiB: 256, Lines: 5000}

const (
	// maxScan is how far a file is read to count its lines, or to search it.
	maxScan = 256 << 20
	// sniff is how many bytes tell whether a file is text.
	sniff = 8 << 10
	// manyFile is how much of each file read_many_files returns, and manyFiles how many it reads.
	manyFile  = 64
	manyFiles = 1000
)

type readFileIn struct {
	Path   string `json:"path" jsonschema:"the file"`
	Offset int    `json:"offset,omitempty" jsonschema:"the first line to return, counted from 0"`
	Limit  int    `json:"limit,omitempty" jsonschema:"how many lines to return; 0 is all"`
}

type readFileOut struct {
	Content    string `json:"content"`
	NextOffset int    `json:"next_offset,omitempty"`
	Truncated  bool   `json:"truncated,omitempty"`
}

func (r *Registry) readFile(ctx context.Context, in readFileIn) (*readFileOut, error) {
	if in.Offset < 0 || in.Limit < 0 {
		return nil, fmt.Errorf("offset and limit must be at least 0, they are %d and %d", in.Offset, in.Limit)
	}
	p, err := r.at(ctx, "read_file", in.Path, permit.Read)
	if err != nil {
		return nil, err
	}
	defer p.close()
	f, _, err := r.openFile(p)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return readLines(ctx, p.name, f, window{in.Offset, in.Limit, r.cfg.Cap("read_file", largeText), wireRoom})
}

// window is what of a file is returned.
type window struct {
	offset, limit int // lines
	cap           conf.OutputCap
	wire          int // how much it may take in a result
}

// readLines returns some lines of a text. It holds no more of it than that, and counts the rest up to a bound.
func readLines(ctx context.Context, name string, from io.Reader, w window) (*readFileOut, error) {
	in := bufio.NewReaderSize(from, 64<<10)
	if head, _ := in.Peek(sniff); !textual(head) {
		return nil, errBinary(name)
	}
	limit := w.limit
	if limit == 0 || limit > w.cap.Lines {
		limit = w.cap.Lines
	}
	kept := newClip(conf.OutputCap{KiB: w.cap.KiB, Lines: limit})
	kept.maxWire = w.wire
	var all clip // counts
	all.cut = true
	line, next, full := 0, 0, false // the line of what is read next, the first line that is not returned
	for begins := true; ; {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		piece, err := in.ReadSlice('\n')
		_, _ = all.Write(piece)
		if !textual(piece) && !full {
			return nil, errBinary(name)
		}
		if line >= w.offset && !full && len(piece) > 0 {
			if begins && line-w.offset >= limit {
				next, full = line, true
			} else if _, _ = kept.Write(piece); kept.cut {
				// The rest of a line that is longer than all that may be returned is not to be had.
				if next, full = line, true; kept.lines == 0 {
					next++
				} else {
					kept.kept = kept.kept[:bytes.LastIndexByte(kept.kept, '\n')+1]
				}
			}
		}
		begins = err == nil
		if err == nil {
			line++
		}
		if err == io.EOF || full && all.bytes > maxScan {
			break
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if w.offset > 0 && int64(w.offset) >= all.total() {
		return nil, fmt.Errorf("%s has %d lines: offset must be below, it is %d", name, all.total(), w.offset)
	}
	out := &readFileOut{Content: valid(wholeRunes(kept.kept))}
	if !full {
		return out, nil
	}
	if int64(next) < all.total() {
		out.NextOffset = next
	}
	if w.limit > 0 && next == w.offset+w.limit { // that is what was asked for
		return out, nil
	}
	out.Truncated = true
	out.Content += cutMark(all.bytes, all.total(), strings.HasSuffix(out.Content, "\n") || out.Content == "")
	return out, nil
}

func errBinary(name string) error { return fmt.Errorf("%s is a binary file: it has NUL bytes", name) }

type readManyFilesIn struct {
	Paths   []string `json:"paths,omitempty" jsonschema:"files to read, first"`
	Pattern string   `json:"pattern,omitempty" jsonschema:"read files below path whose base names match, such as *.go"`
	Path    string   `json:"path,omitempty" jsonschema:"where to look for pattern; the project's folder by default"`
}

type readManyFilesOut struct {
	Files     []fileText `json:"files"`
	Truncated bool       `json:"truncated,omitempty"`
}

// fileText is a file, or why it was not read.
type fileText struct {
	Path      string `json:"path"`
	Content   string `json:"content,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
	Skipped   string `json:"skipped,omitempty"`
}

func (r *Registry) readManyFiles(ctx context.Context, in readManyFilesIn) (*readManyFilesOut, error) {
	if len(in.Paths) == 0 && in.Pattern == "" {
		return nil, errors.New("give paths, or pattern, or both")
	}
	m := &manyReader{r: r, ctx: ctx, room: r.cfg.Cap("read_many_files", largeText), seen: map[string]bool{}}
	m.out.Files = []fileText{}
	for _, path := range in.Paths {
		if m.full() {
			break
		}
		m.explicit(path)
	}
	if in.Pattern != "" && !m.full() {
		err := r.walk(ctx, "read_many_files", in.Path, in.Pattern, func(p *place) (bool, error) {
			m.read(p)
			return !m.full(), nil
		})
		if err != nil {
			return nil, err
		}
	}
	return &m.out, context.Cause(ctx)
}

// manyReader reads files until there is no room.
type manyReader struct {
	r    *Registry
	ctx  context.Context //nolint:containedctx // of the one call
	room conf.OutputCap  // of all; its Lines are those that are left
	used int             // bytes
	wire int             // what they take in a result
	seen map[string]bool
	out  readManyFilesOut
}

func (m *manyReader) full() bool {
	if m.used >= m.room.KiB<<10 || m.wire > wireRoom-8*maxPath || m.room.Lines < 1 ||
		len(m.out.Files) >= manyFiles || m.ctx.Err() != nil {
		m.out.Truncated = true
	}
	return m.out.Truncated
}

// explicit reads a file that was named, or says why not.
func (m *manyReader) explicit(path string) {
	p, err := m.r.at(m.ctx, "read_many_files", path, permit.Read)
	if err != nil {
		m.skip(path, "denied: "+err.Error())
		return
	}
	defer p.close()
	m.read(p)
}

func (m *manyReader) skip(path, why string) {
	if len(path) > maxPath {
		path = path[:100] + "…"
	}
	m.add(fileText{Path: path, Skipped: why})
}

func (m *manyReader) add(f fileText) {
	f.Path = valid([]byte(f.Path))
	m.out.Files = append(m.out.Files, f)
	m.used += len(f.Path) + len(f.Skipped) + len(f.Content) + entryOverhead
	m.wire += wireSize(f.Path) + wireSize(f.Skipped) + wireSize(f.Content) + entryWire
}

func (m *manyReader) read(p *place) {
	if m.seen[p.path] {
		return
	}
	m.seen[p.path] = true
	info, err := p.root.Stat(p.rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		m.skip(p.name, "missing")
		return
	case err != nil:
		m.skip(p.name, m.r.explain(p, err).Error())
		return
	case info.IsDir():
		m.skip(p.name, "a directory")
		return
	}
	f, _, err := m.r.openFile(p)
	if err != nil {
		m.skip(p.name, err.Error())
		return
	}
	defer func(f *os.File) { _ = f.Close() }(f)
	left := max((m.room.KiB<<10-m.used)>>10, 1)
	most := conf.OutputCap{KiB: min(manyFile, left), Lines: m.room.Lines}
	got, err := readLines(m.ctx, p.name, f, window{cap: most, wire: wireRoom - m.wire})
	if err != nil {
		m.skip(p.name, err.Error())
		return
	}
	m.add(fileText{Path: p.name, Content: got.Content, Truncated: got.Truncated})
	m.room.Lines -= strings.Count(got.Content, "\n") + 1
}

// textual reports whether a piece of a file is text: it has no NUL byte.
func textual(head []byte) bool { return bytes.IndexByte(head, 0) < 0 }
