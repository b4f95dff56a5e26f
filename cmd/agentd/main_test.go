package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/testmain"
)

// asMain makes the test binary be agentd.
const asMain = "AGENTD_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // little is alive at a time, and collecting it costs, in the processes that tests start too
	if os.Getenv(asMCP) != "" {
		serveMCP()
		return
	}
	if os.Getenv(asMain) != "" {
		if fault := os.Getenv(storeFails); fault != "" {
			os.Exit(mainThatFails(fault))
		}
		main()
		return
	}
	testmain.Run(m)
}

func TestCommandLine(t *testing.T) {
	home := t.TempDir()
	for name, tc := range map[string]struct {
		args   []string
		env    map[string]string
		code   int
		stdout string
		stderr string
	}{
		"version":           {[]string{"version"}, nil, exitOK, "agentd ", ""},
		"version flag":      {[]string{"--version"}, nil, exitOK, "agentd ", ""},
		"help":              {[]string{"--help"}, nil, exitOK, "serve", ""},
		"help of serve":     {[]string{"serve", "--help"}, nil, exitOK, "$AGENTD_TURN_TIMEOUT", ""},
		"nothing":           {nil, nil, exitUsage, "", "expected one of"},
		"unknown command":   {[]string{"dance"}, nil, exitUsage, "", "dance"},
		"unknown flag":      {[]string{"serve", "--dance"}, nil, exitUsage, "", "--dance"},
		"bad duration":      {[]string{"serve", "--turn-timeout=soon"}, nil, exitUsage, "", "soon"},
		"limit of none":     {[]string{"serve", "--max-turns=0"}, nil, exitUsage, "", "--max-turns is 0"},
		"retention of none": {[]string{"serve"}, map[string]string{"AGENTD_RETENTION": "0s"}, exitUsage, "", "--retention is 0s"},
		"wait of none":      {[]string{"serve", "--idle-turn=-1s"}, nil, exitUsage, "", "--idle-turn is -1s"},
		"handover of none":  {[]string{"serve", "--handover-grace=0s"}, nil, exitUsage, "", "--handover-grace is 0s"},
		"timeout of none":   {[]string{"serve", "--write-timeout=0s"}, nil, exitUsage, "", "--write-timeout is 0s"},
		"negative grace":    {[]string{"serve", "--shutdown-grace=-1s"}, nil, exitUsage, "", "--shutdown-grace"},
		"bad share":         {[]string{"serve", "--compact-at=80"}, nil, exitUsage, "", "--compact-at is 80"},
		"bad variable":      {[]string{"serve"}, map[string]string{"AGENTD_MAX_STREAMS": "many"}, exitUsage, "", "many"},
		"bad level":         {[]string{"serve"}, map[string]string{"AGENTD_LOG_LEVEL": "loud"}, exitUsage, "", "loud"},
		"bad format":        {[]string{"serve", "--log-format=xml"}, nil, exitUsage, "", "xml"},
		"no home":           {[]string{"serve"}, nil, exitError, "", "--data"},
		"bad address":       {[]string{"serve", "--addr=here"}, map[string]string{"HOME": home}, exitError, "", "want host:port"},
		"certificate only":  {[]string{"serve", "--tls-cert=x"}, map[string]string{"HOME": home}, exitError, "", "both a certificate and a key"},
		"no prices":         {[]string{"serve", "--data=:memory:", "--prices=none.yaml"}, map[string]string{"HOME": home}, exitError, "", "none.yaml"},
		"taken address":     {[]string{"serve", "--addr=203.0.113.1:1"}, map[string]string{"HOME": home}, exitError, "", "203.0.113.1:1"},
		"nobody healthy":    {[]string{"healthcheck", "--addr=127.0.0.1:1"}, nil, exitError, "", "127.0.0.1:1"},
		"nobody at all":     {[]string{"healthcheck", "--addr=x"}, nil, exitError, "", "want host:port"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if got := run(nil, tc.args, tc.env, &stdout, &stderr); got != tc.code {
				t.Errorf("exit code %d, want %d", got, tc.code)
			}
			if !strings.Contains(stdout.String(), tc.stdout) || !strings.Contains(stderr.String(), tc.stderr) {
				t.Errorf("stdout %q, stderr %q; want %q and %q", stdout.String(), stderr.String(), tc.stdout, tc.stderr)
			}
		})
	}
}

func TestDataDir(t *testing.T) {
	for name, tc := range map[string]struct {
		goos string
		env  map[string]string
		want string
	}{
		"XDG":     {"linux", map[string]string{"XDG_DATA_HOME": "/x", "HOME": "/h"}, filepath.FromSlash("/x/agentd")},
		"linux":   {"linux", map[string]string{"HOME": "/h"}, filepath.FromSlash("/h/.local/share/agentd")},
		"darwin":  {"darwin", map[string]string{"HOME": "/h"}, filepath.FromSlash("/h/Library/Application Support/agentd")},
		"windows": {"windows", map[string]string{"LOCALAPPDATA": "/l"}, filepath.FromSlash("/l/agentd")},
		"nobody":  {"linux", nil, ""},
	} {
		got, err := dataDir(tc.goos, tc.env)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, tc.want)
		}
	}
}

// served is an agentd that serves.
type served struct {
	url    string
	addr   string
	log    *locked    // whole after wait
	wait   func() int // returns the exit code
	signal func(os.Signal)
}

// awaitServing reads a JSON log up to the line that names the address, and hands
// the rest to log in the background.
func awaitServing(t *testing.T, r io.Reader, log *locked) (addr string, rest *sync.WaitGroup) {
	t.Helper()
	lines := bufio.NewReader(io.TeeReader(r, log))
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatalf("agentd ended: %v: %s", err, log)
		}
		var entry struct{ Msg, Addr string }
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatalf("a log line that is no JSON: %s", line)
		}
		if entry.Msg == "serving" {
			rest = &sync.WaitGroup{}
			rest.Go(func() { _, _ = io.Copy(io.Discard, lines) })
			return entry.Addr, rest
		}
	}
}

// withoutAdmin is an environment in which serve takes no port for its operator, unless env names one.
func withoutAdmin(env map[string]string) map[string]string {
	out := map[string]string{"AGENTD_ADMIN_ADDR": "off"}
	maps.Copy(out, env)
	return out
}

// inProcess runs serve on a goroutine.
func inProcess(t *testing.T, env map[string]string) *served {
	t.Helper()
	signals := make(chan os.Signal, 2)
	r, w := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(signals, []string{"serve", "--log-format=json"}, withoutAdmin(env), io.Discard, w)
		_ = w.Close()
	}()
	s := &served{log: &locked{}, signal: func(sig os.Signal) { signals <- sig }}
	addr, rest := awaitServing(t, r, s.log)
	s.addr, s.url = addr, "http://"+addr
	s.wait = sync.OnceValue(func() int {
		rest.Wait()
		return <-code
	})
	t.Cleanup(func() {
		select {
		case signals <- os.Interrupt:
		default:
		}
		s.wait()
	})
	return s
}

// binary runs serve in a process of its own.
func binary(t *testing.T, env map[string]string) *served {
	t.Helper()
	return program(t, os.Args[0], env)
}

// program runs serve of a program.
func program(t *testing.T, path string, env map[string]string) *served {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, "serve", "--log-format=json")
	// Under the race detector a process sleeps for a second before it ends.
	cmd.Env = []string{asMain + "=1", "GORACE=atexit_sleep_ms=0"}
	for k, v := range withoutAdmin(env) {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &served{log: &locked{}}
	addr, rest := awaitServing(t, stderr, s.log)
	s.addr, s.url = addr, "http://"+addr
	s.signal = func(sig os.Signal) {
		if err := cmd.Process.Signal(sig); err != nil {
			t.Error(err)
		}
	}
	s.wait = sync.OnceValue(func() int {
		rest.Wait()
		_ = cmd.Wait()
		return cmd.ProcessState.ExitCode()
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		s.wait()
	})
	return s
}

func agent(model string, tools ...string) *agentdv1.Agent {
	return &agentdv1.Agent{Name: "root", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: model, ToolNames: tools}}}
}

func newClient(t *testing.T, s *served) *client.Client {
	c := client.New(s.url)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func TestServe(t *testing.T) {
	scripts, data := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(scripts, "hello.yaml"), []byte("answers: [{text: hello from a file}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, start := range map[string]func(*testing.T, map[string]string) *served{"in process": inProcess, "binary": binary} {
		t.Run(name, func(t *testing.T) {
			s := start(t, map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": filepath.Join(data, name), "AGENTD_SCRIPTS": scripts, "OPENAI_API_KEY": "canary"})
			res, err := newClient(t, s).Do(t.Context(), agent("scripted/hello"), "hi")
			if err != nil || res.Text != "hello from a file" {
				t.Errorf("got %v, %v", res, err)
			}
			var stdout, stderr bytes.Buffer
			if code := run(nil, []string{"healthcheck"}, map[string]string{"AGENTD_ADDR": s.addr}, &stdout, &stderr); code != exitOK {
				t.Errorf("healthcheck: %d, %s", code, stderr.String())
			}
			s.signal(syscall.SIGTERM)
			if code := s.wait(); code != exitOK {
				t.Errorf("exit code %d: %s", code, s.log)
			}
			if code := run(nil, []string{"healthcheck", "--addr", s.addr}, nil, &stdout, &stderr); code != exitError {
				t.Errorf("healthcheck of a stopped server: %d", code)
			}
			if strings.Contains(s.log.String(), "canary") {
				t.Error("the log holds a key")
			}
			if _, err := os.Stat(filepath.Join(data, name, "agentd.db")); err != nil {
				t.Error(err)
			}
		})
	}
}

// The first signal waits for model calls, and for nothing else; the second cuts them off.
func TestSignals(t *testing.T) { //nolint:tparallel // overBoth runs them side by side
	t.Parallel()
	for name, tc := range map[string]struct {
		model     string
		second    bool
		completed bool
		logged    string // of what became of the turn
	}{
		"a model call":              {"scripted/short", false, true, `"finished":1,"suspended_between_steps":0,"model_calls_cut_off":0`},
		"a model call, two signals": {"scripted/endless", true, false, `"finished":0,"suspended_between_steps":0,"model_calls_cut_off":1,"turns_cut_off":1`},
		"a tool call":               {"scripted/demo", false, false, `"finished":0,"suspended_between_steps":1,"model_calls_cut_off":0`},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, over *carrier) {
				scripts := t.TempDir()
				for name, script := range map[string]string{
					"short":   `answers: [{text: "one two three four five", chunk_delay: 300ms}]`,
					"endless": `answers: [{text: [one, two], error: {kind: hang, after: 1}}]`,
				} {
					if err := os.WriteFile(filepath.Join(scripts, name+".yaml"), []byte(script), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				s := over.binary(t, map[string]string{
					"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": t.TempDir(), "AGENTD_SCRIPTS": scripts, "AGENTD_SHUTDOWN_GRACE": "1m",
				})
				c := client.New(s.url, client.WithReconnect(client.ReconnectPolicy{Off: true}))
				defer c.CloseIdleConnections()
				works := make(chan struct{}, 16)
				err := client.AddTool(c, "wait", "Waits", func(ctx context.Context, _ struct{}) (any, error) {
					works <- struct{}{}
					<-ctx.Done()
					return nil, ctx.Err()
				})
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() {
					for event, err := range c.Run(t.Context(), agent(tc.model, "wait"), "go") {
						switch {
						case err != nil:
							done <- err
							return
						case event.OutputChunk != nil && tc.model != "scripted/demo":
							works <- struct{}{}
						}
					}
					done <- nil
				}()
				<-works
				s.signal(syscall.SIGTERM)
				if tc.second {
					for { // until it has been taken
						if code := run(nil, []string{"healthcheck", "--addr", s.addr}, nil, io.Discard, io.Discard); code != exitOK {
							break
						}
					}
					s.signal(syscall.SIGINT)
				}
				if err := <-done; (err == nil) != tc.completed || err != nil && !strings.Contains(err.Error(), "attach again") {
					t.Errorf("got %v, want a turn that completes: %v, or else one that goes on later", err, tc.completed)
				}
				if code := s.wait(); code != exitOK || !strings.Contains(s.log.String(), tc.logged) {
					t.Errorf("exit code %d, want the log to say %s: %s", code, tc.logged, s.log)
				}
			})
		})
	}
}
