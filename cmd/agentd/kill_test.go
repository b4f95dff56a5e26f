package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// long is said by the script of these tests, word by word.
const long = "one two three four five six seven eight nine ten eleven twelve"

// How long each word takes: slow leaves the time to end a server in the middle of
// an answer.
const (
	slow = "300ms"
	fast = "1ms"
)

// killable is where servers of one data folder run, with a script that speaks,
// asks for two tools at a time, twice, and speaks again.
func killable(t *testing.T) (env map[string]string, f *follower) {
	t.Helper()
	f = &follower{t: t, asked: map[string]int{}}
	for _, name := range []string{"a", "b", "c", "d"} {
		f.tools = append(f.tools, &agentdv1.Tool{Name: name, Description: "a tool"})
	}
	env = map[string]string{
		"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": t.TempDir(), "AGENTD_SCRIPTS": t.TempDir(), "AGENTD_SHUTDOWN_GRACE": "50ms",
	}
	pace(t, env, fast, fast)
	return env, f
}

// pace sets how slowly the script speaks at first, and again, on servers that are
// started from now on.
func pace(t *testing.T, env map[string]string, first, last string) {
	t.Helper()
	script := `answers:
  - {text: "` + long + `", chunk_delay: ` + first + `, calls: [{name: a}, {name: b}]}
  - {calls: [{name: c}, {name: d}]}
  - {text: " {{tool_result \"a\"}}, {{tool_result \"b\"}}, {{tool_result \"c\"}}, {{tool_result \"d\"}}", chunk_delay: ` + last + `}
`
	if err := os.WriteFile(filepath.Join(env["AGENTD_SCRIPTS"], "work.yaml"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Whatever a server was killed in the middle of, the next one continues with: what
// the client has seen stands, no model call that was recorded is made again, and
// no call that was answered is asked again.
func TestKill(t *testing.T) {
	t.Parallel()
	asked := func(name string) func(*testing.T, *follower) {
		return func(t *testing.T, f *follower) {
			f.until(func(m *agentdv1.RunResponse) bool {
				call := m.GetToolCall()
				if call != nil && call.GetToolName() != name {
					f.sendResult(call)
				}
				return call.GetToolName() == name
			})
			f.flushed()
		}
	}
	said := func(word string) func(*testing.T, *follower) {
		return func(t *testing.T, f *follower) {
			f.until(func(m *agentdv1.RunResponse) bool {
				if call := m.GetToolCall(); call != nil {
					f.sendResult(call)
				}
				return strings.Contains(m.GetOutputChunk().GetContent(), word)
			})
		}
	}
	for name, tc := range map[string]struct {
		first  string // the pace of the first server's first answer
		until  func(*testing.T, *follower)
		signal os.Signal
		twice  string // may be asked for twice
		alone  bool   // the client has left
	}{
		"while the model speaks":               {slow, said("five"), syscall.SIGKILL, "", false},
		"while a tool waits":                   {fast, asked("b"), syscall.SIGKILL, "b", false},
		"while a later tool waits":             {fast, asked("d"), syscall.SIGKILL, "d", false},
		"while the model speaks again":         {fast, said("result"), syscall.SIGKILL, "", false},
		"softly, while the model speaks":       {slow, said("five"), syscall.SIGTERM, "", false},
		"softly, while a tool waits":           {fast, asked("d"), syscall.SIGTERM, "d", false},
		"softly, nobody there, a tool waits":   {fast, func(t *testing.T, f *follower) { asked("d")(t, f); f.drop() }, syscall.SIGTERM, "d", true},
		"abruptly, nobody there, a tool waits": {fast, func(t *testing.T, f *follower) { asked("d")(t, f); f.drop() }, syscall.SIGKILL, "d", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overBoth(t, func(t *testing.T, c *carrier) {
				env, f := killable(t)
				pace(t, env, tc.first, slow)
				first := c.binary(t, env)
				f.t = t
				f.open(first, agent("scripted/work", "a", "b", "c", "d"))
				tc.until(t, f)
				first.signal(tc.signal)
				if tc.signal == syscall.SIGTERM && !tc.alone {
					f.suspended()
				}
				code := first.wait()
				if tc.signal == syscall.SIGTERM && code != exitOK {
					t.Errorf("exit code %d: %s", code, first.log)
				}
				f.drop()
				pace(t, env, fast, fast)
				second := c.binary(t, env)
				f.open(second, nil)
				end := f.end()
				if !end.GetCompleted() || end.GetUsageSummary().GetLlmCalls() != 3 {
					t.Errorf("got %v, want a completed turn of 3 model calls", end)
				}
				if want := long + " result of a, result of b, result of c, result of d"; f.text() != want {
					t.Errorf("said %q, want %q", f.text(), want)
				}
				for _, tool := range f.tools {
					if n := f.asked[tool.GetName()]; n < 1 || n > 2 || n == 2 && tool.GetName() != tc.twice {
						t.Errorf("tool %s was asked for %d times", tool.GetName(), n)
					}
				}
				second.signal(syscall.SIGTERM)
				if code := second.wait(); code != exitOK {
					t.Errorf("exit code %d: %s", code, second.log)
				}
				calls, results, ended := records(t, env["AGENTD_DATA"], f.session())
				if calls != 3 || results != 4 || !ended {
					t.Errorf("the log holds %d model calls and %d results, ended %v; want 3, 4 and true", calls, results, ended)
				}
			})
		})
	}
}

// A turn that was running when its server was killed continues without a client.
func TestRecoversWithoutClient(t *testing.T) { //nolint:tparallel // overBoth runs them side by side
	t.Parallel()
	overBoth(t, recoversWithoutClient)
}

func recoversWithoutClient(t *testing.T, c *carrier) {
	env, f := killable(t)
	pace(t, env, slow, slow)
	first := c.binary(t, env)
	f.open(first, agent("scripted/work", "a", "b", "c", "d"))
	f.until(func(m *agentdv1.RunResponse) bool { return strings.Contains(m.GetOutputChunk().GetContent(), "three") })
	first.signal(syscall.SIGKILL)
	first.wait()
	f.lost()
	pace(t, env, fast, fast)
	second := c.binary(t, env)
	awaitModelCall(t, second, f)
	second.signal(syscall.SIGTERM)
	if code := second.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, second.log)
	}
	if calls, _, ended := records(t, env["AGENTD_DATA"], f.session()); calls != 1 || ended {
		t.Errorf("the log holds %d model calls, ended %v; want 1 and an open turn", calls, ended)
	}
}

// awaitModelCall watches, without taking part, until a tool waits.
func awaitModelCall(t *testing.T, s *served, f *follower) {
	t.Helper()
	watch := &follower{t: t, asked: map[string]int{}, got: f.got[:1]}
	watch.open(s, nil)
	watch.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCallAnnounced() != nil })
	watch.drop()
}

// Two servers (F40) do not share a data folder, nor a database of two names.
func TestDataInUse(t *testing.T) {
	data, other := t.TempDir(), t.TempDir()
	binary(t, map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": data})
	if err := os.Symlink(filepath.Join(data, "agentd.db"), filepath.Join(other, "agentd.db")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{data, other} {
		env := map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": dir}
		var stderr bytes.Buffer
		if code := run(nil, []string{"serve"}, env, io.Discard, &stderr); code != exitError || !bytes.Contains(stderr.Bytes(), []byte("in use")) {
			t.Errorf("%s: exit code %d: %s", dir, code, stderr.String())
		}
	}
}
