package contract_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

const (
	root       = "../.."
	eventsFile = root + "/docs/events.md"
	addFile    = root + "/docs/add-an-event.md"
)

// place is where something has to be written for each event, or for each kind of record.
type place struct {
	// name is the first cell of its row in addFile, without the backquotes.
	name string
	// missing returns those of the list that the place lacks.
	missing func(t *testing.T, list []string) []string
}

// eventPlaces are checked for each member of RunResponse, by the member's name.
var eventPlaces = []place{
	{"session, server: RunResponse_X", rendered},
	{"server: displayOf", inCode("server", "displayOf", wrapper)},
	{"client: dataOf", inCode("client", "dataOf", wrapper)},
	{"client: EventData", inEventDoc},
	{"client: memberTypes", inCode("client", "memberTypes", strconv.Quote)},
	{"ts/src/events.ts: readers", inReaders},
	{"docs/events.md: Events", inTable("Events")},
}

// kindPlaces are checked for each kind of record, by the name of its constant.
var kindPlaces = []place{
	{"session/record: kinds", inCode("session/record", "kinds", same)},
	{"adkbridge: load", inCode("adkbridge", "load", same)},
}

// TestEvents names the places that lack an event of the protocol.
func TestEvents(t *testing.T) {
	members := memberNames()
	if len(members) < 20 {
		t.Fatalf("RunResponse has %d members", len(members))
	}
	for _, p := range eventPlaces {
		if lacks := p.missing(t, members); len(lacks) > 0 {
			t.Errorf("%s lacks %s (docs/add-an-event.md says what to write)", p.name, strings.Join(lacks, ", "))
		}
	}
	compareTable(t, "Events", members)
}

// TestKinds names the places that lack a kind of record.
func TestKinds(t *testing.T) {
	kinds := kindValues(t)
	if len(kinds) < 10 {
		t.Fatalf("there are %d kinds of record: %v", len(kinds), kinds)
	}
	for _, p := range kindPlaces {
		if lacks := p.missing(t, slices.Sorted(maps.Keys(kinds))); len(lacks) > 0 {
			t.Errorf("%s lacks %s (docs/add-an-event.md says what to write)", p.name, strings.Join(lacks, ", "))
		}
	}
	compareTable(t, "Records", slices.Collect(maps.Values(kinds)))
}

// TestPlacesFind shows that each place would name an event, or a kind, that it lacks.
func TestPlacesFind(t *testing.T) {
	for _, p := range eventPlaces {
		if lacks := p.missing(t, []string{"agent_started", "planned_event"}); !slices.Equal(lacks, []string{"planned_event"}) {
			t.Errorf("%s lacks %q of agent_started and an event that does not exist", p.name, lacks)
		}
	}
	for _, p := range kindPlaces {
		if lacks := p.missing(t, []string{"KindEvent", "KindPlanned"}); !slices.Equal(lacks, []string{"KindPlanned"}) {
			t.Errorf("%s lacks %q of KindEvent and a kind that does not exist", p.name, lacks)
		}
	}
}

// TestAddAnEvent holds the tables of the page against the places that are checked. TestAPI
// checks docs/api.md, and TestKinds both tables of docs/events.md.
func TestAddAnEvent(t *testing.T) {
	want := []string{"docs/api.md: Protocol", "docs/events.md: Records"}
	for _, p := range slices.Concat(eventPlaces, kindPlaces) {
		want = append(want, p.name)
	}
	var named []string
	for _, row := range rows(source(t, addFile)) {
		named = append(named, row[0])
	}
	slices.Sort(want)
	slices.Sort(named)
	if !slices.Equal(want, named) {
		t.Errorf("%s names\n%s\nchecked are\n%s", addFile, strings.Join(named, "\n"), strings.Join(want, "\n"))
	}
}

// memberNames are the names of the events in the protocol.
func memberNames() []string {
	fields := (&agentdv1.RunResponse{}).ProtoReflect().Descriptor().Oneofs().ByName("response").Fields()
	var names []string
	for i := range fields.Len() {
		names = append(names, string(fields.Get(i).Name()))
	}
	return names
}

// wrapper is the generated Go type of a member: RunResponse_AgentStarted. The generator puts
// a _ behind it where a nested message has the name.
func wrapper(member string) string {
	name := "RunResponse_" + camel(member)
	nested := (&agentdv1.RunResponse{}).ProtoReflect().Descriptor().Messages()
	if nested.ByName(protoreflect.Name(camel(member))) != nil {
		name += "_"
	}
	return name
}

func camel(snake string) string {
	var out strings.Builder
	for word := range strings.SplitSeq(snake, "_") {
		out.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return out.String()
}

func same(name string) string { return name }

// inCode looks for names in the functions and variables of one name below a folder.
func inCode(dir, in string, spelled func(string) string) func(*testing.T, []string) []string {
	return func(t *testing.T, list []string) []string {
		t.Helper()
		used := usedIn(t, dir, in)
		if len(used) == 0 {
			t.Fatalf("there is no %s below %s: say here and in docs/add-an-event.md what it is called now", in, dir)
		}
		return slices.DeleteFunc(slices.Clone(list), func(name string) bool { return used[spelled(name)] })
	}
}

// rendered looks for code of the server that makes the event.
func rendered(t *testing.T, list []string) []string {
	t.Helper()
	made := map[string]bool{}
	for _, dir := range []string{"session", "server"} {
		eachFile(t, dir, func(path string, file *ast.File) {
			if strings.HasSuffix(path, "_test.go") {
				return
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.CompositeLit); ok {
					made[lastName(lit.Type)] = true
				}
				return true
			})
		})
	}
	return slices.DeleteFunc(slices.Clone(list), func(name string) bool { return made[wrapper(name)] })
}

// inEventDoc looks for the Go type of an event in the comment of client.EventData.
func inEventDoc(t *testing.T, list []string) []string {
	t.Helper()
	types, doc := map[string]string{"heartbeat": ""}, ""
	eachFile(t, "client", func(_ string, file *ast.File) {
		for _, decl := range file.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok && s.Name.Name == "EventData" {
					doc = d.Doc.Text()
				}
				if s, ok := spec.(*ast.ValueSpec); ok && s.Names[0].Name == "memberTypes" {
					maps.Copy(types, typesOf(s))
				}
			}
		}
	})
	return slices.DeleteFunc(slices.Clone(list), func(name string) bool {
		of, ok := types[name]
		return ok && (of == "" || strings.Contains(doc, "["+of+"]"))
	})
}

// typesOf reads a map of names to (*client.T)(nil) or nil.
func typesOf(s *ast.ValueSpec) map[string]string {
	types := map[string]string{}
	for _, value := range s.Values {
		lit, ok := value.(*ast.CompositeLit)
		if !ok {
			continue
		}
		for _, e := range lit.Elts {
			kv, ok := e.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			key, _ := kv.Key.(*ast.BasicLit)
			name, err := strconv.Unquote(key.Value)
			if err != nil {
				continue
			}
			types[name] = ""
			if call, ok := kv.Value.(*ast.CallExpr); ok {
				paren, _ := call.Fun.(*ast.ParenExpr)
				types[name] = lastName(paren.X)
			}
		}
	}
	return types
}

// inReaders looks for the members in the table of ts/src/events.ts.
func inReaders(t *testing.T, list []string) []string {
	t.Helper()
	_, table, _ := strings.Cut(source(t, root+"/ts/src/events.ts"), "\nconst readers")
	table, _, ok := strings.Cut(table, "\n};")
	if !ok {
		t.Fatal("ts/src/events.ts has no const readers: say here and in docs/add-an-event.md what it is called now")
	}
	return slices.DeleteFunc(slices.Clone(list), func(name string) bool {
		json := camel(name)
		return regexp.MustCompile(`(?m)^  ` + strings.ToLower(json[:1]) + json[1:] + `:`).MatchString(table)
	})
}

// inTable looks for the first cells of a table of docs/events.md.
func inTable(title string) func(*testing.T, []string) []string {
	return func(t *testing.T, list []string) []string {
		t.Helper()
		names := tableNames(t, title)
		return slices.DeleteFunc(slices.Clone(list), func(name string) bool { return slices.Contains(names, name) })
	}
}

// compareTable fails for a row about nothing, and for a name without a row.
func compareTable(t *testing.T, title string, names []string) {
	t.Helper()
	table := tableNames(t, title)
	for _, name := range table {
		if !slices.Contains(names, name) {
			t.Errorf("docs/events.md: %s has a row for %q, which does not exist", title, name)
		}
	}
	for _, name := range names {
		if !slices.Contains(table, name) {
			t.Errorf("docs/events.md: %s has no row for %q", title, name)
		}
	}
}

func tableNames(t *testing.T, title string) []string {
	t.Helper()
	_, text, _ := strings.Cut(source(t, eventsFile), "\n## "+title+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var names []string
	for _, row := range rows(text) {
		names = append(names, row[0])
	}
	return names
}

// rows are the cells of all tables whose first cell is code, without the backquotes.
func rows(text string) [][]string {
	var out [][]string
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		first := strings.TrimSpace(cells[0])
		if len(cells) < 2 || !strings.HasPrefix(line, "| `") || !strings.HasSuffix(first, "`") {
			continue
		}
		cells[0] = strings.Trim(first, "`")
		out = append(out, cells)
	}
	return out
}

// kindValues are the constants of type Kind below session, with their values.
func kindValues(t *testing.T) map[string]string {
	t.Helper()
	kinds := map[string]string{}
	eachFile(t, "session", func(path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.ValueSpec)
			if !ok || len(s.Values) != 1 || lastName(s.Type) != "Kind" {
				return true
			}
			if lit, ok := s.Values[0].(*ast.BasicLit); ok {
				kinds[s.Names[0].Name], _ = strconv.Unquote(lit.Value)
			}
			return true
		})
	})
	return kinds
}

// usedIn are the names and the string literals in the functions, methods and variables of one
// name in the Go files below a folder.
func usedIn(t *testing.T, dir, in string) map[string]bool {
	t.Helper()
	used := map[string]bool{}
	eachFile(t, dir, func(_ string, file *ast.File) {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Name.Name == in {
					maps.Copy(used, namesIn(d))
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.ValueSpec); ok && s.Names[0].Name == in {
						maps.Copy(used, namesIn(s))
					}
				}
			}
		}
	})
	return used
}

func namesIn(n ast.Node) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			names[n.Name] = true
		case *ast.BasicLit:
			names[n.Value] = true
		}
		return true
	})
	return names
}

// lastName is the name of a type without package and pointer.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.StarExpr:
		return lastName(e.X)
	}
	return ""
}

// eachFile parses the Go files below a folder of the repository.
func eachFile(t *testing.T, dir string, f func(path string, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, filepath.FromSlash(dir)), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		f(path, file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
