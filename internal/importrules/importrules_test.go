package importrules_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// file is what one Go file imports.
type file struct {
	name    string // relative to the root
	room    string // its directory, relative to the root
	test    bool
	imports []string
}

func TestImports(t *testing.T) {
	files := parseAll(t, "../..")
	if len(files) == 0 {
		t.Fatal("no Go files found")
	}
	unknown := map[string]bool{}
	for _, f := range files {
		r, ok := roomOf(f.room)
		if !ok {
			if !unknown[f.room] {
				t.Errorf("package %s has no room: add it to the table in rooms_test.go with what it may import", f.room)
			}
			unknown[f.room] = true
			continue
		}
		for _, imp := range f.imports {
			if reason := r.refuses(f, imp); reason != "" {
				t.Errorf("%s imports %s: %s\n\t(%s knows %s)", f.name, imp, reason, r.path, r.knows)
			}
		}
	}
	for _, r := range rooms {
		if !r.later && !slices.ContainsFunc(files, func(f file) bool { return matches(f.room, r.path) }) {
			t.Errorf("room %s is in the table and has no Go files: remove it", r.path)
		}
	}
}

// TestRules shows that the table refuses what it is meant to refuse.
func TestRules(t *testing.T) {
	tests := []struct {
		file string
		imp  string
		want string // part of the reason; "" if allowed
	}{
		{"session/a.go", module + "/" + gen, ""},
		{"session/a.go", "log/slog", ""},
		{"session/a.go", "net/http", "no transport"},
		{"session/a.go", "database/sql", "behind store.Store"},
		{"session/a.go", "log", "slog"},
		{"internal/yamlfile/a.go", "github.com/goccy/go-yaml", ""},
		{"internal/agentfile/a.go", "github.com/goccy/go-yaml/ast", "one room reads YAML"},
		{"session/a.go", connect, "not in its list"},
		{"session/a.go", module + "/server", "not in its list"},
		{"session/a.go", "testing", "test kits"},
		{"session/a_test.go", "testing", ""},
		{"session/a_test.go", module + "/session/store/storetest", ""},
		{"session/a_test.go", module + "/server", "floor"},
		{"server/a.go", "google.golang.org/adk/v2/agent", "only room that knows the engine"},
		{"server/a.go", module + "/adkbridge", "not in its list"},
		{"internal/faces/other/a.go", module + "/server", ""},
		{"internal/faces/other/a.go", "net/http", ""},
		{"internal/faces/other/a.go", module + "/" + genConnect, ""},
		{"internal/faces/other/a.go", module + "/session", "not in its list"},
		{"internal/faces/other/a.go", module + "/session/store", "not in its list"},
		{"internal/faces/other/a.go", module + "/internal/daemon", "not in its list"},
		{"internal/faces/other/a.go", "database/sql", "behind store.Store"},
		{"server/a.go", module + "/session/store/sqlite", "not in its list"},
		{"server/a.go", module + "/agentdtest", "not in its list"},
		{"server/a_test.go", module + "/agentdtest", ""},
		{"server/a_test.go", "example.com/other", "no room uses"},
		{"adkbridge/a.go", "google.golang.org/adk/v2/agent", ""},
		{"adkbridge/a.go", "os/exec", "never runs a tool"},
		{"session/store/storetest/a.go", "testing", ""},
		{"model/gemini/a.go", "net/http", ""},
		{"model/gemini/a.go", "net/http/pprof", "default mux"},
		{"model/gemini/a.go", module + "/model/openai", "not in its list"},
		{"model/gemini/a.go", "math/rand/v2", ""},
		{"internal/cli/a.go", module + "/client", ""},
		{"internal/cli/a.go", module + "/" + genConnect, "not in its list"},
		{"internal/cli/a.go", connect, "not in its list"},
		{"internal/cli/a.go", "net/http", "no transport"},
		{"examples/x/main.go", module + "/client", ""},
		{"examples/x/main.go", module + "/session", "not in its list"},
	}
	for _, tt := range tests {
		f := file{name: tt.file, room: path.Dir(tt.file), test: strings.HasSuffix(tt.file, "_test.go")}
		r, ok := roomOf(f.room)
		if !ok {
			t.Errorf("%s: no room", tt.file)
			continue
		}
		got := r.refuses(f, tt.imp)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s importing %s: got %q, want %q", tt.file, tt.imp, got, tt.want)
		}
	}
}

// refuses says why f, a file of the room, may not import imp, or "".
func (r room) refuses(f file, imp string) string {
	if !f.test {
		if reason := banned(r, imp); reason != "" {
			return reason
		}
	}
	if standard(imp) || slices.ContainsFunc(r.may, func(m string) bool { return covers(m, imp) }) {
		return ""
	}
	if f.test {
		return r.testRefuses(imp)
	}
	if r.kit && slices.ContainsFunc(testModules, func(m string) bool { return below(imp, m) }) {
		return ""
	}
	return "it is not in its list"
}

// testRefuses says why a test of the room may not import imp, which is neither
// standard nor in the room's own list. Tests put several rooms together, but
// never reach up, except for the test kits.
func (r room) testRefuses(imp string) string {
	if own, ok := strings.CutPrefix(imp, module+"/"); ok {
		other, ok := roomOf(own)
		if slices.Contains(r.tests, own) {
			return ""
		}
		if !ok || other.kit || other.floor <= r.floor {
			return "" // a package without a room is reported once, as such
		}
		return fmt.Sprintf("%s is on floor %d, above floor %d", own, other.floor, r.floor)
	}
	known := slices.Clone(testModules)
	for _, other := range rooms {
		known = append(known, other.may...)
	}
	if slices.ContainsFunc(known, func(m string) bool { return covers(m, imp) }) {
		return ""
	}
	return "no room uses this module, nor is it one for tests"
}

func banned(r room, imp string) string {
	for _, b := range bans {
		if !below(imp, b.path) || slices.ContainsFunc(b.but, func(p string) bool { return matches(r.path, p) }) {
			continue
		}
		if slices.ContainsFunc(bansBelow[b.path], func(p string) bool { return below(imp, p) }) {
			continue
		}
		if b.path == "testing" && r.kit {
			continue
		}
		return b.because
	}
	return ""
}

// covers reports whether the entry of a list, a room or a module, allows imp.
func covers(entry, imp string) bool {
	if _, ok := roomOf(entry); ok {
		return imp == module+"/"+entry
	}
	return below(imp, entry)
}

func roomOf(dir string) (room, bool) {
	i := slices.IndexFunc(rooms, func(r room) bool { return matches(dir, r.path) })
	if i < 0 {
		return room{}, false
	}
	return rooms[i], true
}

// matches reports whether dir is the pattern, or below it if it ends in "/...".
func matches(dir, pattern string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return strings.HasPrefix(dir, base+"/")
	}
	return dir == pattern
}

func below(imp, p string) bool { return imp == p || strings.HasPrefix(imp, p+"/") }

func standard(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".")
}

// parseAll reads the imports of all Go files of the module at root.
func parseAll(t *testing.T, root string) []file {
	t.Helper()
	var files []file
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skipDir(p, d.Name(), rel) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(p) != ".go" {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		f := file{name: rel, room: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go")}
		for _, spec := range parsed.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			f.imports = append(f.imports, imp)
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// skipDir leaves out what the go command leaves out: hidden directories, test
// data and modules of their own.
func skipDir(p, name, rel string) bool {
	if rel == "." {
		return false
	}
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "vendor" {
		return true
	}
	_, err := os.Stat(filepath.Join(p, "go.mod"))
	return err == nil
}
