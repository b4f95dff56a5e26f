package contract_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// codePlace is a place in the code as pages name it: file.go:Type.method or file.go:function.
var codePlace = regexp.MustCompile("`([\\w./-]+\\.go):([\\w.]+)`")

// TestLookUps checks the table of CONTRIBUTING.md: five look-ups of two hops each.
func TestLookUps(t *testing.T) {
	_, text, _ := strings.Cut(source(t, root+"/CONTRIBUTING.md"), "\n## Where to look\n")
	text, _, _ = strings.Cut(text, "\n## ")
	found := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| ") || !strings.Contains(line, "?") {
			continue
		}
		if hops := codePlace.FindAllString(line, -1); len(hops) != 2 {
			t.Errorf("%s names %d places, want 2", strings.TrimSpace(line), len(hops))
		}
		found++
	}
	if found != 5 {
		t.Errorf("CONTRIBUTING.md has %d look-ups, want 5", found)
	}
}

// TestCodePlaces checks that each place in the code that a page names exists.
func TestCodePlaces(t *testing.T) {
	pages := append(paths(t, root+"/*.md"), paths(t, root+"/docs/*.md")...)
	found := 0
	for _, page := range pages {
		for _, at := range codePlace.FindAllStringSubmatch(source(t, page), -1) {
			found++
			if !declares(t, at[1], at[2]) {
				t.Errorf("%s names %s:%s, which does not exist", page, at[1], at[2])
			}
		}
	}
	if found < 10 {
		t.Errorf("the pages name %d places in the code", found)
	}
}

// TestCodePlacesFind shows that the search fails for what does not exist.
func TestCodePlacesFind(t *testing.T) {
	for name, want := range map[string]bool{
		"internal/contract/lookups_test.go:declares": true,
		"internal/contract/lookups_test.go:planned":  false,
		"internal/contract/planned.go:declares":      false,
		"internal/contract/words_test.go:words.find": true,
		"internal/contract/words_test.go:find":       false,
		"internal/contract/words_test.go:words":      true,
	} {
		file, decl, _ := strings.Cut(name, ":")
		if got := declares(t, file, decl); got != want {
			t.Errorf("%s exists: %v", name, got)
		}
	}
}

// declares tells whether a Go file of the repository has a function, a method or a type.
func declares(t *testing.T, name, decl string) bool {
	t.Helper()
	path := filepath.Join(root, filepath.FromSlash(name))
	if found, err := filepath.Glob(path); err != nil || len(found) != 1 {
		return false
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			full := d.Name.Name
			if d.Recv != nil {
				full = receiver(d.Recv.List[0].Type) + "." + full
			}
			if full == decl {
				return true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok && s.Name.Name == decl {
					return true
				}
			}
		}
	}
	return false
}
