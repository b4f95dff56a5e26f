package managed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"go.uber.org/goleak"

	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/faces/managed"
	"github.com/apzuk3/agentd/server"
)

// The program of these tests is a daemon too, when these variables say so: a real process, which can be killed.
const (
	daemonAddr = "MANAGED_TEST_DAEMON_ADDR"
	daemonDir  = "MANAGED_TEST_DAEMON_DIR"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(daemonAddr); addr != "" {
		os.Exit(serve(addr, os.Getenv(daemonDir)))
	}
	goleak.VerifyTestMain(m)
}

// serve is a daemon until its standard input ends, which is when its parent does.
func serve(addr, dir string) int {
	d, err := daemon.New(daemon.Config{
		Addr: addr, DataDir: filepath.Join(dir, "data"), ScriptsDir: filepath.Join(dir, "scripts"),
		Faces: []server.Face{managed.Face{}}, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Getenv: func(string) string { return "" },
	})
	if err == nil {
		err = d.Start(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// process is a daemon in a process of its own.
type process struct {
	t         *testing.T
	addr, dir string

	mu    sync.Mutex // protects the fields below
	cmd   *exec.Cmd
	stdin io.Closer
}

func startProcess(t *testing.T, scripts map[string]string) *process {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, addr: l.Addr().String(), dir: t.TempDir()}
	if err := errors.Join(l.Close(), os.Mkdir(filepath.Join(p.dir, "scripts"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(p.dir, "scripts", name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.start()
	t.Cleanup(p.kill)
	return p
}

func (p *process) start() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), daemonAddr+"="+p.addr, daemonDir+"="+p.dir)
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	for { // until it serves
		resp, err := http.Get("http://" + p.addr + "/healthz")
		if err == nil {
			_ = resp.Body.Close()
			http.DefaultClient.CloseIdleConnections()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// kill ends the process as it stands.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // killed
	_ = p.stdin.Close()
	p.cmd = nil
}

// A daemon is killed where it stands, and started again: the runner of the client reconnects, answers what is open, and
// each call has one result.
func TestRunnerKill(t *testing.T) {
	p := startProcess(t, map[string]string{"slow": `
answers:
  - {when: {step: 1}, delay: 50ms, text: calling, calls: [{name: greet, args: {name: Ada}}, {name: greet, args: {name: Bob}}]}
  - {when: {step: 2}, delay: 50ms, calls: [{name: greet, args: {name: Eve}}]}
  - {when: {step: 3}, delay: 300ms, text: 'done: {{tool_result "greet"}}'}
`})
	d := dial(t, "http://"+p.addr, "")
	id := d.session("scripted/slow")
	never := time.Duration(0)
	var runs, kills atomic.Int64
	inner := greeter(&runs)
	greet := tool{"greet", func(ctx context.Context, input string) (string, error) {
		if n := kills.Load(); runs.Load() == 2*n && n < 2 { // in the first call, and in a later one
			kills.Add(1)
			p.kill()
			p.start()
		}
		return inner.do(ctx, input)
	}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan []anthropic.DispatchedToolCall, 1)
	r := d.sdk.Beta.Sessions.Events.NewToolRunner(ctx, id, anthropic.SessionToolRunnerOptions{Tools: []anthropic.BetaTool{greet}, MaxIdle: &never})
	go func() {
		var calls []anthropic.DispatchedToolCall
		for r.Next() {
			calls = append(calls, r.Current())
		}
		done <- calls
	}()
	d.post(id, said("go"))
	d.patient = true
	before := d.waitFor(id, func(events []object) bool { // the last model call is under way
		n := strings.Count(strings.Join(kinds(events), " "), "span.model_request_start")
		return n == 3
	})
	p.kill()
	p.start()
	events := d.untilIdle(id, "end_turn")
	stop()
	calls := <-done
	_ = r.Close() // always nil
	results := map[string]int{}
	for _, e := range events {
		if e.text("type") == "user.custom_tool_result" {
			results[e.text("custom_tool_use_id")]++
		}
	}
	if len(results) != 3 || kills.Load() != 2 || lastText(events) != "done: hi Eve" {
		t.Errorf("%d kills, results %v, calls %+v, the agent said %q", kills.Load(), results, calls, lastText(events))
	}
	for use, n := range results {
		if n != 1 {
			t.Errorf("call %s has %d results", use, n)
		}
	}
	for i, e := range before { // what was there stays as it was
		if a, b := fmt.Sprint(e), fmt.Sprint(events[i]); a != b {
			t.Errorf("event %d was %s, is %s", i, a, b)
		}
	}
}

// waitFor lists events until they are as wanted.
func (d *desk) waitFor(session string, want func([]object) bool) []object {
	d.t.Helper()
	for {
		if events := d.events(session); want(events) {
			return events
		}
		time.Sleep(5 * time.Millisecond)
	}
}
