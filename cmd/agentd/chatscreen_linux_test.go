package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/test/ttytest"
)

var updateScreens = flag.Bool("update-screens", false, "rewrite the screens in testdata")

// shows is a model for screens: it stops in the middle of an answer, edits a file, waits for a pipe, and talks.
const shows = `answers:
  - when: {user: show}
    thoughts: "let me see"
    chunk_delay: 5s
    text: ["# Answer\n\nSome **bold** text with ` + "`code`" + `, and as many words as it takes to break the line of a narrow terminal, and of a wide one too if it has two hundred columns, as some have.\n\n- one\n- two\n\n` + "```go\\nfunc main() {}\\n```" + `\n\nThe tail is \e[31mnot", " shown"]
  - {when: {step: 1, user: edit}, calls: [{name: edit_file, args: {path: sum.go, old_string: "total -= x", new_string: "total += x"}}]}
  - {when: {step: 1, user: wait}, calls: [{name: bash, args: {command: "cat pipe"}}]}
  - {when: {}, text: "Heard {{last_user}}."}
`

// tmux is a real terminal, of tmux, with a chat in it.
type tmux struct {
	t      *testing.T
	socket string
	dir    string // the project
	color  bool
}

// screens numbers what has to have a name of its own.
var screens atomic.Int64

// newTmux makes a project in a folder whose name is always as long. Without tmux the test is skipped, but not in CI.
func newTmux(t *testing.T) *tmux {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("tmux is missing, without which nothing shows what people see")
		}
		t.Skip("tmux is not installed: what people see is not looked at")
	}
	n := fmt.Sprintf("a%07d%02d", os.Getpid()%10_000_000, screens.Add(1)%100)
	m := &tmux{t: t, socket: n, dir: "/tmp/" + n}
	for name, text := range map[string]string{
		"sum.go": sumGo, "coder.yaml": coderIs, ".agents/config.json": `{"version": 1}`,
	} {
		path := filepath.Join(m.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(m.dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-L", m.socket, "kill-server").Run()
		_ = os.RemoveAll(m.dir)
	})
	return m
}

// do runs a command of tmux.
func (m *tmux) do(args ...string) string {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), "tmux", append([]string{"-L", m.socket, "-f", "/dev/null"}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+m.dir, "LC_ALL=C.UTF-8", "TERM=xterm")
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// start starts a chat.
func (m *tmux) start(url string, width int, args ...string) {
	m.t.Helper()
	none := "1"
	if m.color {
		none = ""
	}
	m.do(append([]string{
		"new-session", "-d", "-x", strconv.Itoa(width), "-y", "30", "-c", m.dir,
		"-e", asMain + "=1", "-e", "GORACE=atexit_sleep_ms=0", "-e", "AGENTD_URL=" + url, "-e", "NO_COLOR=" + none,
		"-e", "XDG_DATA_HOME=" + filepath.Join(m.dir, ".data"),
		"sh", "-c", `"$0" "$@"; echo "it has ended with $?"`, os.Args[0], "chat", "coder.yaml",
	}, args...)...)
	m.do("set-option", "-g", "remain-on-exit", "on")
	m.await("ready · ")
}

// screen is what a person sees, and what has scrolled away.
func (m *tmux) screen() string { return m.do("capture-pane", "-p", "-S", "-") }

// await waits until a person sees something, and returns the screen.
func (m *tmux) await(want string) string {
	m.t.Helper()
	var got string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if got = m.screen(); strings.Contains(got, want) {
			return got
		}
	}
	m.t.Fatalf("%q did not come; the screen is\n%s", want, got)
	return ""
}

// rests waits until nothing goes on, and nothing is said below what is typed.
func (m *tmux) rests() {
	m.t.Helper()
	last := regexp.MustCompile(`\n> *\nready · .*\n*$`)
	for deadline := time.Now().Add(time.Minute); !last.MatchString(m.do("capture-pane", "-p")); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("something goes on: the screen is\n%s", m.screen())
		}
	}
}

// says types a line. Enter is pressed when the terminal has the rest.
func (m *tmux) says(text, enter string) {
	m.t.Helper()
	m.do("send-keys", "-l", text)
	m.await("> " + text)
	m.do("send-keys", enter)
}

var (
	screenSession = regexp.MustCompile(`(session|·)([ \n])[0-9a-z]{4,}…?\n`)
	screenPort    = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	screenTime    = regexp.MustCompile(`[0-9.]+(ms|s)\b`)
	screenTokens  = regexp.MustCompile(`[↑↓][0-9]+|[0-9]+ tokens|[0-9]+ model calls?|\$[0-9.]+`)
)

// lasting is the screen from a line on, but for what depends on time and place.
func (m *tmux) lasting(from string) string {
	m.t.Helper()
	screen := m.screen()
	screen = strings.ReplaceAll(screen[max(strings.LastIndex(screen, from), 0):], m.dir, "/project-------")
	screen = screenSession.ReplaceAllString(screen, "$1${2}SESSION\n")
	screen = screenPort.ReplaceAllString(screenTokens.ReplaceAllString(screen, "N"), "HOST:PORT")
	return strings.TrimRight(screenTime.ReplaceAllString(screen, "Ns"), "\n") + "\n"
}

// golden waits until the screen is, from a line on, that of a file.
func (m *tmux) golden(name, from string) {
	m.t.Helper()
	at := filepath.Join("testdata", "screens", name+".txt")
	if *updateScreens {
		time.Sleep(500 * time.Millisecond)
		if err := os.WriteFile(at, []byte(m.lasting(from)), 0o600); err != nil {
			m.t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(at)
	if err != nil {
		m.t.Fatal(err)
	}
	var got string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if got = m.lasting(from); got == string(want) {
			return
		}
	}
	m.t.Errorf("%s: the screen is\n%s\nwant\n%s", name, got, want)
}

// pipe lets the command go on that reads the pipe.
func (m *tmux) pipe(text string) {
	m.t.Helper()
	f, err := os.OpenFile(filepath.Join(m.dir, "pipe"), os.O_WRONLY, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		m.t.Error(err)
	}
	if err := f.Close(); err != nil {
		m.t.Error(err)
	}
}

// TestScreens is what people see: an answer that comes, a cancel, a question about a change, prompts that wait, and a daemon
// that is killed and comes back. Alt+Enter comes as from terminals that have no other form for it.
func TestScreens(t *testing.T) {
	t.Parallel()
	for _, width := range []int{80, 200} {
		t.Run(strconv.Itoa(width), func(t *testing.T) {
			t.Parallel()
			m := newTmux(t)
			scripts := t.TempDir()
			if err := os.WriteFile(filepath.Join(scripts, "coder.yaml"), []byte(shows), 0o600); err != nil {
				t.Fatal(err)
			}
			env := map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": t.TempDir(), "AGENTD_SCRIPTS": scripts}
			daemon := binary(t, env)
			m.start(daemon.url, width)
			golden := func(name, from string) {
				t.Helper()
				m.golden(fmt.Sprintf("%s-%d", name, width), from)
			}

			m.says("show me", "Enter")
			m.await("The tail is")
			golden("stream", "> show me")
			m.do("send-keys", "Escape")
			m.await("press Ctrl+C again within 1s to exit")
			m.await("stopped: ")
			m.await("ready · ")
			golden("cancel", "> show me")

			m.says("edit it", "Enter")
			m.await("Allow? ")
			golden("approval", "> edit it")
			m.do("send-keys", "y")
			m.await("Heard edit it.")
			if data, err := os.ReadFile(filepath.Join(m.dir, "sum.go")); err != nil || !bytes.Contains(data, []byte("total += x")) {
				t.Errorf("%v: sum.go is %s", err, data)
			}

			m.says("/mode yolo", "Enter")
			m.await("· mode yolo")
			m.says("wait for it", "Enter")
			m.await("running bash")
			m.says("after that", "Enter")
			m.await("queued: after that")
			m.says("and mind this", "M-Enter")
			m.await("steers: and mind this")
			golden("queue", "> wait for it")
			m.pipe("one")
			m.await("Heard after that.")
			screen := m.await("ready · ")
			if i, j := strings.Index(screen, "> and mind this"), strings.Index(screen, "> after that"); i < 0 || j < i {
				t.Errorf("the screen is\n%s", screen)
			}

			m.says("wait again", "Enter")
			m.await("running bash")
			daemon.signal(syscall.SIGKILL)
			daemon.wait()
			golden("lost", "> wait again")
			env["AGENTD_ADDR"] = daemon.addr
			again := binary(t, env)
			m.await("running bash")
			m.pipe("two")
			m.await("Heard wait again.")
			golden("restored", "> wait again")
			m.do("send-keys", "C-d")
			m.await("turn(s) · ")
			again.signal(syscall.SIGTERM)
			if code := again.wait(); code != exitOK {
				t.Errorf("exit code %d: %s", code, again.log)
			}
		})
	}
}

// TestScreenKeys: a change is refused, a turn is canceled, sessions are forked and chosen, the terminal changes its size, and
// two interrupts leave. Text has colors unless NO_COLOR says otherwise.
func TestScreenKeys(t *testing.T) {
	t.Parallel()
	m := newTmux(t)
	m.color = true
	d := startShell(t, map[string]string{"coder": talks})
	m.start(d.url, 80)
	m.says("one", "Enter")
	m.await("Heard one in call 1.")
	if out := m.do("capture-pane", "-p", "-e"); !strings.Contains(out, "\x1b[1m> one") {
		t.Errorf("there is no color in %q", out)
	}
	m.says("please edit", "Enter")
	m.await("[a]lways:\nwaiting for approval") // nobody types: it takes keys
	m.do("send-keys", "n")
	m.await("answered: n")
	m.await("Heard please edit")
	if data, err := os.ReadFile(filepath.Join(m.dir, "sum.go")); err != nil || bytes.Contains(data, []byte("+=")) {
		t.Errorf("%v: the file is edited: %s", err, data)
	}
	m.rests() // else it waits for the turn before, which the interrupt would meet
	m.says("slowly", "Enter")
	m.await("running ")
	m.do("send-keys", "C-c")
	m.await("press Ctrl+C again within 1s to exit")
	m.await("stopped: ")
	m.await("ready · ")
	m.do("resize-window", "-x", "50", "-y", "12")
	m.says("/fork", "Enter")
	m.await("→ slowly")
	m.do("send-keys", "Down")
	m.await("→ please edit")
	m.do("send-keys", "Enter")
	m.await("session ")
	m.await("> please edit\n\nHeard please edit in call 3.\n\n>")
	m.says("/resume", "Enter")
	m.await("Go on with which session?")
	m.do("resize-window", "-x", "120", "-y", "40")
	m.await("fork of")
	m.do("send-keys", "Escape")
	m.rests() // Escape and a key are another key
	m.says("and on", "Enter")
	m.await("Heard and on in call ")
	m.await("ready · ")
	m.rests() // the interrupt before was another one
	m.do("send-keys", "C-c")
	m.await("press Ctrl+C again within 1s to exit")
	m.do("send-keys", "C-c")
	m.await("turn(s) · ")
	m.await("it has ended with 0")
}

// TestScreenSoak: a chat that has shown ten thousand lines takes as much memory as one that has shown a thousand.
func TestScreenSoak(t *testing.T) {
	t.Parallel()
	c := newCoder(t, "answers:\n  - when: {}\n    text: \""+strings.Repeat(`a line of the answer, **as long** as lines are\n\n`, 500)+"The end of {{last_word}}.\"\n", `{"version": 1}`)
	term := ttytest.Open(t)
	cmd := c.command("chat", "coder.yaml")
	term.Start(cmd)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	term.Await(0, "/help says what there is")
	resident := func() int {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(data)
		if m == nil {
			t.Fatalf("no VmRSS in %s", data)
		}
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := 0
	for n := 1; n <= 10; n++ { // each answer has 1,000 lines
		mark := term.Mark()
		term.Press(fmt.Sprintf("number%d\r", n))
		term.Await(mark, fmt.Sprintf("The end of number%d.", n))
		if n == 1 {
			before = resident()
		}
	}
	if after := resident(); float64(after) > 1.5*float64(before) {
		t.Errorf("the chat takes %d KiB after 10,000 lines, and took %d after 1,000", after, before)
	}
	term.Press("\x04")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
