package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	fileName = "mcp.json"
	// fileVersion is the version of the file's form.
	fileVersion = 1
	// maxFile is the most bytes that the file may have.
	maxFile = 1 << 20
	// maxServers is the most servers that the file may name.
	maxServers = 64
)

// serverConfig is one server, as the file has it.
type serverConfig struct {
	Transport string            `json:"transport"`
	Command   string            `json:"command"`
	Args      []string          `json:"args"`
	Env       map[string]string `json:"env"`
	URL       string            `json:"url"`
	Headers   map[string]string `json:"headers"`
}

const (
	stdio         = "stdio"
	httpTransport = "http"
)

// readFile returns the servers of dir/mcp.json; none without the file.
func readFile(dir string) (map[string]serverConfig, error) {
	path := filepath.Join(dir, fileName)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	servers, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return servers, nil
}

func parse(data []byte) (map[string]serverConfig, error) {
	var form struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(data, &form); err != nil {
		return nil, err
	}
	if form.Version == nil || *form.Version != fileVersion {
		got := "missing"
		if form.Version != nil {
			got = fmt.Sprint(*form.Version)
		}
		return nil, fmt.Errorf("version must be %d, it is %s", fileVersion, got)
	}
	var file struct {
		Version int                     `json:"version"`
		Servers map[string]serverConfig `json:"servers"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is text after the first JSON value")
	}
	if n := len(file.Servers); n > maxServers {
		return nil, fmt.Errorf("there are %d servers, at most %d are allowed", n, maxServers)
	}
	for _, name := range slices.Sorted(maps.Keys(file.Servers)) {
		if name == "" || strings.ContainsRune(name, 0) {
			return nil, fmt.Errorf("servers: %q is no name of a server", name)
		}
		if err := file.Servers[name].check(); err != nil {
			return nil, fmt.Errorf("servers.%s: %w", name, err)
		}
	}
	return file.Servers, nil
}

// check checks the form of a server's entry.
func (c serverConfig) check() error {
	switch c.Transport {
	case stdio:
		switch {
		case c.Command == "":
			return errors.New(`command is missing: transport "stdio" runs a program`)
		case c.URL != "" || c.Headers != nil:
			return errors.New(`url and headers are for transport "http"`)
		}
		for name := range c.Env {
			if name == "" || strings.ContainsAny(name, "=\x00") {
				return fmt.Errorf("env: %q is no name of a variable", name)
			}
		}
	case httpTransport:
		switch {
		case c.URL == "":
			return errors.New(`url is missing: transport "http" connects to it`)
		case c.Command != "" || c.Args != nil || c.Env != nil:
			return errors.New(`command, args and env are for transport "stdio"`)
		}
	default:
		return fmt.Errorf(`transport must be "stdio" or "http", it is %q`, c.Transport)
	}
	return nil
}

// hasAuthorization reports whether the headers say who calls.
func (c serverConfig) hasAuthorization() bool {
	for name := range c.Headers {
		if strings.EqualFold(name, "Authorization") {
			return true
		}
	}
	return false
}

var reference = regexp.MustCompile(`\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}`)

// expand returns the entry with its references replaced by what getenv says, and the values that no
// error may show, by their references.
func (c serverConfig) expand(getenv func(string) (string, bool)) (serverConfig, secrets, error) {
	hidden := secrets{}
	var missing []string
	text := func(s string) string {
		return reference.ReplaceAllStringFunc(s, func(ref string) string {
			name := reference.FindStringSubmatch(ref)[1]
			value, ok := getenv(name)
			if !ok {
				missing = append(missing, name)
			}
			hidden.add(value, ref)
			return value
		})
	}
	values := func(m map[string]string) map[string]string {
		out := make(map[string]string, len(m))
		for _, key := range slices.Sorted(maps.Keys(m)) {
			out[key] = text(m[key])
		}
		return out
	}
	out := serverConfig{Transport: c.Transport, Command: text(c.Command), URL: text(c.URL)}
	for _, arg := range c.Args {
		out.Args = append(out.Args, text(arg))
	}
	out.Env, out.Headers = values(c.Env), values(c.Headers)
	if len(missing) > 0 {
		slices.Sort(missing)
		return c, nil, fmt.Errorf("not set in the environment: %s", strings.Join(slices.Compact(missing), ", "))
	}
	if c.Transport == httpTransport {
		if err := checkURL(out.URL); err != nil {
			return c, nil, hidden.hide(err)
		}
	}
	return out, hidden, nil
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return fmt.Errorf("url must be like https://host/path, it is %q", u.Redacted())
	}
	return nil
}

// secrets are values from the environment, with the references that errors show in their place.
type secrets map[string]string

// minSecret is the length of a value from which on it is hidden: shorter ones hide nothing and would spoil the text.
const minSecret = 6

func (s secrets) add(value, ref string) {
	if len(value) >= minSecret {
		s[value] = ref
	}
}

// hide returns err without the values of secrets in its text.
func (s secrets) hide(err error) error {
	if err == nil {
		return nil
	}
	text := s.clean(err.Error())
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

func (s secrets) clean(text string) string {
	// The longest first: one value may hold another.
	for _, value := range slices.SortedFunc(maps.Keys(s), func(a, b string) int { return len(b) - len(a) }) {
		text = strings.ReplaceAll(text, value, s[value])
		text = strings.ReplaceAll(text, url.QueryEscape(value), s[value])
	}
	return text
}
