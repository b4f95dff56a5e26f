package attacks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/heldaddr"
)

// script asks for a tool and then says what came of it.
const script = `answers:
  - {calls: [{name: work}]}
  - {text: "{{tool_result \"work\"}}"}
`

// bed is a daemon under a limit, with who attacks it and a stranger.
type bed struct {
	*testing.T
	bin, addr, data, scripts string
	args                     []string
	log                      *tail
	stderr                   io.Writer       // what the daemon logs to: log, unless a test looks at it first
	honest                   []client.Option // of the stranger

	cmd  *exec.Cmd     // nil: none runs
	over chan struct{} // closed when it has ended, as its state says
	peak int           // MiB that a process had which has ended

	hc       *http.Client // HTTP/2, of the attacker
	sessions agentdv1connect.SessionServiceClient
	streams  agentdv1connect.AgentdClient

	said           []string // the outcome
	before, during latency
}

func newBed(t *testing.T, bin string, args ...string) *bed {
	t.Helper()
	b := &bed{T: t, bin: bin, addr: heldaddr.New(t), data: t.TempDir(), scripts: t.TempDir(), log: &tail{}}
	if err := os.WriteFile(b.scripts+"/work.yaml", []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.scripts+"/added.txt", bytes.Repeat([]byte("{k}"), 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, "{scripts}", b.scripts)
	}
	b.stderr = b.log
	b.args = append([]string{"serve", "--addr", b.addr, "--admin-addr", "off", "--data", b.data, "--scripts", b.scripts, "--log-level", "warn", "--shutdown-grace", "2s"}, args...)
	b.hc = b.newClient()
	b.sessions = agentdv1connect.NewSessionServiceClient(b.hc, b.url())
	b.streams = agentdv1connect.NewAgentdClient(b.hc, b.url())
	t.Cleanup(func() {
		b.kill()
		if t.Failed() {
			t.Logf("the daemon's log: %s", b.log)
		}
	})
	return b
}

// newClient has a connection of its own, of HTTP/2.
func (b *bed) newClient() *http.Client {
	tr := &http.Transport{Protocols: &http.Protocols{}}
	tr.Protocols.SetUnencryptedHTTP2(true)
	b.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func (b *bed) url() string { return "http://" + b.addr }

// sayf adds to the outcome.
func (b *bed) sayf(format string, args ...any) { b.said = append(b.said, fmt.Sprintf(format, args...)) }

// spawn starts the daemon, with its address space bounded.
func (b *bed) spawn() {
	b.Helper()
	limit := fmt.Sprintf("ulimit -v %d && exec \"$0\" \"$@\"", max(*limitMB, 1024)<<10)
	b.cmd = exec.Command("sh", append([]string{"-c", limit, b.bin}, b.args...)...)
	b.cmd.Env = []string{"HOME=" + b.data}
	b.cmd.Stderr = b.stderr
	if err := b.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	over, cmd := make(chan struct{}), b.cmd
	go func() { // ends with the process
		defer close(over)
		_ = cmd.Wait() // its state says it
	}()
	b.over = over
}

// start starts the daemon and waits until it is ready.
func (b *bed) start() {
	b.Helper()
	b.spawn()
	if err := b.ready(); err != nil {
		b.Fatalf("the daemon is not ready: %v: %s", err, b.log)
	}
}

// ready waits until the daemon answers /readyz; it fails if the daemon ends.
func (b *bed) ready() error {
	for end := time.Now().Add(hang); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		resp, err := http.Get(b.url() + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-b.over:
			return fmt.Errorf("it has ended: %v", b.cmd.ProcessState)
		default:
		}
	}
	return fmt.Errorf("it is not ready after %v", hang)
}

// stop ends the daemon softly and returns how long that took.
func (b *bed) stop() time.Duration {
	b.Helper()
	b.peak = max(b.peak, b.memory())
	from := time.Now()
	hung := time.AfterFunc(hang, func() { _ = b.cmd.Process.Kill() })
	defer hung.Stop()
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.Error(err)
	}
	<-b.over
	if state := b.cmd.ProcessState; !state.Success() {
		b.Errorf("the daemon ended with %v: %s", state, b.log)
	}
	b.cmd = nil
	return time.Since(from)
}

func (b *bed) kill() {
	if b.cmd != nil {
		_ = b.cmd.Process.Kill()
		<-b.over
		b.cmd = nil
	}
}

// memory is the most that the process, and those before it, had, in MiB.
func (b *bed) memory() int {
	if b.cmd == nil {
		return b.peak
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.cmd.Process.Pid))
	if err != nil {
		return b.peak
	}
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.Atoi(strings.Fields(kb)[0])
			return max(b.peak, n>>10)
		}
	}
	return b.peak
}

// ping has a stranger's turn complete.
func (b *bed) ping() time.Duration {
	b.Helper()
	c := client.New(b.url(), b.honest...)
	defer c.CloseIdleConnections()
	return b.turn(c)
}

// turn has a client ask for a turn of one word.
func (b *bed) turn(c *client.Client) time.Duration {
	from := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	if r, err := c.Do(ctx, echo("stranger", ""), "hello"); err != nil || r.Text != "hello" {
		b.Errorf("a stranger's turn: %q, %v", r.Text, err)
	}
	return time.Since(from)
}

// measure has a stranger ask for turns, one after the other, while do runs.
func (b *bed) measure(do func()) latency {
	stop := make(chan struct{})
	var took latency
	var wg sync.WaitGroup
	wg.Go(func() {
		c := client.New(b.url(), b.honest...)
		defer c.CloseIdleConnections()
		for {
			took = append(took, b.turn(c))
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	defer wg.Wait()
	func() {
		defer close(stop)
		do()
	}()
	wg.Wait()
	return took
}

// latency is how long turns took.
type latency []time.Duration

// median is how long the turn in the middle took.
func (l latency) median() time.Duration {
	if len(l) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(l))[len(l)/2]
}

func (l latency) String() string {
	if len(l) == 0 {
		return "-"
	}
	sorted := slices.Sorted(slices.Values(l))
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return fmt.Sprintf("%.1f / %.0f ms (%d)", ms(sorted[len(sorted)/2]), ms(sorted[len(sorted)-1]), len(sorted))
}

// tail is the end of a daemon's log.
type tail struct {
	mu  sync.Mutex // protects buf
	buf bytes.Buffer
}

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len() > 64<<10 {
		l.buf.Reset()
	}
	return l.buf.Write(p)
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// echo is an agent that says again what the user said.
func echo(name, instruction string) *agentdv1.Agent {
	return &agentdv1.Agent{Name: name, AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "echo", Instruction: instruction}}}
}

// worker is an agent that calls a tool.
func worker() (*agentdv1.Agent, []*agentdv1.Tool) {
	agent := &agentdv1.Agent{Name: "worker", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "scripted/work", ToolNames: []string{"work"}}}}
	return agent, []*agentdv1.Tool{{Name: "work", Description: "a tool"}}
}

func execute(agent *agentdv1.Agent, prompt string, state map[string]any) *agentdv1.RunRequest_ExecuteRequest {
	ex := &agentdv1.RunRequest_ExecuteRequest{Agent: agent, UserPrompt: prompt}
	if state != nil {
		ex.InitialState = must(structpb.NewStruct(state))
	}
	return ex
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// create asks for a turn.
func (b *bed) create(ex *agentdv1.RunRequest_ExecuteRequest) (*agentdv1.Turn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	resp, err := b.sessions.CreateTurn(ctx, connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ex}))
	if err != nil {
		return nil, err
	}
	return resp.Msg.GetTurn(), nil
}

// until waits until a turn is as wanted; it fails once the turn is over otherwise.
func (b *bed) until(t *agentdv1.Turn, want agentdv1.TurnStatus) *agentdv1.Turn {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	for {
		resp, err := b.sessions.GetTurn(ctx, connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: t.GetSessionId(), TurnId: t.GetId()}))
		if err != nil {
			b.Fatalf("turn %s: %v", t.GetId(), err)
		}
		switch now := resp.Msg.GetTurn(); {
		case now.GetStatus() == want:
			return now
		case now.GetStatus() > agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_INPUT:
			b.Fatalf("turn %s is %v (%.300s), want %v", t.GetId(), now.GetStatus(), now.GetStatusMessage(), want)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// refused tells whether the daemon has refused what is too much.
func refused(err error) bool { return connect.CodeOf(err) == connect.CodeResourceExhausted }

const (
	waitsForClient = agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT
	failed         = agentdv1.TurnStatus_TURN_STATUS_FAILED
	succeeded      = agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED
)
