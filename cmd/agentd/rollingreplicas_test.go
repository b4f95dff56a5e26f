package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/pgserver"
)

// balancer spreads connections over the replicas of a service, by turns.
type balancer struct {
	url string

	mu    sync.Mutex
	to    []string
	count int
}

// set has connections go to replicas from now on.
func (b *balancer) set(replicas ...*served) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.to = nil
	for _, r := range replicas {
		b.to = append(b.to, r.addr)
	}
}

// dial connects to the next replica. set waits for it.
func (b *balancer) dial(ctx context.Context) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count++
	var d net.Dialer
	return d.DialContext(ctx, "tcp", b.to[b.count%len(b.to)])
}

// balance starts a balancer, which ends with the test.
func balance(t *testing.T) *balancer {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{url: "http://" + l.Addr().String()}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { b.pass(t.Context(), in) })
		}
	})
	return b
}

// pass connects a connection to a replica until either side ends.
func (b *balancer) pass(ctx context.Context, in net.Conn) {
	defer func() { _ = in.Close() }()
	out, err := b.dial(ctx)
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = in.Close() })
	defer stop()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(in, out)
		_ = in.Close()
	})
	_, _ = io.Copy(out, in)
	_ = out.Close()
	back.Wait()
}

// plainTurn runs a turn as a client does that was written by the first part of the protocol, and knows nothing of
// attaching. It returns why the turn was not completed as it should.
func plainTurn(ctx context.Context, url string) error {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	run := agentdv1connect.NewAgentdClient(&http.Client{Transport: tr}, url).Run(ctx)
	defer func() { _ = run.CloseResponse() }()
	ex := &agentdv1.RunRequest_ExecuteRequest{Agent: agent("scripted/work", "a", "b", "c", "d"), UserPrompt: "go"}
	for _, name := range ex.GetAgent().GetLlm().GetToolNames() {
		ex.Tools = append(ex.Tools, &agentdv1.Tool{Name: name, Description: "a tool"})
	}
	err := run.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: ex}})
	asked, said := map[string]int{}, ""
	for err == nil {
		var m *agentdv1.RunResponse
		if m, err = run.Receive(); err != nil {
			break
		}
		said += m.GetOutputChunk().GetContent()
		switch call := m.GetToolCall(); {
		case call != nil:
			asked[call.GetToolName()]++
			err = run.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{
				ToolCallResponse: &agentdv1.RunRequest_ToolCallResponse{ToolCallId: call.GetToolCallId(),
					Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "result of " + call.GetToolName()}},
			}})
		case m.GetError() != nil:
			return fmt.Errorf("after %q: %v", said, m.GetError())
		case m.GetEnd() != nil:
			_ = run.CloseRequest()
			want := long + " result of a, result of b, result of c, result of d"
			if n := m.GetEnd().GetUsageSummary().GetLlmCalls(); said != want || n != 3 || len(asked) != 4 {
				return fmt.Errorf("it said %q with %d model calls and asked for %v", said, n, asked)
			}
			return nil
		}
	}
	return fmt.Errorf("after %q, asked for %v: %w", said, asked, err)
}

// ourTurn runs a turn with our client.
func ourTurn(ctx context.Context, url string) error {
	clnt := client.New(url)
	defer clnt.CloseIdleConnections()
	var calls [4]atomic.Int64
	names := []string{"a", "b", "c", "d"}
	for i, name := range names {
		err := client.AddTool(clnt, name, "a tool", func(context.Context, struct{}) (string, error) {
			calls[i].Add(1)
			return "result of " + name, nil
		})
		if err != nil {
			return err
		}
	}
	got, err := clnt.Do(ctx, client.LLM("root", "scripted/work", client.Tools(names...)), "go")
	if err != nil {
		return err
	}
	want := long + " result of a, result of b, result of c, result of d"
	if got.Text != want || got.Usage.ModelCalls != 3 {
		return fmt.Errorf("it said %q with %d model calls", got.Text, got.Usage.ModelCalls)
	}
	for i, name := range names {
		if n := calls[i].Load(); n != 1 {
			return fmt.Errorf("the tool %s ran %d times", name, n)
		}
	}
	return nil
}

// TestRollingDeploy replaces three replicas one after the other while clients run turns: no turn of any client is broken,
// no model call is made twice, and our client runs no tool twice. A plain client that begins a turn is never refused,
// since the balancer knows of a replica that stops before it stops.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	env, _ := killable(t)
	delete(env, "AGENTD_DATA")
	env["AGENTD_STORE"], env["AGENTD_SHUTDOWN_GRACE"] = pgserver.URL(t), "30s"
	pace(t, env, "20ms", "10ms")
	b := balance(t)
	running := []*served{replica(t, env), replica(t, env), replica(t, env)}
	b.set(running...)
	load, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	var turns atomic.Int64
	for i := range 6 {
		turn, name := ourTurn, "our client"
		if i%2 == 0 {
			turn, name = plainTurn, "a plain client"
		}
		clients.Go(func() {
			for load.Err() == nil {
				if err := turn(t.Context(), b.url); err != nil {
					t.Errorf("a turn of %s: %v", name, err)
				}
				turns.Add(1)
			}
		})
	}
	for i := range running {
		old, next := running[i], replica(t, env)
		running[i] = next
		b.set(running...)
		begun := time.Now()
		old.signal(syscall.SIGTERM)
		if code := old.wait(); code != exitOK {
			t.Errorf("exit code %d: %s", code, old.log)
		}
		t.Logf("a replica stopped in %v", time.Since(begun).Round(time.Millisecond))
	}
	stop()
	clients.Wait()
	t.Logf("%d turns", turns.Load())
	for _, r := range running {
		r.signal(syscall.SIGTERM)
		if code := r.wait(); code != exitOK {
			t.Errorf("exit code %d: %s", code, r.log)
		}
	}
}
