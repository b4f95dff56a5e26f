package contract_test

import (
	"go/ast"
	"go/doc"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// api are the packages for programs that use agentd, and for those who write a provider or a store.
var api = []string{
	"agentdhost", "agentdtest", "client", "client/terminal", "client/conf", "client/console", "client/harness", "client/loop", "client/mcp", "client/memory", "client/permit", "client/skills", "client/tools",
	"model", "model/adapter", "model/anthropic", "model/gemini", "model/modeltest", "model/openai",
	"session/store", "session/store/storetest",
}

// notAPI is what the first sentence of any other package says that can be imported.
const notAPI = "is a part of agentd, not an API"

// TestFirstSentences checks that a package that is not for users says so first, and that no other does.
func TestFirstSentences(t *testing.T) {
	docs := map[string]string{}
	for _, dir := range []string{"adkbridge", "agentdhost", "agentdtest", "client", "model", "server", "session"} {
		eachFile(t, dir, func(path string, file *ast.File) {
			name, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.ToSlash(filepath.Dir(name))
			if strings.HasSuffix(name, "_test.go") || slices.Contains(strings.Split(dir, "/"), "internal") {
				return
			}
			docs[dir] += file.Doc.Text()
		})
	}
	for _, dir := range api {
		if docs[dir] == "" {
			t.Errorf("package %s has no doc", dir)
		}
	}
	for dir, text := range docs {
		first := new(doc.Package).Synopsis(text)
		if says := strings.Contains(first, notAPI); says == slices.Contains(api, dir) {
			t.Errorf("package %s begins with %q: says %q: %v, is for users: %v", dir, first, notAPI, says, !says)
		}
	}
}
