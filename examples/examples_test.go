package examples_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
)

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

func TestExamples(t *testing.T) {
	want := map[string][]string{
		"quickstart": {"greeter: Let me greet Alice for you.", `greet {"name":"Alice"} runs in this process`, "Hello, Alice! Nice to see you.", "poet: A friendly word", "completed: true, 3 model calls"},
		"sequential": {"desk/writer: The cat sat on on the mat.\ndesk/editor: The cat sat on the mat.\n"},
		"parallel":   {"review/reviewers/speed", "review/reviewers/style", "review/reviewers/security", "review/chair                \"Three reviews"},
		"loop":       {"cap        Draft 1. Draft 2. Draft 3. \n", "exit_loop  Draft 1. Good enough.\n", "client     Draft 1. Draft 2. \n"},
		"transfer":   {"frontdesk: I will get the billing department.\nfrontdesk/billing: Your invoice is paid.\nyou: thanks\nfrontdesk/billing: You are welcome.\n"},
		"state":      {"Your cart is worth 50.", `state: cart_total=50 answer="Your cart is worth 50."`},
		"cancel":     {"the handler stops: the tool call was canceled", "The archive did not answer.\n  [completed: true ]", "It all began\n  [completed: false cancelled by the client]", "It is fine.\n  [completed: true ]"},
		"provider":   {"Three, two, one.\ncompleted: true\n"},
		"supportdesk": {
			"desk: One moment, I ask a colleague.", "orders: Order 17 is delivered.\n",
			`billing wants to call refund {"euros":30,"order":17,"solved":false}`, "the call of refund was approved",
			"case: {Order:17 Euros:30 Solved:true}\n",
		},
		"files": {"scripted/example failed (AUTH_FAILED), echo is called\nWhat is this?\n[image/png, 67 bytes]\nanswered by echo\n"},
		"chat":  {"Nice to meet you, Ada.", `You said "What did I say?"; that was turn 2.`, `You said "And now?"; that was turn 3.`},
	}
	bin := t.TempDir()
	run(t, ".", "go", "build", "-o", bin, "./...")
	programs, err := filepath.Glob("*/main.go")
	if err != nil {
		t.Fatal(err)
	}
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
	for _, source := range [][]byte{found[1], bytes.ReplaceAll(found[1], []byte(dials), []byte(d.URL))} {
		if err := os.WriteFile(file, source, 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, "..", "go", "vet", file)
	}
	run(t, "..", "go", "build", "-o", bin, file)
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
