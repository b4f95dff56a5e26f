package contract_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Bounds of what packages export, see TestSurface. Whoever removes names lowers them; the aim for
// all public packages is 200. What several servers over one store need are ten of them: the store in
// PostgreSQL, and session.Owners with what it takes and returns. Two are the rows of the event log, and what selects them.
// Eighteen are goals: their records, their requests and their lists. Ten are the children of agents: their records, and
// what spawns them. One is store.Notice, by which a store writes what
// webhooks are told with its fact.
const (
	maxExported = 242
	maxModel    = 51
	maxKit      = 4
)

// TestSurface counts what each package exports that strangers can import, without client, what is
// generated, the commands and the examples. It counts package-level functions, types, variables and
// constants, not methods; a group of constants counts once, as in go doc -short. Run it with -v for
// the table, whose second column counts each constant of a group.
func TestSurface(t *testing.T) {
	counts, names := map[string]int{}, map[string]int{}
	for _, dir := range []string{"adkbridge", "agentdhost", "agentdtest", "model", "server", "session"} {
		eachFile(t, dir, func(path string, file *ast.File) {
			name, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.ToSlash(filepath.Dir(name))
			if !strings.HasSuffix(name, "_test.go") && !slices.Contains(strings.Split(dir, "/"), "internal") {
				c, n := exported(file)
				counts[dir] += c
				names[dir] += n
			}
		})
	}
	total, each, models := 0, 0, 0
	var table strings.Builder
	byCount := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	for _, dir := range byCount {
		fmt.Fprintf(&table, "%4d %4d %s\n", counts[dir], names[dir], dir)
		total, each = total+counts[dir], each+names[dir]
		if dir == "model" || strings.HasPrefix(dir, "model/") {
			models += counts[dir]
		}
	}
	t.Logf("exported:\n%s%4d %4d in all", table.String(), total, each)
	for _, bound := range []struct {
		what    string
		got, of int
	}{
		{"all public packages but client", total, maxExported},
		{"package model and below", models, maxModel},
		{"package agentdtest", counts["agentdtest"], maxKit},
	} {
		if bound.got > bound.of {
			t.Errorf("%s: %d exported names, at most %d are allowed: hide what nobody outside needs", bound.what, bound.got, bound.of)
		}
	}
}

// exported counts what a file exports, with a group of constants or variables as one, and each name.
func exported(file *ast.File) (groups, names int) {
	add := func(ids ...*ast.Ident) {
		n := 0
		for _, id := range ids {
			if id.IsExported() {
				n++
			}
		}
		groups, names = groups+min(n, 1), names+n
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add(d.Name)
			}
		case *ast.GenDecl:
			var group []*ast.Ident
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					add(s.Name)
				case *ast.ValueSpec:
					group = append(group, s.Names...)
				}
			}
			add(group...)
		}
	}
	return groups, names
}

// TestSurfaceCounts shows what counts.
func TestSurfaceCounts(t *testing.T) {
	const src = `package p
import "fmt"
const (
	A = 1
	B, c = 2, 3
)
var D, e = 1, 2
const f = 1
type (
	G int
	H struct{}
	i int
)
func J() {}
func (H) K() { fmt.Println() }
func l() {}
`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if groups, names := exported(file); groups != 5 || names != 6 {
		t.Errorf("counted %d and %d, want 5 and 6", groups, names)
	}
}
