package tools_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/conf"
	"github.com/apzuk3/agentd/client/permit"
	"github.com/apzuk3/agentd/client/tools"
)

// bench is a project whose tools are called as a model calls them: by a turn of a real daemon.
type bench struct {
	t    *testing.T
	cfg  *conf.Config
	gate *permit.Gate
	reg  *tools.Registry
	dir  string // the project's folder
}

// newBench makes a project in which everything passes that is in scope.
func newBench(t *testing.T, change ...func(*conf.Config)) *bench {
	t.Helper()
	c, err := conf.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c.Permissions.Mode = "yolo"
	for _, f := range change {
		f(c)
	}
	b := &bench{t: t, cfg: c, dir: c.Root}
	if b.gate, err = permit.New(c, nil); err != nil {
		t.Fatal(err)
	}
	if b.reg, err = tools.Build(c, b.gate, tools.Default()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.reg.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// file writes a file of the project.
func (b *bench) file(name, text string) {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// text reads a file of the project, "" if there is none.
func (b *bench) text(name string) string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Fatal(err)
	}
	return string(data)
}

// call has a model call a tool, and returns what the model is told: the result, or the error behind "error: ".
func (b *bench) call(name, args string) string { return b.callIn("", name, args) }

// callIn is call in a session; "" is a new one.
func (b *bench) callIn(session, name, args string) string {
	b.t.Helper()
	clnt := daemon().Client()
	defer clnt.CloseIdleConnections()
	opts := []client.RunOption{client.WithTools(b.reg.Set)}
	if session != "" {
		opts = append(opts, client.WithSessionOrNew(session))
	}
	got, ended := "", false
	for event, err := range clnt.Run(b.t.Context(), client.LLM("a", "scripted/"+name, client.Tools(name)), args, opts...) {
		if err != nil {
			b.t.Fatalf("%s(%.200s): %v", name, args, err)
		}
		switch e := event.Data.(type) {
		case *client.ToolCallAnswered:
			if got = e.Output; e.Error != "" {
				got = "error: " + e.Error
			}
		case *client.End:
			ended = e.Completed
		}
	}
	if !ended {
		b.t.Fatalf("%s(%.200s): the turn has not completed", name, args)
	}
	return got
}

// daemon is the one that all tests of the package ask. Its models scripted/NAME call the tool NAME with what the user says.
var daemon = sync.OnceValue(func() *agentdtest.Daemon {
	scripts := map[string]string{}
	for _, name := range toolNames {
		scripts[name] = fmt.Sprintf(`answers:
  - when: {step: 1}
    calls: [{name: %s, args_text: "{{last_user}}"}]
  - when: {}
    text: "done"`, name)
	}
	d, err := agentdtest.New(agentdtest.Config{Scripts: scripts})
	if err != nil {
		panic(err)
	}
	return d
})

var toolNames = []string{
	"read_file", "read_many_files", "write_file", "edit_file", "delete_file", "stat", "list_dir", "glob", "grep", "json_query", "fetch_url",
	"bash", "bash_output", "bash_kill", "todo", "record_plan",
}

func TestMain(m *testing.M) {
	code := m.Run()
	if err := daemon().Close(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// want calls a tool and compares the result, as JSON.
func (b *bench) want(name, args, want string) {
	b.t.Helper()
	got := b.call(name, args)
	var g, w any
	if json.Unmarshal([]byte(got), &g) != nil || json.Unmarshal([]byte(want), &w) != nil || !reflect.DeepEqual(g, w) {
		b.t.Errorf("%s(%s)\n got %.2000s\nwant %.2000s", name, args, got, want)
	}
}

// refused calls a tool that has to fail with a text.
func (b *bench) refused(name, args, want string) {
	b.t.Helper()
	if got := b.call(name, args); !strings.HasPrefix(got, "error: ") || !strings.Contains(got, want) {
		b.t.Errorf("%s(%s)\n got %.2000s\nwant an error with %q", name, args, got, want)
	}
}
