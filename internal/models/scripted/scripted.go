// Package scripted is a model that plays responses from a file: no key, no
// network, the same every time. It is for tests, demonstrations and the
// quickstart.
//
// Which response is played is a pure function of the request: nothing is counted
// between calls, so concurrent sessions, retries and restarts do not matter.
// See Script for the format. The script "demo" is built in.
//
// A file of recorded calls, <name>.jsonl (see package record), is played again
// as a script is. A call gets the response of the recorded call of the same agent
// (its path in the tree) that asked the same; if none did, as "<name>" that of
// the same number, which is one more than the number of model turns in the
// request, and as "<name>:strict" an error that shows the first difference. Ids
// of tool calls do not count. Failed tries fail again, without what the provider
// asked to wait; what was shown of a response that failed is shown again.
//
// It imports model, record, genai and yamlfile, and knows nothing of sessions,
// ADK or the protocol.
package scripted

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/apzuk3/agentd/model"
)

// name is the name of this provider.
const name = "scripted"

const (
	// maxScript bounds a script file, and maxTape a file of recorded calls, in
	// bytes.
	maxScript = 1 << 20
	maxTape   = 64 << 20
	// maxTapes is how many files of recorded calls are kept in memory.
	maxTapes = 4
	// tapeExt is the extension of those, and strictSuffix follows the name where
	// requests have to be equal.
	tapeExt      = ".jsonl"
	strictSuffix = ":strict"
)

// scriptName is what a script may be called.
var scriptName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

// extensions are those of script files, in the order they are tried.
var extensions = []string{".yaml", ".yml", ".json"}

// Config configures the provider; the zero value serves "demo" alone.
type Config struct {
	// Dir holds script files, <name>.yaml, .yml or .json, and files of recorded
	// calls, <name>.jsonl; "" means none. A file is read when its model is opened,
	// one of recorded calls only if it has changed since.
	Dir string
	// Scripts are scripts by name; they win over files.
	Scripts map[string]*Script
	// Delay is waited before each piece of text that a script gives no delay of
	// its own; default none.
	Delay time.Duration
	// Played is told which answer of a script is played, counted from 0. It is called concurrently; nil: nobody is.
	Played func(script string, answer int)
}

// Provider serves scripts by name. Its methods may be called from any goroutine.
type Provider struct {
	cfg Config // never changes

	mu    sync.Mutex                       // protects the field below
	tapes *simplelru.LRU[string, keptTape] // by name
}

// keptTape is a file of recorded calls in memory, as it was when it was read.
type keptTape struct {
	size    int64
	changed time.Time
	tape    *tape
}

// New returns the provider. The scripts of cfg are compiled here; files when
// they are opened.
func New(cfg Config) (*Provider, error) {
	cfg.Scripts = maps.Clone(cfg.Scripts)
	for n, s := range cfg.Scripts {
		if !scriptName.MatchString(n) {
			return nil, fmt.Errorf("scripted: script name %q: want letters, digits, '_', '.' and '-'", n)
		}
		c, err := s.compiled()
		if err != nil {
			return nil, fmt.Errorf("scripted: script %q: %w", n, err)
		}
		cfg.Scripts[n] = c
	}
	tapes, err := simplelru.NewLRU[string, keptTape](maxTapes, nil)
	return &Provider{cfg: cfg, tapes: tapes}, err
}

// Describe says that scripts need no key, cost nothing and run no tools of a provider;
// recorded calls have their own, see TapeBuiltins. Models are all scripts that there
// are at the moment.
func (p *Provider) Describe() model.Description {
	return model.Description{Name: name, Models: p.models(), Keyless: true, Free: true}
}

// TapeBuiltins are the tools that a provider may have run for a recorded call. An
// agent that plays such calls may have them.
func TapeBuiltins() []string {
	return []string{"code_execution", "google_search", "tool_search", "url_context", "web_search"}
}

// models returns the names of all scripts, sorted. A directory that cannot be
// read has none.
func (p *Provider) models() []string {
	names := map[string]bool{demoName: true}
	for n := range p.cfg.Scripts {
		names[n] = true
	}
	if p.cfg.Dir != "" {
		entries, _ := os.ReadDir(p.cfg.Dir)
		for _, e := range entries {
			ext := filepath.Ext(e.Name())
			n := strings.TrimSuffix(e.Name(), ext)
			if (ext == tapeExt || slices.Contains(extensions, ext)) && scriptName.MatchString(n) {
				names[n] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Open returns the script of that name. The key is ignored.
func (p *Provider) Open(script, _ string) (model.Model, error) {
	script, strict := strings.CutSuffix(script, strictSuffix)
	if !scriptName.MatchString(script) {
		return model.Model{}, errorf(model.KindUnavailable, "script name %q: want letters, digits, '_', '.' and '-'",
			script)
	}
	s, t, err := p.cfg.Scripts[script], (*tape)(nil), error(nil)
	if s == nil {
		s, t, err = p.load(script)
	}
	switch {
	case t != nil:
		return model.Model{LLM: &tapePlayer{name: script, tape: t, strict: strict, delay: p.cfg.Delay},
			Builtins: TapeBuiltins()}, nil
	case strict && (err == nil || script == demoName):
		return model.Model{}, errorf(model.KindUnavailable,
			"script %q: only recorded calls (%s%s) can be played strictly", script, script, tapeExt)
	case err == nil:
		return model.Model{LLM: &player{name: script, script: s, delay: p.cfg.Delay, played: p.cfg.Played}}, nil
	case !errors.Is(err, fs.ErrNotExist):
		return model.Model{}, &model.Error{Kind: model.KindUnavailable, Provider: name,
			Message: fmt.Sprintf("script %q: %v", script, err), Err: err}
	case script == demoName:
		return model.Model{LLM: demo{delay: cmp.Or(p.cfg.Delay, demoDelay)}}, nil
	default:
		return model.Model{}, errorf(model.KindUnavailable, "no script %q", script)
	}
}

// load reads a script file, or one of recorded calls. The error of one that is
// not there is fs.ErrNotExist.
func (p *Provider) load(script string) (*Script, *tape, error) {
	if p.cfg.Dir == "" {
		return nil, nil, fs.ErrNotExist
	}
	root, err := os.OpenRoot(p.cfg.Dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	s, err := loadScript(root, script)
	if !errors.Is(err, fs.ErrNotExist) {
		return s, nil, err
	}
	t, err := p.loadTape(root, script)
	return nil, t, err
}

// loadTape reads recorded calls, unless they are in memory. Large files make
// others wait.
func (p *Provider) loadTape(root *os.Root, name string) (*tape, error) {
	f, err := root.Open(name + tapeExt)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if k, ok := p.tapes.Get(name); ok && k.size == info.Size() && k.changed.Equal(info.ModTime()) {
		return k.tape, nil
	}
	p.tapes.Remove(name)
	data, err := readAll(f, maxTape)
	if err != nil {
		return nil, err
	}
	t, err := readTape(data)
	if err != nil {
		return nil, err
	}
	p.tapes.Add(name, keptTape{size: info.Size(), changed: info.ModTime(), tape: t})
	return t, nil
}

// readAll reads a file of at most limit bytes.
func readAll(f io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("the file is larger than %d bytes", limit)
	}
	return data, err
}

// loadScript reads a script file.
func loadScript(root *os.Root, script string) (*Script, error) {
	for _, ext := range extensions {
		f, err := root.Open(script + ext)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		data, err := readAll(f, maxScript)
		f.Close()
		if err != nil {
			return nil, err
		}
		return Parse(data)
	}
	return nil, fs.ErrNotExist
}

func errorf(kind model.Kind, format string, args ...any) *model.Error {
	return &model.Error{Kind: kind, Provider: name, Message: fmt.Sprintf(format, args...)}
}
