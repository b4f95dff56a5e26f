package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// examples are the files that people start with.
const examples = "../../examples/agents/"

// locked is a buffer that a command writes and a test reads.
type locked struct {
	mu     sync.Mutex // protects the fields below
	b      bytes.Buffer
	saw    chan struct{} // closed when wanted has come; nil: nobody waits
	wanted string
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Write(p)
	if l.saw != nil && strings.Contains(l.b.String(), l.wanted) {
		close(l.saw)
		l.saw = nil
	}
	return len(p), nil
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// await is closed when a text has been written.
func (l *locked) await(text string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	saw := make(chan struct{})
	if strings.Contains(l.b.String(), text) {
		close(saw)
	} else {
		l.saw, l.wanted = saw, text
	}
	return saw
}

// shell runs commands as a person does, or a program.
type shell struct {
	t       *testing.T
	url     string
	tty     bool
	stdin   io.Reader
	signals chan os.Signal
	env     map[string]string
	stdout  *locked
	stderr  *locked
}

// run runs a command and returns its exit code; stdout and stderr hold what it
// said.
func (s *shell) run(args ...string) int {
	env := map[string]string{"AGENTD_URL": s.url, "NO_COLOR": "1", "TERM": "dumb"}
	maps.Copy(env, s.env)
	if s.stdin == nil {
		s.stdin = strings.NewReader("")
	}
	if s.stdout == nil {
		s.stdout, s.stderr = &locked{}, &locked{}
	}
	p := &process{signals: s.signals, env: env, stdin: s.stdin, stdout: s.stdout, stderr: s.stderr}
	p.tty.stdin, p.tty.stdout, p.tty.stderr = s.tty, s.tty, s.tty
	return p.run(args)
}

// says runs a command that must succeed, on a terminal or not, and returns its
// output.
func (s shell) says(tty bool, args ...string) string {
	s.t.Helper()
	s.tty, s.stdout, s.stderr = tty, nil, nil
	if code := s.run(args...); code != exitOK {
		s.t.Fatalf("agentd %q: exit code %d: %s", args, code, s.stderr)
	}
	return s.stdout.String()
}

// fails runs a command that must fail, and returns what it says about it.
func (s shell) fails(code int, args ...string) string {
	s.t.Helper()
	s.stdout, s.stderr = nil, nil
	if got := s.run(args...); got != code {
		s.t.Fatalf("agentd %q: exit code %d, want %d: %s", args, got, code, s.stderr)
	}
	return s.stderr.String()
}

// lines reads JSON lines.
func (s shell) lines(args ...string) []map[string]any {
	s.t.Helper()
	var out []map[string]any
	for l := range strings.Lines(s.says(false, args...)) {
		var v map[string]any
		if err := json.Unmarshal([]byte(l), &v); err != nil {
			s.t.Fatalf("agentd %q: %v: %s", args, err, l)
		}
		out = append(out, v)
	}
	return out
}

// start starts a daemon with the scripts given by name, for a shell.
func startShell(t *testing.T, scripts map[string]string) shell {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := inProcess(t, map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": ":memory:", "AGENTD_SCRIPTS": dir})
	return shell{t: t, url: d.url}
}

// file writes a file and returns its name.
func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// sessionOf is the session in a command's last line.
func sessionOf(t *testing.T, stderr string) string {
	t.Helper()
	m := regexp.MustCompile(`session (\w+)\n$`).FindStringSubmatch(stderr)
	if m == nil {
		t.Fatalf("no session in %q", stderr)
	}
	return m[1]
}

func contains(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%q is not in\n%s", w, text)
		}
	}
}

// A gateway that speaks HTTP/1.1 alone passes a turn with its tool, and the other commands.
func TestRunOverHTTP1(t *testing.T) {
	t.Parallel()
	s := startShell(t, nil)
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	gateway := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, FlushInterval: -1,
		Transport: &http.Transport{Protocols: protocols, DisableKeepAlives: true},
	})
	gateway.Config.Protocols = protocols
	gateway.Start()
	defer gateway.Close()
	s.url = gateway.URL
	if code := s.run("run", "--http1", examples+"greeter.yaml", "Say hi to Alice"); code != exitOK {
		t.Fatalf("exit code %d: %s", code, s.stderr)
	}
	contains(t, s.stdout.String(), "Hello, Alice!")
	if code := s.run("sessions", "list", "--http1"); code != exitOK {
		t.Errorf("exit code %d: %s", code, s.stderr)
	}
	if code := s.run("sessions", "list"); code == exitOK {
		t.Error("the gateway takes HTTP/2")
	}
}

// A turn of a file, with its tool in this process, for people and for programs.
func TestRunFile(t *testing.T) {
	t.Parallel()
	s := startShell(t, nil)
	s.tty = true
	if code := s.run("run", examples+"greeter.yaml", "Say hi to Alice"); code != exitOK {
		t.Fatalf("exit code %d: %s", code, s.stderr)
	}
	if want := regexp.MustCompile(`^greeter: Let me use greet for that.\n→ greet {"name":"Alice"}\nThe tool greet says: Hello, Alice! Greetings from process \d+.\n$`); !want.MatchString(s.stdout.String()) {
		t.Errorf("shown %q", s.stdout)
	}
	if want := regexp.MustCompile(`^agentd: completed; 2 model calls, \d+ tokens, [\d.]+m?s, session \w+\n$`); !want.MatchString(s.stderr.String()) {
		t.Errorf("noted %q", s.stderr)
	}
	id := sessionOf(t, s.stderr.String())

	// The session continues with its tree; its tools are those of the file.
	events := s.lines("run", "--session", id, "--json", examples+"greeter.yaml", "And to Bob")
	text := ""
	for _, e := range events {
		if c, ok := e["outputChunk"].(map[string]any); ok && c["isThought"] == nil {
			part, _ := c["content"].(string)
			text += part
		}
	}
	contains(t, text, "Let me use greet for that.The tool greet says: Hello, Bob!")
	if end, ok := events[len(events)-1]["end"].(map[string]any); !ok || end["completed"] == nil || events[0]["execute"] == nil {
		t.Errorf("got %v", events)
	}
	// Watching what is over shows the same.
	contains(t, s.says(true, "run", "--attach", id), "→ greet {\"name\":\"Bob\"}", "The tool greet says: Hello, Bob!")
	contains(t, s.says(true, "run", "--thoughts", "--attach", id), "The user says")

	// From standard input, without a file.
	s.stdin = strings.NewReader("and to Carol\n")
	s.stdout, s.stderr = nil, nil
	done := make(chan int, 1)
	go func() { done <- s.run("run", "--session", id, "-") }()
	other := shell{t: t, url: s.url}
	for !strings.Contains(other.says(true, "turns", "show", id), "waiting for client") {
	}
	contains(t, other.says(true, "run", "--attach", id, examples+"greeter.yaml"), "Hello, Carol!")
	if code := <-done; code != exitOK {
		t.Errorf("exit code %d: %s", code, s.stderr)
	}
	contains(t, s.stdout.String(), "Hello,")
}

func TestRunState(t *testing.T) {
	s := startShell(t, map[string]string{"tell": "answers: [{text: '{{system}}'}]"})
	name := file(t, "name: a\nllm: {model: scripted/tell, instruction: 'n={n} s={s} l={l}'}\n")
	contains(t, s.says(true, "run", name, "go", "-s", "n=9007199254740993", "-s", "s=a;b=c", "--state", `l="5"`), "a: n=9007199254740993 s=a;b=c l=5\n")
}

// What a turn ends with decides the exit code.
func TestRunEnds(t *testing.T) {
	s := startShell(t, map[string]string{
		"broken": "answers: [{text: 'a ', error: {kind: blocked, message: no such talk}}]",
		"long":   "answers: [{calls: [{name: x}]}, {calls: [{name: x}]}, {text: done}]",
	})
	tool := "\ntools: [{name: x, description: x, command: [cat]}]\n"
	got := s.fails(exitError, "run", file(t, "agent: {name: a, llm: {model: scripted/broken}}"), "go")
	contains(t, got, "agentd: failed: ", "no such talk", "(CONTENT_BLOCKED); ")
	long := file(t, "agent: {name: a, llm: {model: scripted/long, tool_names: [x]}}"+tool)
	contains(t, s.fails(exitError, "run", "--budget-calls=2", long, "go"), "(BUDGET_EXHAUSTED); 2 model calls")
	contains(t, s.says(true, "run", "--budget-calls=9", "--budget-tokens=100000", "--budget-time=1h", "--budget-cost=0.5", long, "go"), "done")
	contains(t, s.fails(exitError, "run", "--session", "nobody", "go"), "does not exist", "SESSION_NOT_FOUND")
	contains(t, s.fails(exitError, "run", "--attach", "nobody"), "does not exist", "SESSION_NOT_FOUND")
	// The server judges; where in the file is told here.
	bad := file(t, "agent:\n  name: a\n  llm:\n    model: echo\n    tool_names: [y]\n    builtin_tools: [fly]\n"+tool)
	contains(t, s.fails(exitUsage, "run", bad, "go"), bad+`:5:18: a: unknown tool "y"`, bad+`:6:21: a: builtin tool "fly"`)
	contains(t, s.fails(exitUsage, "run", file(t, "agent: {nam: a}"), "go"), `agent.yaml:1:9: ?: unknown field "nam"; did you mean name?`)
	contains(t, s.fails(exitUsage, "run", "no.yaml", "go"), "no.yaml")
	nobody := shell{t: t, url: "http://127.0.0.1:1"}
	contains(t, nobody.fails(exitError, "run", long, "go"), "no agentd responds at http://127.0.0.1:1", "agentd serve", "--local")
	contains(t, nobody.fails(exitError, "sessions", "list"), "no agentd responds")
}

func TestRunUsage(t *testing.T) {
	// The variables do not count.
	s := shell{t: t, url: "http://127.0.0.1:1", env: map[string]string{"AGENTD_SESSION": "x", "AGENTD_LOCAL": "true", "AGENTD_YES": "true", "AGENTD_STATUS": "failed"}}
	greeter := examples + "greeter.yaml"
	for want, args := range map[string][]string{
		"the file and the prompt are missing":       {"run"},
		"the prompt is missing":                     {"run", greeter},
		"--attach does not go with --session":       {"run", "--attach", "x", "--session", "y"},
		"--data goes only with --local":             {"run", "--data", "x", greeter, "go"},
		"but neither PROMPT nor --file nor --state": {"run", "--attach", "x", greeter, "go"},
		"unexpected argument three":                 {"run", greeter, "two", "three"},
		"has to be above 0":                         {"run", "--budget-calls=-1", greeter, "go"},
		"has no key":                                {"run", "-s", "=x", greeter, "go"},
		"the daemon's URL has to be":                {"run", "--url", "nowhere", greeter, "go"},
		"--reason does not go with --call":          {"turns", "cancel", "x", "--call", "c", "--reason", "enough"},
		"nothing to change":                         {"sessions", "update", "x"},
		"--budget: \"calls=0\": want an amount":     {"sessions", "update", "x", "--budget=calls=0"},
		"give --yes":                                {"sessions", "delete", "x"},
		"must be one of":                            {"turns", "list", "--status", "tired"},
		"the answer is missing":                     {"interactions", "resolve", "s", "i", "answer"},
		`expected "<DECISION>"`:                     {"interactions", "resolve", "s", "i"},
		"<DECISION> must be one of":                 {"interactions", "resolve", "s", "i", "maybe"},
		"must be one of \"active\"":                 {"sessions", "list", "--state", "open"},
		"expected \"<SESSION>\"":                    {"sessions", "show"},
		"expected one of \"create\",":               {"sessions"},
		"expected \"<FILE> ...\"":                   {"validate"},
		"--after: expected a valid 64 bit int":      {"sessions", "events", "x", "--after=x"},
		"--after goes with --turn":                  {"sessions", "events", "x", "--after=1"},
		"--cursor does not go with --turn":          {"sessions", "events", "x", "--turn=y", "--cursor=z"},
	} {
		if got := s.fails(exitUsage, args...); !strings.Contains(got, want) {
			t.Errorf("agentd %q says %q, want %q", args, got, want)
		}
	}
}

// A daemon for one turn, without another one.
func TestRunLocal(t *testing.T) {
	t.Parallel()
	s := shell{t: t, url: "http://127.0.0.1:1", env: map[string]string{"AGENTD_SCRIPTS": t.TempDir()}}
	contains(t, s.says(true, "run", "--local", examples+"greeter.yaml", "Say hi to Alice"), "Hello, Alice!")
	contains(t, s.fails(exitError, "run", "--local", file(t, "{name: a, llm: {model: gpt-5}}"), "go"), "AUTH_FAILED")
}

// Every example runs without a key.
func TestExampleFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(examples + "*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	out := shell{t: t}.says(true, append([]string{"validate"}, files...)...)
	for _, f := range files {
		contains(t, out, f+": ok\n")
	}
	s := shell{t: t}
	contains(t, s.says(true, "run", "--local", examples+"desk.yaml", "a bridge"), "writer: Hello!", "editor: Hello!")
}

func TestValidate(t *testing.T) {
	bad := file(t, "agent:\n  name: a b\n  llm: {model: echo, tool_names: [x]}\n")
	worse := file(t, "agent:\n  nam: a\n")
	got := shell{t: t}.fails(exitUsage, "validate", bad, examples+"greeter.yaml", worse, "no.yaml")
	contains(t, got, bad+`:2:9: a b: name "a b": only letters`, bad+`:3:35: a b: unknown tool "x"`, worse+`:2:3: ?: unknown field "nam"`, "no.yaml: no such file", "agentd: 3 files are invalid")
	contains(t, shell{t: t}.fails(exitUsage, "validate", bad), "agentd: 1 file is invalid")
}

// The first interrupt cancels the turn, the second one leaves it.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	slow := file(t, "agent: {name: a, llm: {model: scripted/demo, tool_names: [slow]}}\ntools: [{name: slow, description: Slow, command: [sleep, '1000']}]\n")
	s := startShell(t, nil)
	s.signals, s.tty = make(chan os.Signal, 2), true
	s.stdout, s.stderr = &locked{}, &locked{}
	done := make(chan int, 1)
	go func() { done <- s.run("run", slow, "go") }()
	<-s.stdout.await("→ slow")
	s.signals <- os.Interrupt
	if code := <-done; code != exitError {
		t.Errorf("exit code %d", code)
	}
	contains(t, s.stderr.String(), "canceling the turn; interrupt again to leave it", "stopped: interrupted at the terminal; 1 model call")

	// Nobody cancels for a daemon that is gone; the second one leaves.
	d := binary(t, map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": ":memory:"})
	s.url, s.stdout, s.stderr = d.url, &locked{}, &locked{}
	go func() { done <- s.run("run", slow, "go") }()
	<-s.stdout.await("→ slow")
	d.signal(os.Kill)
	d.wait()
	<-s.stderr.await("trying again")
	s.signals <- os.Interrupt
	<-s.stderr.await("interrupt again")
	s.signals <- os.Interrupt
	if code := <-done; code != exitError {
		t.Errorf("exit code %d", code)
	}
	contains(t, s.stderr.String(), "To follow it: agentd run --attach ", "agentd sessions events -f ", "agentd: interrupted\n")
}

// quick is a model without waits, desk a tree of two of it.
var quick = map[string]string{"quick": "answers: [{when: {}, text: quick words}]"}

const desk = "name: desk\nsequential:\n  agents:\n    - {name: writer, llm: {model: scripted/quick}}\n    - {name: editor, llm: {model: scripted/quick}}\n"

// A call is canceled from elsewhere while the command waits for its tool.
func TestTurnsCancelCall(t *testing.T) {
	t.Parallel()
	s := startShell(t, nil)
	s.run("run", examples+"greeter.yaml", "Say hi to Alice")
	id := sessionOf(t, s.stderr.String())
	s.stdin, s.stdout, s.stderr = strings.NewReader("and to Bob\n"), nil, nil
	done := make(chan int, 1)
	go func() { done <- s.run("run", "--session", id, "-") }()
	other := shell{t: t, url: s.url}
	for !strings.Contains(other.says(true, "turns", "show", id), "waiting for client") {
	}
	open, ok := other.lines("turns", "show", id)[0]["pendingToolCalls"].([]any)
	if !ok || len(open) != 1 {
		t.Fatalf("open calls: %v", open)
	}
	called, _ := open[0].(map[string]any)["toolCallId"].(string)
	contains(t, other.fails(exitError, "turns", "cancel", id, "--call", "nothing"), "NOT_FOUND", `"nothing"`)
	for range 2 {
		other.says(true, "turns", "cancel", id, "--call", called)
	}
	if code := <-done; code != exitOK {
		t.Errorf("exit code %d: %s", code, s.stderr)
	}
	contains(t, s.stdout.String(), "cancelled")
}

func TestTurnsCommands(t *testing.T) {
	s, desk := startShell(t, quick), file(t, desk)
	s.run("run", desk, "a bridge")
	id := sessionOf(t, s.stderr.String())
	turns := s.lines("turns", "list", id)
	if len(turns) != 1 || turns[0]["status"] != "TURN_STATUS_SUCCEEDED" || turns[0]["userPrompt"] != "a bridge" {
		t.Fatalf("got %v", turns)
	}
	contains(t, s.says(true, "turns", "list", id), "TURN ", "succeeded", "a bridge")
	if got := s.says(true, "turns", "list", id, "--status", "failed,canceled"); got != "nothing\n" {
		t.Errorf("got %q", got)
	}
	contains(t, s.says(true, "turns", "show", id), "status   succeeded", "prompt   a bridge", "output   quick words")
	turn, _ := turns[0]["id"].(string)
	if shown := s.lines("turns", "show", id, turn); shown[0]["id"] != turn {
		t.Errorf("got %v", shown)
	}
	contains(t, s.says(true, "turns", "cancel", id), "status   succeeded")
	contains(t, s.fails(exitError, "turns", "show", id, "none"), "NOT_FOUND")

	events := s.lines("sessions", "events", "--turn", turn, id)
	if events[0]["execute"] == nil || events[len(events)-1]["end"] == nil {
		t.Errorf("got %v", events)
	}
	placed := s.lines("sessions", "events", id)
	for i, e := range placed {
		one, _ := e["event"].(map[string]any)
		cursor, _ := e["cursor"].(string)
		if rest := s.lines("sessions", "events", id, "--cursor", cursor); len(placed) != len(events) || one["seq"] != events[i]["seq"] || len(rest) != len(placed)-1-i {
			t.Errorf("event %d of the session is %v, then %d more", i, e, len(rest))
		}
	}
	if shown := s.says(true, "sessions", "events", id); strings.Count(shown, "\n") != len(events) || shown != s.says(true, "sessions", "events", id, "--turn", turn) {
		t.Errorf("the session shows %s", shown)
	}
	seq, _ := events[len(events)-2]["seq"].(string)
	if rest := s.lines("sessions", "events", "--turn", turn, "--after", seq, id); len(rest) != 1 || rest[0]["end"] == nil {
		t.Errorf("after %s comes %v", seq, rest)
	}
	contains(t, s.says(true, "sessions", "events", "-f", "--turn", turn, id), "execute", `desk/writer "quick`, "end                    completed; 2 model calls")
	if followed := s.lines("sessions", "events", "-f", "--turn", turn, id); len(followed) < len(events) {
		t.Errorf("%d events, want at least %d", len(followed), len(events))
	}
	contains(t, s.fails(exitError, "sessions", "events", "nobody"), "SESSION_NOT_FOUND")
	contains(t, s.fails(exitError, "sessions", "events", "-f", "nobody"), "SESSION_NOT_FOUND")

	s.stdout, s.stderr = nil, nil
	s.run("run", "--session", id, "go on")
	contains(t, s.says(true, "turns", "list", id, "--limit", "1"), "go on")
}

func TestSessionsCommands(t *testing.T) {
	s, desk := startShell(t, quick), file(t, desk)
	var ids []string
	for range 3 {
		s.stdout, s.stderr = nil, nil
		if code := s.run("run", desk, "a bridge"); code != exitOK {
			t.Fatal(s.stderr)
		}
		ids = append(ids, sessionOf(t, s.stderr.String()))
	}
	if got := s.lines("sessions", "list"); len(got) != 3 || got[0]["id"] != ids[2] || got[2]["id"] != ids[0] {
		t.Errorf("listed %v, want %v backwards", got, ids)
	}
	if got := s.lines("sessions", "list", "--limit", "2"); len(got) != 2 {
		t.Errorf("%d sessions, want 2", len(got))
	}
	contains(t, s.says(true, "sessions", "list"), "SESSION ", ids[0], ids[1], ids[2], "succeeded")

	contains(t, s.says(true, "sessions", "update", ids[0], "--label", "team=search", "--label", "env=x;y", "--ref", "ticket-17"), "labels      env=x;y team=search", "ref         ticket-17")
	for _, filter := range [][]string{{"--label", "team=search"}, {"--ref", "ticket-17"}, {"--label=team=search", "--status=succeeded", "--state=all"}} {
		if got := s.lines(append([]string{"sessions", "list"}, filter...)...); len(got) != 1 || got[0]["id"] != ids[0] {
			t.Errorf("%v lists %v", filter, got)
		}
	}
	if got := s.says(true, "sessions", "list", "--status", "failed"); got != "nothing\n" {
		t.Errorf("got %q", got)
	}
	contains(t, s.fails(exitError, "sessions", "update", ids[0], "--ref", "x", "--version", "1"), "CONFLICT")

	made := s.lines("sessions", "create", "--label", "team=budget", "--ref", "mine", "--budget", "calls=2,tokens=1000000")[0]
	id, _ := made["id"].(string)
	contains(t, s.says(true, "sessions", "show", id), "labels      team=budget", "ref         mine", "budget      2 model calls, 1,000,000 tokens")
	contains(t, s.says(true, "sessions", "update", id, "--budget", "calls=1,cost=2.5,time=30m"), "budget      1 model call, $2.50, 30m0s")
	contains(t, s.fails(exitError, "run", "--session", id, desk, "a bridge"), "(BUDGET_EXHAUSTED)")
	if got := s.says(true, "sessions", "update", id, "--budget", "none"); strings.Contains(got, "budget ") {
		t.Errorf("without a budget it says %q", got)
	}
	contains(t, s.says(true, "sessions", "delete", "--yes", id), "deleted")

	contains(t, s.says(true, "sessions", "archive", ids[1]), "state       archived")
	if got := s.lines("sessions", "list", "--state", "archived"); len(got) != 1 || got[0]["id"] != ids[1] {
		t.Errorf("archived: %v", got)
	}
	contains(t, s.fails(exitError, "run", "--session", ids[1], "more"), "archived")
	contains(t, s.says(true, "sessions", "archive", "--undo", ids[1]), "state       active")

	if got := s.lines("sessions", "show", ids[0]); got[0]["clientRef"] != "ticket-17" {
		t.Errorf("shown %v", got)
	}
	contains(t, s.says(true, "sessions", "show", ids[0]), "session     "+ids[0], "used        2 model calls")
	contains(t, s.fails(exitError, "sessions", "show", "nobody"), "SESSION_NOT_FOUND")

	contains(t, s.says(true, "sessions", "compact", ids[0], "--focus", "names"), "session     "+ids[0])
	contains(t, s.fails(exitError, "sessions", "compact", "nobody"), "SESSION_NOT_FOUND")

	fork := s.lines("sessions", "fork", ids[0], "--ref", "fork", "--label", "a=b")[0]
	if fork["forkedFrom"] != ids[0] || fork["clientRef"] != "fork" {
		t.Errorf("forked as %v", fork)
	}
	contains(t, s.says(true, "sessions", "fork", ids[0], "--at", "0"), "forked from  "+ids[0]+" at 0")

	// A person is asked.
	s.stdin = strings.NewReader("no\n")
	s.tty = true
	contains(t, s.fails(exitError, "sessions", "delete", ids[0]), "Delete session "+ids[0], "nothing was deleted")
	s.stdin = strings.NewReader("y\n")
	contains(t, s.says(true, "sessions", "delete", ids[0]), "deleted "+ids[0])
	if got := s.says(false, "sessions", "delete", "--yes", ids[1]); got != "" {
		t.Errorf("said %q", got)
	}
	contains(t, s.fails(exitError, "sessions", "show", ids[0]), "SESSION_NOT_FOUND")
}

// A turn outlives its daemon: the tool that runs continues, its answer waits for the
// next daemon, and nothing is shown twice.
func TestRunOutlivesDaemon(t *testing.T) { //nolint:tparallel // overBoth runs them side by side
	t.Parallel()
	overBoth(t, runOutlivesDaemon)
}

func runOutlivesDaemon(t *testing.T, c *carrier) {
	scripts, gates := t.TempDir(), t.TempDir()
	script := `answers:
  - {when: {step: 1}, text: "One moment. ", calls: [{name: wait}]}
  - {when: {}, text: 'It says {{tool_result "wait"}}.'}`
	if err := os.WriteFile(filepath.Join(scripts, "waits.yaml"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	gate, runs := filepath.Join(gates, "gate"), filepath.Join(gates, "runs")
	waits := file(t, `agent: {name: a, llm: {model: scripted/waits, tool_names: [wait]}}
tools:
  - name: wait
    description: Waits
    command: [sh, -c, 'echo once >>"$1"; until [ -e "$0" ]; do sleep 0.02; done; echo hello', '`+gate+`', '`+runs+`']
`)
	env := map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": t.TempDir(), "AGENTD_SCRIPTS": scripts}
	first := c.binary(t, env)
	s := shell{t: t, url: first.url, tty: true, stdout: &locked{}, stderr: &locked{}}
	done := make(chan int, 1)
	go func() { done <- s.run("run", waits, "go") }()
	<-s.stdout.await("→ wait")
	first.signal(os.Kill)
	first.wait()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-s.stderr.await("was lost; trying again")
	env["AGENTD_ADDR"] = first.addr
	c.binary(t, env)
	if code := <-done; code != exitOK {
		t.Fatalf("exit code %d: %s", code, s.stderr)
	}
	if want := "a: One moment. \n→ wait {}\nIt says hello.\n"; s.stdout.String() != want {
		t.Errorf("shown %q, want %q", s.stdout, want)
	}
	if ran, err := os.ReadFile(runs); err != nil || string(ran) != "once\n" {
		t.Errorf("the tool ran %q, %v", ran, err)
	}
}
