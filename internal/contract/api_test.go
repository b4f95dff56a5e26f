package contract_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// apiFile has one table of all concepts: what each is called in the protocol, in package
// client, in the TypeScript package, and in the command line.
const apiFile = "../../docs/api.md"

// Columns of the tables of apiFile. The commands are compared by the tests of cmd/agentd.
const (
	protocolColumn = iota + 1
	goColumn
	scriptColumn
	commandColumn
	apiColumns
)

// TestAPI compares docs/api.md with the protocol, with package client and with the TypeScript
// package: all that they export is in it, once, and it names nothing else.
func TestAPI(t *testing.T) {
	exported, members := goNames(t, "../../client")
	compareNames(t, "the protocol", apiNames(t, protocolColumn), protocolNames(), protocolMembers())
	compareNames(t, "package client", apiNames(t, goColumn), exported, members)
	names, members := scriptNames(t, "../../ts/src")
	compareNames(t, "the TypeScript package", apiNames(t, scriptColumn), names, members)
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// apiNames returns the names of a column with the concept of each.
func apiNames(t *testing.T, column int) map[string]string {
	t.Helper()
	text, err := os.ReadFile(apiFile)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != apiColumns+2 || strings.HasPrefix(cells[1], "-") || strings.TrimSpace(cells[1]) == "Concept" {
			continue
		}
		concept := strings.TrimSpace(cells[1])
		for _, m := range codeSpan.FindAllStringSubmatch(cells[column+1], -1) {
			if other, ok := names[m[1]]; ok {
				t.Errorf("%s: %q is %q and %q", apiFile, m[1], other, concept)
			}
			names[m[1]] = concept
		}
	}
	if len(names) == 0 {
		t.Fatalf("%s: column %d of its tables names nothing", apiFile, column)
	}
	return names
}

// compareNames compares a column with all that is exported. A name with a dot is that of a
// member, of which a table names those that matter.
func compareNames(t *testing.T, where string, table map[string]string, exported, members map[string]bool) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if !exported[name] && !members[name] {
			t.Errorf("%s: %s has no %q, the name of %q", apiFile, where, name, table[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(exported)) {
		if _, ok := table[name]; !ok {
			t.Errorf("%s: it lacks %q of %s", apiFile, name, where)
		}
	}
}

// protocolNames are the calls, the enums, and the messages that are no call's own.
func protocolNames() map[string]bool {
	names, ofCalls := map[string]bool{}, map[protoreflect.FullName]bool{}
	files(func(fd protoreflect.FileDescriptor) {
		for i := range fd.Services().Len() {
			s := fd.Services().Get(i)
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				names[fmt.Sprint(s.Name(), ".", m.Name())] = true
				ofCalls[m.Input().FullName()], ofCalls[m.Output().FullName()] = true, true
			}
		}
	})
	files(func(fd protoreflect.FileDescriptor) {
		enums(fd.Enums(), names)
		eachMessage(fd.Messages(), func(m protoreflect.MessageDescriptor) {
			if !ofCalls[m.FullName()] {
				names[short(m)] = true
			}
			enums(m.Enums(), names)
		})
	})
	return names
}

// protocolMembers are the fields of all messages, and the messages of calls.
func protocolMembers() map[string]bool {
	names := map[string]bool{}
	files(func(fd protoreflect.FileDescriptor) {
		eachMessage(fd.Messages(), func(m protoreflect.MessageDescriptor) {
			names[short(m)] = true
			for i := range m.Fields().Len() {
				names[fmt.Sprint(short(m), ".", m.Fields().Get(i).Name())] = true
			}
		})
	})
	return names
}

func files(f func(protoreflect.FileDescriptor)) {
	protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(fd protoreflect.FileDescriptor) bool {
		f(fd)
		return true
	})
}

func eachMessage(list protoreflect.MessageDescriptors, f func(protoreflect.MessageDescriptor)) {
	for i := range list.Len() {
		if m := list.Get(i); !m.IsMapEntry() {
			f(m)
			eachMessage(m.Messages(), f)
		}
	}
}

func enums(list protoreflect.EnumDescriptors, names map[string]bool) {
	for i := range list.Len() {
		names[short(list.Get(i))] = true
	}
}

// short is a full name without the package.
func short(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), pkg+".")
}

// goNames returns what a package exports, and the exported methods and fields of its types.
func goNames(t *testing.T, dir string) (exported, members map[string]bool) {
	t.Helper()
	exported, members = map[string]bool{}, map[string]bool{}
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(exported, d.Name)
				} else if of := receiver(d.Recv.List[0].Type); ast.IsExported(of) && d.Name.IsExported() {
					members[of+"."+d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					addSpec(spec, exported, members)
				}
			}
		}
	}
	return exported, members
}

func addSpec(spec ast.Spec, exported, members map[string]bool) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			add(exported, name)
		}
	case *ast.TypeSpec:
		add(exported, s.Name)
		var fields *ast.FieldList
		switch of := s.Type.(type) {
		case *ast.StructType:
			fields = of.Fields
		case *ast.InterfaceType:
			fields = of.Methods
		default:
			return
		}
		for _, f := range fields.List {
			for _, name := range f.Names {
				if name.IsExported() {
					members[s.Name.Name+"."+name.Name] = true
				}
			}
		}
	}
}

func add(names map[string]bool, name *ast.Ident) {
	if name.IsExported() {
		names[name.Name] = true
	}
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

var (
	scriptList = regexp.MustCompile(`(?s)export\s+(?:type\s+)?\{(.*?)\}`)
	scriptDecl = regexp.MustCompile(`(?m)^export\s+(?:declare\s+)?(?:abstract\s+)?(?:async\s+)?(?:interface|class|type|function|const|enum)\s+(\w+)`)
	scriptBody = regexp.MustCompile(`(?s)\nexport\s+(?:abstract\s+)?(?:interface|class)\s+(\w+)[^{]*\{(.*?)\n\}`)
	scriptPart = regexp.MustCompile(`(?m)^  (?:readonly |async |get |static )*\*?(\w+)[?]?[(:<]`)
)

// scriptEntries are the files that package.json exports, but for ./proto, which is generated.
var scriptEntries = regexp.MustCompile(`"default": "\./dist/([\w/]+)\.js"`)

// scriptNames returns what the entries of the TypeScript package export, and the members of
// exported interfaces and classes.
func scriptNames(t *testing.T, dir string) (exported, members map[string]bool) {
	t.Helper()
	exported, members = map[string]bool{}, map[string]bool{}
	manifest, err := os.ReadFile(filepath.Join(dir, "..", "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range scriptEntries.FindAllStringSubmatch(string(manifest), -1) {
		if entry[1] == "proto" { // generated
			continue
		}
		text := scriptFile(t, dir, entry[1])
		for _, list := range scriptList.FindAllStringSubmatch(text, -1) {
			for name := range strings.SplitSeq(list[1], ",") {
				words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(name), "type "))
				if len(words) > 0 {
					exported[words[len(words)-1]] = true
				}
			}
		}
		for _, decl := range scriptDecl.FindAllStringSubmatch(text, -1) {
			exported[decl[1]] = true
		}
		if strings.Contains(text, "export *") {
			t.Errorf("ts/src/%s: it exports all of another file; name what it exports", entry[1])
		}
	}
	if len(exported) == 0 {
		t.Fatal("the TypeScript package exports nothing")
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.ts*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		for _, body := range scriptBody.FindAllStringSubmatch(scriptFile(t, "", path), -1) {
			for _, part := range scriptPart.FindAllStringSubmatch(body[2], -1) {
				members[body[1]+"."+part[1]] = true
			}
		}
	}
	return exported, members
}

// scriptFile reads a source; name may be without its extension.
func scriptFile(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	for _, ext := range []string{"", ".ts", ".tsx"} {
		if text, err := os.ReadFile(path + ext); err == nil {
			return string(text)
		}
	}
	t.Fatalf("there is no %s.ts", path)
	return ""
}
