// Package scripted is a model that plays answers from a file: no key, no
// network, the same every time. It is for tests, demonstrations and the
// quickstart.
//
// Which answer is played is a pure function of the request: nothing is counted
// between calls, so concurrent sessions, retries and restarts do not matter.
// See Script for the format. The script "demo" is built in.
//
// It imports model, genai and a YAML decoder, and knows nothing of sessions,
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
	"time"

	"github.com/apzuk3/agentd/model"
)

// name is the name of this provider.
const name = "scripted"

// maxScript bounds a script file, in bytes.
const maxScript = 1 << 20

// scriptName is what a script may be called.
var scriptName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

// extensions are those of script files, in the order they are tried.
var extensions = []string{".yaml", ".yml", ".json"}

// Config configures the provider; the zero value serves "demo" alone.
type Config struct {
	// Dir holds script files, <name>.yaml, .yml or .json; "" means none. A file
	// is read each time its model is opened.
	Dir string
	// Scripts are scripts by name; they win over files.
	Scripts map[string]*Script
	// Delay is waited before each piece of text that a script gives no delay of
	// its own; default none.
	Delay time.Duration
}

// Provider serves scripts by name. It is immutable.
type Provider struct{ cfg Config }

var (
	_ model.Keyless = (*Provider)(nil)
	_ model.Lister  = (*Provider)(nil)
)

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
	return &Provider{cfg: cfg}, nil
}

// Name returns "scripted".
func (*Provider) Name() string { return name }

// Keyless marks the provider as one without a key.
func (*Provider) Keyless() {}

// Builtins returns none.
func (*Provider) Builtins() []string { return nil }

// Models returns the names of all scripts, sorted. A directory that cannot be
// read has none.
func (p *Provider) Models() []string {
	names := map[string]bool{demoName: true}
	for n := range p.cfg.Scripts {
		names[n] = true
	}
	if p.cfg.Dir != "" {
		entries, _ := os.ReadDir(p.cfg.Dir)
		for _, e := range entries {
			ext := filepath.Ext(e.Name())
			n := strings.TrimSuffix(e.Name(), ext)
			if slices.Contains(extensions, ext) && scriptName.MatchString(n) {
				names[n] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Open returns the script of that name. The key is ignored.
func (p *Provider) Open(script, _ string) (model.LLM, error) {
	if !scriptName.MatchString(script) {
		return nil, errorf(model.KindUnavailable, "script name %q: want letters, digits, '_', '.' and '-'", script)
	}
	if s := p.cfg.Scripts[script]; s != nil {
		return &player{name: script, script: s, delay: p.cfg.Delay}, nil
	}
	s, err := p.load(script)
	switch {
	case err == nil:
		return &player{name: script, script: s, delay: p.cfg.Delay}, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, &model.Error{Kind: model.KindUnavailable, Provider: name, Message: fmt.Sprintf("script %q: %v", script, err), Err: err}
	case script == demoName:
		return demo{delay: cmp.Or(p.cfg.Delay, demoDelay)}, nil
	default:
		return nil, errorf(model.KindUnavailable, "no script %q", script)
	}
}

// load reads a script file. The error of one that is not there is
// fs.ErrNotExist.
func (p *Provider) load(script string) (*Script, error) {
	if p.cfg.Dir == "" {
		return nil, fs.ErrNotExist
	}
	root, err := os.OpenRoot(p.cfg.Dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for _, ext := range extensions {
		f, err := root.Open(script + ext)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(io.LimitReader(f, maxScript+1))
		f.Close()
		if err != nil {
			return nil, err
		}
		if len(data) > maxScript {
			return nil, fmt.Errorf("the file is larger than %d bytes", maxScript)
		}
		return Parse(data)
	}
	return nil, fs.ErrNotExist
}

func errorf(kind model.Kind, format string, args ...any) *model.Error {
	return &model.Error{Kind: kind, Provider: name, Message: fmt.Sprintf(format, args...)}
}
