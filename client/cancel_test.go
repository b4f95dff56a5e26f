package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// errAbort makes net/http reset the stream.
var errAbort = http.ErrAbortHandler

// watcher records what the server saw of the end of a run.
type watcher struct {
	cancelled chan bool     // whether a CancelRequest for the turn came
	left      chan struct{} // closed when the handler's context has ended
}

// waiting is a script that says something and then waits for the client; with
// polite it responds to a cancel with EndResponse.
func (w *watcher) waiting(polite bool) script {
	w.cancelled, w.left = make(chan bool, 1), make(chan struct{})
	return func(ctx context.Context, s *peer) error {
		if err := steps(s.started, func() error { return s.text("tick", false, "root") }); err != nil {
			return err
		}
		m, err := s.receive()
		w.cancelled <- err == nil && m.GetCancel() != nil && m.GetCancel().ToolCallId == nil
		if polite {
			return s.end(false, "cancelled")
		}
		<-ctx.Done()
		close(w.left)
		return ctx.Err()
	}
}

func (w *watcher) check(t *testing.T, polite bool) {
	t.Helper()
	if !<-w.cancelled {
		t.Error("the server was not told that the turn is cancelled")
	}
	if !polite {
		<-w.left // the regression: a stream that stays open for ever
	}
}

func TestContextCancelUnblocksRunAndReachesTheServer(t *testing.T) {
	for _, polite := range []bool{false, true} {
		t.Run(fmt.Sprintf("polite=%v", polite), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { cancelInReceive(t, polite) })
		})
	}
}

func cancelInReceive(t *testing.T, polite bool) {
	t.Helper()
	var w watcher
	c := newMemNet(t, w.waiting(polite)).client()
	cause := errors.New("the user left")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var last error
	for event, err := range c.Run(ctx, llm(), "hi") {
		last = err
		if err == nil && event.End != nil {
			t.Error("a cancelled run must not end as if it were asked to")
		}
		if err == nil && event.OutputChunk != nil {
			// Nothing more comes, so the run waits in Receive when this happens.
			time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
		}
	}
	if !errors.Is(last, context.Canceled) || !errors.Is(last, cause) {
		t.Errorf("want the context's error and its cause, got %v", last)
	}
	if failure, ok := errors.AsType[*client.Error](last); !ok || failure.SessionID != session || failure.Retryable {
		t.Errorf("got %#v", last)
	}
	w.check(t, polite)
}

func TestContextCancelDuringTheLoopBodyReachesTheServer(t *testing.T) {
	var w watcher
	c := dial(t, serve(t, w.waiting(true)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for event, err := range c.Run(ctx, llm(), "hi") {
		last = err
		if err == nil && event.OutputChunk != nil {
			cancel()
			w.check(t, true) // while the body still runs
		}
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("want the context's error, got %v", last)
	}
}

// A run that is canceled while its turn starts waits for the start, for up to two
// seconds, so that the turn is canceled and does not run on without a name.
func TestContextCancelDuringTheStart(t *testing.T) {
	for name, delay := range map[string]time.Duration{"slow": time.Second, "dead": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			canceled := make(chan bool, 1)
			c := newMemNet(t, func(ctx context.Context, s *peer) error {
				select {
				case <-time.After(delay):
				case <-ctx.Done():
					canceled <- false
					return ctx.Err()
				}
				if err := s.started(); err != nil {
					return err
				}
				m, err := s.receive()
				canceled <- err == nil && m.GetCancel() != nil
				return s.end(false, "cancelled")
			}).client()
			begin := time.Now()
			_, err := c.Do(t.Context(), llm(), "hi", client.WithTimeout(time.Millisecond))
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			if cancelled := <-canceled; cancelled != (name == "slow") {
				t.Errorf("%s: the server was told: %v", name, cancelled)
			}
			if took := time.Since(begin); took > 3*time.Second {
				t.Errorf("%s: the run took %s", name, took)
			}
		})
	}
}

func TestContextCancelledBefore(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	url := serve(t, func(context.Context, *peer) error {
		t.Error("something was sent")
		return nil
	})
	if _, err := dial(t, url).Do(ctx, llm(), "hi"); !errors.Is(err, context.Canceled) {
		t.Errorf("want the context's error, got %v", err)
	}
}

func TestBreakCancelsTheTurn(t *testing.T) {
	for _, polite := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var w watcher
			c := newMemNet(t, w.waiting(polite)).client()
			for event, err := range c.Run(t.Context(), llm(), "hi") {
				if err != nil {
					t.Fatal(err)
				}
				if event.OutputChunk != nil {
					break
				}
			}
			w.check(t, polite)
		})
	}
}

func TestPanicInTheLoopBodyEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w watcher
		c := newMemNet(t, w.waiting(false)).client()
		func() {
			defer func() {
				if v := recover(); v != "mine" {
					t.Errorf("want the caller's panic, got %v", v)
				}
			}()
			for event, err := range c.Run(t.Context(), llm(), "hi") {
				if err != nil || event.OutputChunk != nil {
					panic("mine")
				}
			}
		}()
		w.check(t, false)
	})
}

func TestControl(t *testing.T) {
	tests := map[string]struct {
		ask   func(*client.Control) error
		check func(*agentdv1.RunRequest) bool
	}{
		"end": {
			ask:   func(c *client.Control) error { return c.End("enough") },
			check: func(m *agentdv1.RunRequest) bool { return m.GetEnd().GetReason() == "enough" },
		},
		"cancel": {
			ask:   (*client.Control).Cancel,
			check: func(m *agentdv1.RunRequest) bool { return m.GetCancel() != nil && m.GetCancel().ToolCallId == nil },
		},
		"cancel tool": {
			ask:   func(c *client.Control) error { return c.CancelTool("c1") },
			check: func(m *agentdv1.RunRequest) bool { return m.GetCancel().GetToolCallId() == "c1" },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			seen := make(chan bool, 1)
			url := serve(t, func(_ context.Context, s *peer) error {
				if err := s.started(); err != nil {
					return err
				}
				m, err := s.receive()
				if err != nil {
					return err
				}
				seen <- test.check(m)
				return s.end(false, "asked")
			})
			control := new(client.Control)
			if err := test.ask(control); err == nil {
				t.Error("want an error before the run")
			}
			var end *client.End
			for event, err := range dial(t, url).Run(t.Context(), llm(), "hi", client.WithControl(control)) {
				switch {
				case err != nil:
					t.Fatal(err)
				case as[*client.TurnStarted](event) != nil:
					if err := test.ask(control); err != nil {
						t.Fatal(err)
					}
				case event.End != nil:
					end = event.End
				}
			}
			if !<-seen {
				t.Error("the server got something else")
			}
			if end == nil || end.Completed || end.Reason != "asked" {
				t.Errorf("end: %+v", end)
			}
			if err := test.ask(control); err == nil {
				t.Error("want an error after the run")
			}
		})
	}
}

func TestRefusalBeforeAnAskedEndIsNoFailure(t *testing.T) {
	url := serve(t, func(_ context.Context, s *peer) error {
		return steps(
			s.started,
			func() error { _, err := s.receive(); return err },
			func() error { return s.fail(agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "late", false) },
			func() error { return s.end(false, "bye") },
		)
	})
	var control client.Control
	var refused, ended bool
	for event, err := range dial(t, url).Run(t.Context(), llm(), "hi", client.WithControl(&control)) {
		switch {
		case err != nil:
			t.Fatal(err)
		case as[*client.TurnStarted](event) != nil:
			if err := control.End("bye"); err != nil {
				t.Fatal(err)
			}
		case event.Error != nil:
			refused = true
		case event.End != nil:
			ended = true
		}
	}
	if !refused || !ended {
		t.Errorf("refused %v, ended %v", refused, ended)
	}
}

// A handler that outlasts the turn is not heard of: the end comes last.
func TestEndComesLast(t *testing.T) {
	returned := make(chan struct{})
	url := serve(t, func(ctx context.Context, s *peer) error {
		err := steps(
			s.started,
			func() error { return s.call("c1", "work", "{}") },
			func() error { return s.end(false, "enough") },
		)
		if err != nil {
			return err
		}
		<-returned
		// A result that is reported nevertheless has time to arrive.
		timer := time.NewTimer(20 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return nil
	})
	c := dial(t, url)
	ended := make(chan struct{})
	mustAdd(t, client.AddTool(c, "work", "works", func(context.Context, struct{}) (any, error) {
		defer close(returned)
		<-ended
		return "done", nil
	}))
	var last *client.Event
	for event, err := range c.Run(t.Context(), llm("work"), "hi") {
		if err != nil {
			t.Fatal(err)
		}
		if event.End != nil {
			close(ended)
		}
		last = event
	}
	if last == nil || last.End == nil {
		t.Errorf("the last event is %+v", last)
	}
}
