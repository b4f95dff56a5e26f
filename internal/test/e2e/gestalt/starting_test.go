package gestalt_test

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	gestaltv1 "github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1"
)

// A host that starts refuses callbacks until it has taken the provider in, of which it says nothing; turns that go on
// wait for it, whether they need the host's tools yet or call one of them.
func TestHostStarts(t *testing.T) {
	t.Parallel()
	h := newHost(t, caller, map[string]string{"calling": calling})
	h.tools = deskTools()
	hang := make(chan struct{})
	h.holdFirst = hang // the turn t0 has no tools yet
	h.execute = func(ctx context.Context, _ *gestaltv1.ExecuteToolRequest) (*gestaltv1.ExecuteToolResponse, error) {
		select {
		case <-hang:
			return &gestaltv1.ExecuteToolResponse{Status: 200, Body: "hi"}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	h.start()
	for _, id := range []string{"t0", "t1"} {
		h.session("of-"+id, ann, "")
		h.prompt(&gestaltv1.CreateTurnRequest{TurnId: id, SessionId: "of-" + id})
	}
	h.await("the calls", func() bool { return len(h.calls()) == 2 })
	h.kill()
	h.starts(true)
	close(hang)
	h.start()
	h.await("callbacks are refused", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.early["t0"] > 1 && h.early["t1"] > 1
	})
	h.starts(false)
	for _, id := range []string{"t0", "t1"} {
		if got := h.until(id, succeeded); got.GetOutputText() != "It says hi" {
			t.Errorf("turn %s says %q", id, got.GetOutputText())
		}
	}
	h.stop()
}

// A tool call that ends because the host stops is made again by the next process; one that a host refuses while it
// serves is an error that the model reads.
func TestHostStops(t *testing.T) {
	t.Parallel()
	h := newHost(t, caller, map[string]string{"calling": calling})
	h.tools = deskTools()
	h.execute = func(context.Context, *gestaltv1.ExecuteToolRequest) (*gestaltv1.ExecuteToolResponse, error) {
		return nil, status.Error(codes.Canceled, "the connection of the plugin is closing")
	}
	h.start()
	h.session("s", ann, "")
	h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "t", SessionId: "s"})
	h.await("the calls are made again", func() bool {
		for _, calls := range h.calls() {
			if len(calls) < 2 {
				return false
			}
		}
		return len(h.calls()) == 2
	})
	h.stop()
	h.executes(func(context.Context, *gestaltv1.ExecuteToolRequest) (*gestaltv1.ExecuteToolResponse, error) {
		return &gestaltv1.ExecuteToolResponse{Status: 200, Body: "hi"}, nil
	})
	h.start()
	if got := h.until("t", succeeded); got.GetOutputText() != "It says hi" {
		t.Errorf("the turn says %q", got.GetOutputText())
	}
	h.executes(func(context.Context, *gestaltv1.ExecuteToolRequest) (*gestaltv1.ExecuteToolResponse, error) {
		return nil, status.Error(codes.PermissionDenied, "not for you")
	})
	h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "u", SessionId: "s"})
	h.until("u", succeeded)
	for id, calls := range h.calls() {
		if calls[0].GetTurnId() == "u" && len(calls) != 1 {
			t.Errorf("call %s was made %d times", id, len(calls))
		}
	}
	h.stop()
}

// A host that starts again at once, because it was killed, finds the database of the process that it has left: the next
// one waits until that has ended.
func TestHostKilled(t *testing.T) {
	t.Parallel()
	h := newHost(t, caller, map[string]string{"calling": calling})
	h.tools = deskTools()
	h.start()
	h.session("s", ann, "")
	old := h.current()
	t.Cleanup(func() { _ = old.cmd.Process.Kill() })
	h.env["GESTALT_PLUGIN_SOCKET"] = h.path("p2.sock")
	h.launch()
	h.reach()
	configured := make(chan error, 1)
	go func() {
		configured <- h.call(t.Context(), "ProviderLifecycle/ConfigureProvider", h.configuration(), &gestaltv1.ConfigureProviderResponse{})
	}()
	h.await("it waits", func() bool { return strings.Contains(h.current().stderr.String(), "another process has the database") })
	if err := old.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-old.ended
	_ = old.conn.Close()
	if err := <-configured; err != nil {
		t.Fatal(err)
	}
	h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "t", SessionId: "s"})
	h.until("t", succeeded)
	h.stop()
}
