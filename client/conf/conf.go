// Package conf reads and writes the configuration of a project that agents work on:
// .agents/config.json in the project's folder.
//
//	cfg, err := conf.Load(".") // the file here or in a folder above, or the defaults
//
// Unlike the daemon's configuration, which says what a server does, it says what tools
// may do on the computer of the client: which files, programs and hosts are in reach,
// what is asked of a person, how much of a result goes to the model. The daemon never
// reads it.
//
// A key that the package does not know, a value that has no meaning and another version
// are errors that name the file and the key: a typo in a rule must not open a door.
//
// The package knows no tool, no gate and no connection.
package conf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/apzuk3/agentd/internal/plainfile"
)

// Version is the version of the file's form.
const Version = 1

const (
	// Folder is the folder of a project's settings, in the project's folder.
	Folder   = ".agents"
	fileName = "config.json"
	// maxFile is the most bytes that the file may have.
	maxFile = 1 << 20
)

// Config is a project's configuration. Its fields may be set before it is given to a
// gate or to tools, and not after; [Config.Update] is for what changes then.
type Config struct {
	Version     int                  `json:"version"`
	Model       string               `json:"model"` // "": the daemon's or the agent's own
	Permissions Permissions          `json:"permissions"`
	PathScope   PathScope            `json:"path_scope"`
	URLScope    URLScope             `json:"url_scope"`
	Agent       Agent                `json:"agent"`
	PlanMode    string               `json:"plan_mode"`   // off, advisory or required
	ToolOutput  map[string]OutputCap `json:"tool_output"` // by tool; "default" is for all others
	Tools       Tools                `json:"tools"`
	Otel        Otel                 `json:"otel"`
	Pricing     map[string]Price     `json:"pricing"` // by the beginning of a model's name

	// Root is the absolute path of the project's folder, without links. It is not in the file.
	Root string `json:"-"`

	mu *sync.Mutex // held while the file is written
}

// Modes are the values of permissions.mode.
func Modes() []string { return []string{"ask", "allow", "plan", "acceptEdits", "yolo"} }

// Permissions is what the gate asks a person about. A rule is `tool:glob` or `glob`.
type Permissions struct {
	Mode  string   `json:"mode"` // one of Modes
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// PathScope is which files are in reach beside the project's own.
type PathScope struct {
	AllowPaths []AllowedPath `json:"allow_paths"`
}

// AllowedPath is a folder in reach; one that is not absolute is looked up from the project's folder.
type AllowedPath struct {
	Path   string `json:"path"`
	Access string `json:"access"` // r, w or rw
}

// URLScope is what may be fetched: `https://host/prefix`, or a host alone, whose first label may be `*`. An entry that
// begins with http:// permits plain HTTP.
type URLScope struct {
	Allow []string `json:"allow"`
}

// Agent is what bounds an agent; agentd run and agentd chat do so where it has tools of the project.
type Agent struct {
	MaxSteps int `json:"max_steps"` // model calls of one turn
}

// OutputCap bounds what a tool returns, by whichever is reached first.
type OutputCap struct {
	KiB   int `json:"kib"`
	Lines int `json:"lines"`
}

// Tools is which tools there are.
type Tools struct {
	Disable []string `json:"disable"`
}

// Otel is where spans go: none, console or otlp. Nothing sends any yet.
type Otel struct {
	Exporter string `json:"exporter"`
}

// Price is what a model costs, in USD for a million tokens; 0 is unknown. Prices are the daemon's; nothing reads these
// yet.
type Price struct {
	Input  float64 `json:"input"`
	Output float64 `json:"output"`
	Cached float64 `json:"cached,omitempty"`
}

// Default returns the configuration of a project without a file, in the current folder.
func Default() *Config {
	root, err := realPath(".")
	if err != nil {
		root = "." // the folder has gone: whatever opens it says so
	}
	return defaults(root)
}

func defaults(root string) *Config {
	return &Config{
		Version:     Version,
		Permissions: Permissions{Mode: "ask", Allow: []string{}, Deny: []string{}},
		PathScope:   PathScope{AllowPaths: []AllowedPath{}},
		URLScope:    URLScope{Allow: []string{}},
		Agent:       Agent{MaxSteps: 50},
		PlanMode:    "off",
		ToolOutput:  map[string]OutputCap{},
		Tools:       Tools{Disable: []string{}},
		Otel:        Otel{Exporter: "none"},
		Pricing:     map[string]Price{},
		Root:        root,
		mu:          new(sync.Mutex),
	}
}

// Load reads the configuration of the project that a folder belongs to: of the first folder, from dir upwards, that has
// a .agents/config.json. Without one it returns the defaults for dir, or for the nearest folder above with .agents.
func Load(dir string) (*Config, error) {
	at, err := realPath(dir)
	if err != nil {
		return nil, fmt.Errorf("the project's folder: %w", err)
	}
	root := ""
	for folder := at; ; folder = filepath.Dir(folder) {
		data, err := read(filepath.Join(folder, Folder, fileName))
		if err == nil {
			return parse(folder, data)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if info, err := os.Stat(filepath.Join(folder, Folder)); root == "" && err == nil && info.IsDir() {
			root = folder
		}
		if folder == filepath.Dir(folder) {
			break
		}
	}
	if root == "" || root == home() { // ~/.agents is the user's, of no project
		root = at
	}
	return defaults(root), nil
}

func home() string {
	dir, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	if path, err := realPath(dir); err == nil {
		return path
	}
	return dir
}

func realPath(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// read returns what a file holds, if that is not too much.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return data, err
}

// parse reads a file over the defaults.
func parse(root string, data []byte) (*Config, error) {
	c := defaults(root)
	path := c.Path()
	var form struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(data, &form); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if form.Version == nil || *form.Version != Version {
		got := "none"
		if form.Version != nil {
			got = fmt.Sprint(*form.Version)
		}
		return nil, fmt.Errorf("%s: version must be %d, it is %s", path, Version, got)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Path returns the path of the configuration's file, whether there is one or not.
func (c *Config) Path() string { return filepath.Join(c.Root, Folder, fileName) }

// Check returns what is wrong with the values of a configuration that was not read from a file.
func (c *Config) Check() error {
	if c.Version != Version {
		return fmt.Errorf("version must be %d, it is %d", Version, c.Version)
	}
	return c.check()
}

func (c *Config) check() error {
	if err := oneOf("permissions.mode", c.Permissions.Mode, Modes()...); err != nil {
		return err
	}
	for i, p := range c.PathScope.AllowPaths {
		if p.Path == "" {
			return fmt.Errorf("path_scope.allow_paths[%d].path is missing", i)
		}
		if err := oneOf(fmt.Sprintf("path_scope.allow_paths[%d].access", i), p.Access, "r", "w", "rw"); err != nil {
			return err
		}
	}
	if err := oneOf("plan_mode", c.PlanMode, "off", "advisory", "required"); err != nil {
		return err
	}
	if err := oneOf("otel.exporter", c.Otel.Exporter, "none", "console", "otlp"); err != nil {
		return err
	}
	if c.Agent.MaxSteps < 1 {
		return fmt.Errorf("agent.max_steps must be at least 1, it is %d", c.Agent.MaxSteps)
	}
	for name, limit := range c.ToolOutput {
		if limit.KiB < 1 || limit.Lines < 1 {
			return fmt.Errorf("tool_output.%s: kib and lines must be at least 1, they are %d and %d",
				name, limit.KiB, limit.Lines)
		}
	}
	for name, p := range c.Pricing {
		if p.Input < 0 || p.Output < 0 || p.Cached < 0 {
			return fmt.Errorf("pricing.%s: prices must be at least 0", name)
		}
	}
	return nil
}

func oneOf(key, value string, known ...string) error {
	if slices.Contains(known, value) {
		return nil
	}
	return fmt.Errorf("%s must be one of %s, it is %q", key, strings.Join(known, ", "), value)
}

// Update changes the file: change gets what it holds now, which may be more than c does, and the same is done to c.
// The file is replaced as a whole or not at all, and what other processes change meanwhile is kept. It may be called
// from any goroutine; c's fields must not be read meanwhile.
func (c *Config) Update(change func(*Config)) error {
	if c.mu == nil {
		return errors.New("a configuration is made by conf.Default or conf.Load")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	unlock, err := lock(filepath.Dir(c.Path()))
	if err != nil {
		return err
	}
	defer unlock()
	now := defaults(c.Root)
	data, err := read(c.Path())
	switch {
	case err == nil:
		if now, err = parse(c.Root, data); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	change(now)
	if err := now.Check(); err != nil {
		return fmt.Errorf("%s: %w", c.Path(), err)
	}
	if err := now.save(); err != nil {
		return err
	}
	change(c)
	return nil
}

// updates is held while any file is updated.
var updates sync.Mutex

// lock makes a folder and keeps others from updating its file.
func lock(folder string) (unlock func(), err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // as the project's other folders
		return nil, err
	}
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	updates.Lock()
	if err := lockFile(f); err != nil {
		updates.Unlock()
		return nil, errors.Join(fmt.Errorf("%s cannot be locked: %w", folder, err), f.Close())
	}
	return func() {
		_ = f.Close() // and with it the lock
		updates.Unlock()
	}, nil
}

// save replaces the file.
func (c *Config) save() error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(c.Path()); err == nil {
		mode = info.Mode().Perm()
	}
	return plainfile.Replace(c.Path(), append(data, '\n'), mode)
}

// Cap returns how much a tool may return: what the file says of the tool; else own, unless it is zero; else what the
// file says of all tools; else 32 KiB and 500 lines.
func (c *Config) Cap(tool string, own OutputCap) OutputCap {
	if limit, ok := c.ToolOutput[tool]; ok {
		return limit
	}
	if own != (OutputCap{}) {
		return own
	}
	if limit, ok := c.ToolOutput["default"]; ok {
		return limit
	}
	return OutputCap{KiB: 32, Lines: 500}
}
