package examples_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
)

// stripped has the linker leave out what debuggers read, which takes it half of its
// time.
const stripped = "-ldflags=-s -w"

// run runs a program to its end, without any provider key.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	for _, v := range os.Environ() {
		if !strings.Contains(v, "_API_KEY=") && !strings.HasPrefix(v, "GOFLAGS=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s\n%s", name, args, err, out, &stderr)
	}
	return string(out)
}

var (
	mainPackage = regexp.MustCompile(`(?m)^package main$`)
	mainFunc    = regexp.MustCompile(`(?m)^func main\(\) \{`)
)

// build links all programs as one, which is whichever it is called as, and returns
// the folder of its names: each program has the whole daemon in it, and to link it is
// most of what it takes to build it. scripts/examples builds them one by one.
func build(t *testing.T, programs []string) (bin string) {
	t.Helper()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	bin = t.TempDir()
	const all = "all" // the folder, beside the programs', that is not there
	overlay := map[string]string{}
	put := func(name string, text []byte) {
		copied := filepath.Join(t.TempDir(), filepath.Base(name))
		if err := os.WriteFile(copied, text, 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(here, all, name)] = copied
	}
	var imports, cases bytes.Buffer
	for _, p := range programs {
		name := filepath.Dir(p)
		files, err := filepath.Glob(filepath.Join(name, "*.*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Ext(file) == ".go" {
				text = mainPackage.ReplaceAll(text, []byte("package program"))
				text = mainFunc.ReplaceAll(text, []byte("func Main() {"))
			}
			put(file, text)
		}
		fmt.Fprintf(&imports, "\t%s %q\n", name, "github.com/apzuk3/agentd/examples/"+all+"/"+name)
		fmt.Fprintf(&cases, "\tcase %q:\n\t\t%s.Main()\n", name, name)
		if err := os.Symlink(all, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	put("main.go", fmt.Appendf(nil, "package main\n\nimport (\n\t\"os\"\n\t\"path/filepath\"\n\n%s)\n\nfunc main() {\n"+
		"\tswitch filepath.Base(os.Args[0]) {\n%s\tdefault:\n\t\tos.Exit(2)\n\t}\n}\n", &imports, &cases))
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(list, replace, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, ".", "go", "build", stripped, "-overlay", list, "-o", filepath.Join(bin, all), "./"+all)
	return bin
}

func TestExamples(t *testing.T) {
	want := map[string][]string{
		"quickstart": {"greeter: Let me greet Alice for you.", `greet {"name":"Alice"} runs in this process`, "Hello, Alice! Nice to see you.", "poet: A friendly word", "completed: true, 3 model calls"},
		"sequential": {"desk/writer: The cat sat on on the mat.\ndesk/editor: The cat sat on the mat.\n"},
		"parallel":   {"review/reviewers/speed", "review/reviewers/style", "review/reviewers/security", "review/chair                \"Three"},
		"loop":       {"cap        Draft 1. Draft 2. Draft 3. \n", "exit_loop  Draft 1. Good enough.\n", "client     Draft 1. Draft 2. \n"},
		"transfer":   {"frontdesk: I will get the billing department.\nfrontdesk/billing: Your invoice is paid.\nyou: thanks\nfrontdesk/billing: You are welcome.\n"},
		"state":      {"Your cart is worth 50.", `state: cart_total=50 answer="Your cart is worth 50."`},
		"cancel":     {"the handler stops: the tool call was canceled", "The archive did not answer.\n  [completed: true ]", "It all began\n  [completed: false cancelled by the client]", "It is fine.\n  [completed: true ]"},
		"face":       {"\nsays: Say hello\nend\n"},
		"nightly":    {"each night, next in ", "told: turn.ended in reports: succeeded: All is quiet.\n"},
		"research": {
			"Three of us have looked, and tea is old, far-travelled and bitter.\n", "history completed: history has three books on the history of tea\n",
			"taste completed: taste has three books on the taste of tea\n", "trade completed: trade has three books on the trade of tea\n",
		},
		"supervisor": {"supervisor: completed: I have stopped it.\nrunaway: stopped, after at most 1000 turns: true\n"},
		"provider":   {"Three, two, one.\ncompleted: true\n"},
		"supportdesk": {
			"desk: One moment, I ask a colleague.", "orders: Order 17 is delivered.\n",
			`billing wants to call refund {"euros":30,"order":17,"solved":false}`, "the call of refund was approved",
			"case: {Order:17 Euros:30 Solved:true}\n",
		},
		"harness": {"may mcp be used with clock_now? yes\nmay write_file be used with time.txt? yes\nIT IS noon, hurry hurry.\n"},
		"files":   {"scripted/example failed (AUTH_FAILED), echo is called\nWhat is this?\n[image/png, 67 bytes]\nanswered by echo\n"},
		"chat":    {"Nice to meet you, Ada.", `You said "What did I say?"; that was turn 2.`, `You said "And now?"; that was turn 3.`},
	}
	programs, err := filepath.Glob("*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile("harness/main.go"); err != nil || bytes.Count(text, []byte("\n")) >= 40 {
		t.Errorf("harness/main.go has %d lines, want fewer than 40: %v", bytes.Count(text, []byte("\n")), err)
	}
	bin := build(t, programs)
	for _, p := range programs {
		name := filepath.Dir(p)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if len(want[name]) == 0 {
				t.Fatal("this example is not checked: say in the table what it prints")
			}
			out := run(t, ".", filepath.Join(bin, name))
			for _, w := range want[name] {
				if !strings.Contains(out, w) {
					t.Errorf("the output lacks %q:\n%s", w, out)
				}
			}
		})
	}
	if len(programs) != len(want) {
		t.Errorf("%d programs, %d expected", len(programs), len(want))
	}
}

// TestVerify checks that docs/webhooks.md shows how the example verifies a request.
func TestVerify(t *testing.T) {
	code, err := os.ReadFile("nightly/verify.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, function, _ := bytes.Cut(code, []byte("\n)\n\n"))
	if len(function) == 0 || !bytes.Contains(page, append([]byte("```go\n"), function...)) {
		t.Errorf("the page does not have\n%s", function)
	}
}

// TestReadme builds the client of the README, and that of its page about the Go
// client, as they stand and runs them against a daemon.
func TestReadme(t *testing.T) {
	for _, page := range []string{"../README.md", "../docs/go.md"} {
		t.Run(filepath.Base(page), func(t *testing.T) { runPage(t, page) })
	}
}

func runPage(t *testing.T, page string) {
	t.Helper()
	readme, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(readme)
	if found == nil {
		t.Fatal("the page has no Go program")
	}
	d := agentdtest.Start(t, agentdtest.Config{Addr: "127.0.0.1:0"})
	const dials = "http://localhost:8080"
	if !bytes.Contains(found[1], []byte(dials)) {
		t.Fatalf("the page's program does not dial %s", dials)
	}
	dir := t.TempDir()
	file, bin := filepath.Join(dir, "main.go"), filepath.Join(dir, "client")
	write := func(source []byte) {
		if err := os.WriteFile(file, source, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(found[1])
	run(t, "..", "go", "vet", file)
	write(bytes.ReplaceAll(found[1], []byte(dials), []byte(d.URL))) // has but another string
	run(t, "..", "go", "build", stripped, "-o", bin, file)
	out := run(t, ".", bin)
	if !strings.Contains(out, "Hello, Alice!") || !strings.HasSuffix(out, "completed: true\n") {
		t.Errorf("it printed\n%s", out)
	}
}

// TestCurl speaks a whole turn with curl and a tool in the shell.
func TestCurl(t *testing.T) {
	version, err := exec.CommandContext(t.Context(), "curl", "--version").Output()
	if err == nil && !bytes.Contains(version, []byte("HTTP2")) {
		err = errors.New("this curl has no HTTP/2")
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	d := agentdtest.Start(t, agentdtest.Config{Addr: "127.0.0.1:0"})
	out := run(t, ".", "bash", "curl/session.sh", d.URL)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if !strings.HasPrefix(lines[0], `{"execute"`) || !strings.HasPrefix(lines[len(lines)-1], `{"end"`) ||
		!strings.Contains(lines[len(lines)-1], `"completed":true`) {
		t.Errorf("it printed\n%s", out)
	}
	var text strings.Builder
	content := regexp.MustCompile(`^{"outputChunk".*"content":"([^"]*)"`)
	for _, l := range lines {
		if m := content.FindStringSubmatch(l); m != nil {
			text.WriteString(m[1])
		}
	}
	if !strings.Contains(text.String(), "Hello, Alice, from process") {
		t.Errorf("the tool's result did not come back: %s", text.String())
	}
}
