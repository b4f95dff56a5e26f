package contract_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestGoroutines compares the table of goroutines of docs/design.md with the code: each
// function that starts one has a row, and each row names such a function.
func TestGoroutines(t *testing.T) {
	_, text, _ := strings.Cut(source(t, root+"/docs/design.md"), "\n| Goroutine | Owner | Ends |\n")
	text, _, _ = strings.Cut(text, "\n\n")
	named := map[string]bool{}
	for line := range strings.Lines(text) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for _, at := range codePlace.FindAllStringSubmatch(first, -1) {
			named[at[1]+":"+at[2]] = true
		}
	}
	started := map[string]bool{}
	for _, dir := range []string{"adkbridge", "agentdhost", "agentdtest", "client", "cmd", "internal", "model", "server", "session"} {
		eachFile(t, dir, func(path string, file *ast.File) {
			name, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			name = filepath.ToSlash(name)
			if strings.HasSuffix(name, "_test.go") || forTests(name) {
				return
			}
			for _, in := range startsGoroutines(file) {
				started[name+":"+in] = true
			}
		})
	}
	if len(started) < 10 {
		t.Fatalf("%d functions start goroutines: %v", len(started), started)
	}
	for _, place := range slices.Sorted(maps.Keys(started)) {
		if !named[place] {
			t.Errorf("%s starts a goroutine: add it to the table of docs/design.md, with its owner and its end", place)
		}
	}
	for _, place := range slices.Sorted(maps.Keys(named)) {
		if !started[place] {
			t.Errorf("docs/design.md: %s starts no goroutine", place)
		}
	}
}

// TestGoroutinesFind shows which functions start goroutines.
func TestGoroutinesFind(t *testing.T) {
	const src = `package p
func a() { go b() }
func b() {}
func (s *s) c() { s.wg.Go(func() { d() }) }
func d() { _ = func() { go b() } }
`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := startsGoroutines(file), []string{"a", "s.c", "d"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// forTests tells whether a file is of a room that only tests import.
func forTests(name string) bool {
	for _, dir := range []string{"internal/test/", "internal/contract/", "internal/importrules/", "internal/ledger/ledgertest/", "model/modeltest/", "session/store/storetest/"} {
		if strings.HasPrefix(name, dir) {
			return true
		}
	}
	return false
}

// startsGoroutines are the functions of a file with a go statement, or a call of the method
// Go of a wait group.
func startsGoroutines(file *ast.File) []string {
	var out []string
	for _, decl := range file.Decls {
		d, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		found := false
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				found = true
			case *ast.CallExpr:
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Go" {
					found = true
				}
			}
			return true
		})
		if !found {
			continue
		}
		name := d.Name.Name
		if d.Recv != nil {
			name = receiver(d.Recv.List[0].Type) + "." + name
		}
		out = append(out, name)
	}
	return out
}
