package contract_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// glossaryFile lists, in its last table, the words that no text uses.
const glossaryFile = "../../docs/glossary.md"

// notSearched are the folders that TestWords does not search, each with the reason.
var notSearched = map[string]string{
	"gen":           "generated from the protocol, which is searched itself",
	"ts":            "not Go; its pages are searched",
	"tools":         "programs of the build",
	"internal/test": "no part of the product",
}

// TestWords searches the documentation, the comments of the protocol, and the comments and
// error texts of Go packages for the words that docs/glossary.md rules out.
func TestWords(t *testing.T) {
	banned := bannedWords(t)
	texts := map[string]string{}
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../ts/*.md", "../../examples/*/*.md"} {
		for _, path := range paths(t, pattern) {
			if path != filepath.Clean(glossaryFile) {
				texts[path] = withoutCode(source(t, path))
			}
		}
	}
	for _, path := range paths(t, "../../proto/agentd/v1/*.proto") {
		texts[path] = protoComments(source(t, path))
	}
	public := goDocs(t, "../..")
	if len(texts) < 10 || len(public) < 100 {
		t.Fatalf("%d pages and comments of %d Go files were found", len(texts), len(public))
	}
	maps.Copy(texts, public)
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		for _, found := range banned.find(texts[path]) {
			t.Errorf("%s:%s", path, found)
		}
	}
}

// TestWordsFinds shows that the search finds what it is for, and nothing else.
func TestWordsFinds(t *testing.T) {
	banned := bannedWords(t)
	for text, want := range map[string]int{
		"a turn is put\naside":                    1,
		"Insists on it.":                          1,
		"The model's\nanswer to a tool call":      2,
		"a thin turn, healthy, insistent, `heal`": 0,
		"```go\nheal()\n```\nheal, cancelled":     3,
	} {
		if found := banned.find(withoutCode(text)); len(found) != want {
			t.Errorf("%q: found %q, want %d", text, found, want)
		}
	}
	const src = `// Package p heals.
package p

// F is in vain. Says: put aside.
func F() {
	// heal: also of what is not exported
	_ = errors.New("no quota")
	_ = "no quota"
}

// T is fine.
type T struct {
	a int // mint
	B int // mint
}

func (T) m() {}

// M: a workflow.
func (T) M() {}
`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if found := banned.find(allTexts(file)); len(found) != 8 {
		t.Errorf("found %q in Go comments and error texts, want 8", found)
	}
	if found := banned.find(protoComments("// heal\nmessage heal {} // insist")); len(found) != 2 {
		t.Errorf("found %q in comments of the protocol, want 2", found)
	}
}

// words maps what no text uses to what takes its place.
type words map[*regexp.Regexp]string

// find returns a line for each use of a word: its line in the text and what to write.
func (w words) find(text string) []string {
	var found []string
	for re, write := range w {
		for _, at := range re.FindAllStringIndex(text, -1) {
			line := strconv.Itoa(strings.Count(text[:at[0]], "\n") + 1)
			found = append(found, line+": "+strconv.Quote(text[at[0]:at[1]])+" is not used, write "+write)
		}
	}
	slices.Sort(found)
	return found
}

// bannedWords reads the last table of the glossary.
func bannedWords(t *testing.T) words {
	t.Helper()
	_, table, _ := strings.Cut(source(t, glossaryFile), "\n## Words that no text uses\n")
	banned := words{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 4 || strings.HasPrefix(cells[1], "-") || strings.TrimSpace(cells[1]) == "Not" {
			continue
		}
		var forms []string
		for form := range strings.SplitSeq(cells[1], ",") {
			forms = append(forms, strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(form)), " ", `\s+`))
		}
		banned[regexp.MustCompile(`(?i)\b(?:`+strings.Join(forms, "|")+`)\b`)] = strings.TrimSpace(cells[2])
	}
	if len(banned) < 10 {
		t.Fatalf("%s: its last table has %d rows", glossaryFile, len(banned))
	}
	return banned
}

var (
	fencedCode = regexp.MustCompile("(?ms)^```.*?\n```")
	inlineCode = regexp.MustCompile("`[^`\n]*`")
)

// withoutCode blanks the code spans of a page and keeps its lines. Blocks of code are
// searched: readers copy them.
func withoutCode(page string) string {
	var out strings.Builder
	last := 0
	for _, at := range fencedCode.FindAllStringIndex(page, -1) {
		out.WriteString(blankCode(page[last:at[0]]))
		out.WriteString(page[at[0]:at[1]])
		last = at[1]
	}
	return out.String() + blankCode(page[last:])
}

func blankCode(text string) string { return inlineCode.ReplaceAllString(text, "``") }

// protoComments keeps the comments of a proto file, each on its line.
func protoComments(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		_, comment, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "//")
		out.WriteString(blankCode(comment) + "\n")
	}
	return out.String()
}

// goDocs returns the comments and error texts of Go files, by file. Lines count from the
// first text of each.
func goDocs(t *testing.T, dir string) map[string]string {
	t.Helper()
	docs := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, ok := notSearched[rel(dir, path)]; ok || strings.HasPrefix(d.Name(), ".") && path != dir {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		docs[path] = allTexts(file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

// rel returns path relative to dir, with slashes.
func rel(dir, path string) string {
	p, err := filepath.Rel(dir, path)
	if err != nil {
		return path
	}
	return filepath.ToSlash(p)
}

// newError matches the names of functions whose text arguments become errors.
var newError = regexp.MustCompile(`^New$|(?i)errorf$`)

// allTexts joins all comments of a file and the texts of its errors.
func allTexts(file *ast.File) string {
	var out strings.Builder
	for _, g := range file.Comments {
		out.WriteString(blankCode(g.Text()))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !newError.MatchString(calledName(call)) {
			return true
		}
		for _, arg := range call.Args {
			if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, _ := strconv.Unquote(lit.Value)
				out.WriteString(blankCode(text) + "\n")
			}
		}
		return true
	})
	return out.String()
}

func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// paths are the files that match a pattern; there is one at least.
func paths(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(found), err)
	}
	return found
}

func source(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
