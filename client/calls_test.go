package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

type numbered struct {
	N int `json:"n"`
}

// TestParallelCalls lets 16 handlers meet, so they must run at once, and
// return in the opposite order of their calls.
func TestParallelCalls(t *testing.T) {
	const n = 16
	order := make(chan string, n)
	url := serve(t, func(_ context.Context, s *peer) error {
		if err := s.started(); err != nil {
			return err
		}
		for i := range n {
			if err := s.call(fmt.Sprintf("c%d", i), "meet", fmt.Sprintf(`{"n":%d}`, i)); err != nil {
				return err
			}
		}
		for range n {
			m, err := s.toolResult()
			if err != nil {
				return err
			}
			order <- m.GetToolCallId() + "=" + m.GetOutput()
		}
		return s.end(true, "")
	})
	c := dial(t, url)
	var met sync.WaitGroup
	met.Add(n)
	turns := make([]chan struct{}, n+1)
	for i := range turns {
		turns[i] = make(chan struct{})
	}
	close(turns[n])
	mustAdd(t, client.AddTool(c, "meet", "meets", func(_ context.Context, in numbered) (any, error) {
		met.Done()
		met.Wait()
		<-turns[in.N+1]
		return in.N, nil
	}))
	var calls, results int
	for event, err := range c.Run(t.Context(), llm("meet"), "hi") {
		switch {
		case err != nil:
			t.Fatal(err)
		case event.ToolCall != nil:
			calls++
			if event.ToolCall.Name != "meet" || event.ToolCall.AgentPath[0] != "root" || len(event.ToolCall.Input) == 0 {
				t.Errorf("call: %+v", event.ToolCall)
			}
		case as[*client.ToolCallAnswered](event) != nil:
			results++
			var i int
			if _, err := fmt.Sscan(as[*client.ToolCallAnswered](event).Output, &i); err != nil || as[*client.ToolCallAnswered](event).ID != fmt.Sprintf("c%d", i) {
				t.Errorf("result: %+v", as[*client.ToolCallAnswered](event))
			}
			// The result leaves after its event: only then may the next one be
			// given.
			if got, want := <-order, fmt.Sprintf("c%d=%d", i, i); got != want {
				t.Errorf("answer: got %s, want %s", got, want)
			}
			close(turns[i])
		}
	}
	if calls != n || results != n {
		t.Errorf("got %d calls and %d results", calls, results)
	}
}

func TestConcurrencyIsBoundedAndCallsWait(t *testing.T) {
	const n, limit = 40, 3
	url := serve(t, func(_ context.Context, s *peer) error {
		if err := s.started(); err != nil {
			return err
		}
		for i := range n {
			if err := s.call(fmt.Sprintf("c%d", i), "slow", "{}"); err != nil {
				return err
			}
		}
		for range n {
			if _, err := s.toolResult(); err != nil {
				return err
			}
		}
		return s.end(true, "")
	})
	c := dial(t, url)
	var running, most, total atomic.Int32
	mustAdd(t, client.AddTool(c, "slow", "waits", func(context.Context, struct{}) (any, error) {
		now := running.Add(1)
		defer running.Add(-1)
		for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
		}
		total.Add(1)
		runtime.Gosched()
		return nil, nil
	}))
	if _, err := c.Do(t.Context(), llm("slow"), "hi", client.WithConcurrency(limit)); err != nil {
		t.Fatal(err)
	}
	if most.Load() > limit || total.Load() != n {
		t.Errorf("ran %d handlers, %d at once", total.Load(), most.Load())
	}
}

func TestTooManyWaitingCallsAreRefused(t *testing.T) {
	const n = 1 + 1024 + 5
	url := serve(t, func(_ context.Context, s *peer) error {
		if err := s.started(); err != nil {
			return err
		}
		for i := range n {
			if err := s.call(fmt.Sprintf("c%d", i), "hold", "{}"); err != nil {
				return err
			}
		}
		refused := 0
		for range 5 {
			m, err := s.toolResult()
			if err != nil {
				return err
			}
			if strings.Contains(m.GetError(), "1024 tool calls waiting") {
				refused++
			}
		}
		return s.end(true, fmt.Sprint(refused))
	})
	c := dial(t, url)
	mustAdd(t, client.AddTool(c, "hold", "waits", func(ctx context.Context, _ struct{}) (any, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}))
	res, err := c.Do(t.Context(), llm("hold"), "hi", client.WithConcurrency(1))
	if err != nil || res.Reason != "5" {
		t.Errorf("want 5 refusals, got %q, %v", res.Reason, err)
	}
}

func TestRepeatedCallRunsOnce(t *testing.T) {
	url, scripts := scripted(t)
	c := dial(t, url)
	var runs atomic.Int32
	mustAdd(t, client.AddTool(c, "count", "counts", func(context.Context, struct{}) (any, error) {
		return runs.Add(1), nil
	}))
	twice := func(_ context.Context, s *peer) error {
		if err := s.started(); err != nil {
			return err
		}
		for range 2 {
			if err := s.call("same", "count", "{}"); err != nil {
				return err
			}
			m, err := s.toolResult()
			if err != nil {
				return err
			}
			if m.GetOutput() != "1" {
				return s.end(false, "got "+m.GetOutput())
			}
		}
		return s.end(true, "")
	}
	for range 2 { // in the same run, and in a later one
		scripts <- twice
		res, err := c.Do(t.Context(), llm("count"), "hi")
		if err != nil || !res.Completed {
			t.Fatalf("%v: %s", err, res.Reason)
		}
	}
	if runs.Load() != 1 {
		t.Errorf("the tool ran %d times", runs.Load())
	}
}

// TestInterruptedCallRunsAgain ends a run while a handler works; the call is
// repeated in the next run.
func TestInterruptedCallRunsAgain(t *testing.T) {
	url, scripts := scripted(t)
	c := dial(t, url)
	begun := make(chan struct{}, 2)
	causes := make(chan error, 2)
	var first atomic.Bool
	mustAdd(t, client.AddTool(c, "work", "works", func(ctx context.Context, _ struct{}) (any, error) {
		begun <- struct{}{}
		if first.CompareAndSwap(false, true) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil, ctx.Err()
		}
		return "done", nil
	}))
	scripts <- func(_ context.Context, s *peer) error {
		return steps(s.started, func() error { return s.call("c", "work", "{}") }, func() error { <-begun; return s.end(false, "stopped") })
	}
	if _, err := c.Do(t.Context(), llm("work"), "hi"); err != nil {
		t.Fatal(err)
	}
	if cause := <-causes; !errors.Is(cause, client.ErrRunEnded) {
		t.Errorf("cause: %v", cause)
	}
	scripts <- func(_ context.Context, s *peer) error {
		if err := steps(s.started, func() error { return s.call("c", "work", "{}") }); err != nil {
			return err
		}
		m, err := s.toolResult()
		if err != nil {
			return err
		}
		return s.end(true, m.GetOutput())
	}
	if res, err := c.Do(t.Context(), llm("work"), "hi"); err != nil || res.Reason != "done" {
		t.Errorf("got %+v, %v", res, err)
	}
}

func TestToolCancelled(t *testing.T) {
	begun := make(chan struct{})
	url := serve(t, func(_ context.Context, s *peer) error {
		err := steps(
			s.started,
			func() error { return s.call("c1", "work", "{}") },
			func() error { return s.call("c2", "work", "{}") }, // waits behind c1
			func() error { <-begun; return nil },
			func() error { return s.cancelTool("c2", "not needed") },
			func() error { return s.cancelTool("c1", "not needed") },
			func() error { return s.cancelTool("c0", "never was") },
			func() error { return s.call("c3", "ok", "{}") },
		)
		if err != nil {
			return err
		}
		m, err := s.toolResult() // canceled calls get no result
		if err != nil {
			return err
		}
		return s.end(true, m.GetToolCallId())
	})
	c := dial(t, url)
	causes := make(chan error, 2)
	mustAdd(t, client.AddTool(c, "work", "works", func(ctx context.Context, _ struct{}) (any, error) {
		close(begun)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, ctx.Err()
	}))
	mustAdd(t, client.AddTool(c, "ok", "works", func(context.Context, struct{}) (any, error) { return "ok", nil }))
	var results []string
	for event, err := range c.Run(t.Context(), llm("work", "ok"), "hi", client.WithConcurrency(1)) {
		switch {
		case err != nil:
			t.Fatal(err)
		case as[*client.ToolCallAnswered](event) != nil && as[*client.ToolCallAnswered](event).Error != "":
			results = append(results, as[*client.ToolCallAnswered](event).Error)
		case event.End != nil && event.End.Reason != "c3":
			t.Errorf("answered: %s", event.End.Reason)
		}
	}
	if cause := <-causes; !errors.Is(cause, client.ErrToolCanceled) || !strings.Contains(cause.Error(), "not needed") {
		t.Errorf("cause: %v", cause)
	}
	if len(causes) != 0 {
		t.Error("the waiting call ran after it was cancelled")
	}
	if len(results) != 2 || !strings.Contains(results[0], "canceled: not needed") {
		t.Errorf("results: %q", results)
	}
}

func TestHandlerThatExitsItsGoroutine(t *testing.T) {
	url, scripts := scripted(t)
	c := dial(t, url)
	mustAdd(t, client.AddTool(c, "exit", "exits", func(context.Context, struct{}) (any, error) {
		runtime.Goexit()
		return nil, nil
	}))
	if got := callTool(t, c, scripts, "exit", "{}"); !strings.Contains(got.GetError(), "exited without a result") {
		t.Errorf("got %v", got)
	}
}

func TestPanicStackGoesToTheLogger(t *testing.T) {
	url, scripts := scripted(t)
	var log bytes.Buffer // read after the run, whose goroutines have ended by then
	c := dial(t, url, client.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	mustAdd(t, client.AddTool(c, "boom", "panics", func(context.Context, struct{}) (any, error) { panic("kaboom") }))
	callTool(t, c, scripts, "boom", `{}`)
	if !strings.Contains(log.String(), "calls_test.go") || !strings.Contains(log.String(), "tool=boom") {
		t.Errorf("log: %s", log.String())
	}
}

// TestToolTimeout runs on fake time: the model hears of the timeout although
// the handler ignores its context, and the end of the run waits no longer than
// the grace.
func TestToolTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newMemNet(t, func(_ context.Context, s *peer) error {
			if err := steps(s.started, func() error { return s.call("c", "deaf", "{}") }); err != nil {
				return err
			}
			m, err := s.toolResult()
			if err != nil {
				return err
			}
			return s.end(true, m.GetError())
		})
		c := net.client(client.WithToolTimeout(time.Hour), client.WithGrace(7*time.Second))
		release := make(chan struct{})
		causes := make(chan error, 1)
		mustAdd(t, client.AddTool(c, "deaf", "ignores", func(ctx context.Context, _ struct{}) (any, error) {
			<-release
			causes <- context.Cause(ctx)
			return "late", nil
		}, client.ToolTimeout(time.Minute)))
		begin := time.Now()
		res, err := c.Do(t.Context(), llm("deaf"), "hi")
		if err != nil || res.Reason != client.ErrToolTimeout.Error() {
			t.Errorf("got %q, %v", res.Reason, err)
		}
		if took := time.Since(begin); took != time.Minute+7*time.Second {
			t.Errorf("the run took %s", took)
		}
		close(release)
		if cause := <-causes; !errors.Is(cause, client.ErrToolTimeout) {
			t.Errorf("cause: %v", cause)
		}
	})
}

// TestSlowConsumerIsNotADeadServer stays in the loop body for an hour of fake
// time; heartbeats continue meanwhile.
func TestSlowConsumerIsNotADeadServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var beats atomic.Int32
		net := newMemNet(t, func(_ context.Context, s *peer) error {
			if err := s.started(); err != nil {
				return err
			}
			for range 200 { // more than is buffered
				if err := s.text("x", false, "root"); err != nil {
					return err
				}
			}
			for {
				m, err := s.stream.Receive()
				if err != nil {
					return err
				}
				if m.GetHeartbeat() == nil {
					continue
				}
				if err := s.send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_Heartbeat{Heartbeat: &agentdv1.RunResponse_HeartbeatResponse{}}}); err != nil {
					return err
				}
				if beats.Add(1) == 300 {
					return s.end(true, "")
				}
			}
		})
		c := net.client()
		slept := false
		for event, err := range c.Run(t.Context(), llm(), "hi") {
			if err != nil {
				t.Fatal(err)
			}
			if event.OutputChunk != nil && !slept {
				slept = true
				time.Sleep(time.Hour)
			}
		}
		if beats.Load() != 300 {
			t.Errorf("got %d heartbeats", beats.Load())
		}
	})
}

// TestDeadServer: the server never replies to heartbeats.
func TestDeadServer(t *testing.T) {
	tests := map[string]script{
		"reads, but says nothing": func(_ context.Context, s *peer) error {
			for {
				if _, err := s.stream.Receive(); err != nil {
					return err
				}
			}
		},
		"reads nothing": func(ctx context.Context, _ *peer) error {
			<-ctx.Done()
			return ctx.Err()
		},
	}
	for name, script := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newMemNet(t, script).client(client.WithHeartbeatInterval(20*time.Second), client.WithReconnect(client.ReconnectPolicy{Off: true}))
				begin := time.Now()
				_, err := c.Do(t.Context(), llm(), "hi")
				if !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "nothing for 40s") {
					t.Errorf("want UNAVAILABLE, got %v", err)
				}
				if took := time.Since(begin).Round(time.Second); took != time.Minute {
					t.Errorf("noticed after %s", took)
				}
			})
		})
	}
}

// TestServerThatTakesNothing asks for large results and never reads them.
func TestServerThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemNet(t, func(ctx context.Context, s *peer) error {
			if err := s.started(); err != nil {
				return err
			}
			for i := range 8 {
				if err := s.call(fmt.Sprint(i), "large", "{}"); err != nil {
					return err
				}
			}
			<-ctx.Done()
			return ctx.Err()
		}).client()
		mustAdd(t, client.AddTool(c, "large", "says much", func(context.Context, struct{}) (any, error) {
			return strings.Repeat("x", 1<<19), nil
		}))
		_, err := c.Do(t.Context(), llm("large"), "hi")
		if !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "took no message for 30s") {
			t.Errorf("want UNAVAILABLE, got %v", err)
		}
	})
}

// TestCancelIsPrompt measures on fake time how long a run continues after its
// context, with a server that takes what is sent, or not even that.
func TestCancelIsPrompt(t *testing.T) {
	for _, large := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newMemNet(t, func(ctx context.Context, s *peer) error {
				if err := s.started(); err != nil {
					return err
				}
				if large {
					if err := s.call("c", "large", "{}"); err != nil {
						return err
					}
				}
				<-ctx.Done()
				return ctx.Err()
			}).client(client.WithMaxResultBytes(4 << 20))
			mustAdd(t, client.AddTool(c, "large", "says much", func(context.Context, struct{}) (any, error) {
				return strings.Repeat("x", 3<<20), nil
			}))
			begin := time.Now()
			_, err := c.Do(t.Context(), llm("large"), "hi", client.WithTimeout(10*time.Second))
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("want the deadline, got %v", err)
			}
			if took := time.Since(begin) - 10*time.Second; took > 100*time.Millisecond {
				t.Errorf("the run went on for %s", took)
			}
		})
	}
}
