package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/test/testdaemon"

	"github.com/apzuk3/agentd/session/limits"
)

// TestToolTimeouts: a handler has as long as was declared, however short the
// server's own patience is; then its context ends, and the model learns it.
func TestToolTimeouts(t *testing.T) {
	const limit = time.Hour
	tests := map[string]struct {
		client client.Option
		tool   client.ToolOption
		run    client.RunOption
	}{
		"client":                  {client: client.WithToolTimeout(limit)},
		"run":                     {run: client.WithToolTimeout(limit)},
		"run before client":       {client: client.WithToolTimeout(time.Second), run: client.WithToolTimeout(limit)},
		"tool":                    {tool: client.ToolTimeout(limit)},
		"tool before run":         {tool: client.ToolTimeout(limit), run: client.WithToolTimeout(time.Second)},
		"longer than the default": {client: client.WithToolTimeout(time.Minute), tool: client.ToolTimeout(limit)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newDaemon(t, testdaemon.WithTurnLimits(limits.Limits{ToolTimeout: 10 * time.Minute, TurnTimeout: 24 * time.Hour}))
				var opts []client.Option
				if test.client != nil {
					opts = append(opts, test.client)
				}
				c, _ := s.client(t, opts...)
				var toolOpts []client.ToolOption
				if test.tool != nil {
					toolOpts = append(toolOpts, test.tool)
				}
				door := newDoor(t, c, "door", toolOpts...)
				var runOpts []client.RunOption
				if test.run != nil {
					runOpts = append(runOpts, test.run)
				}
				r := follow(c.Run(t.Context(), actor("door"), "go", runOpts...))
				s.next(t).gets(t, reply{calls: []string{"door"}})
				<-door.asked
				time.Sleep(limit - time.Millisecond)
				door.let(t, "in time")
				call := s.next(t)
				if len(call.results) != 1 || !strings.Contains(call.results[0], "in time") {
					t.Errorf("the model was told %q", call.results)
				}
				call.gets(t, reply{calls: []string{"door"}})
				<-door.asked
				begin := time.Now()
				if cause := <-door.ended; !errors.Is(cause, client.ErrToolTimeout) || time.Since(begin) != limit {
					t.Errorf("the handler's context ended by %v after %s", cause, time.Since(begin))
				}
				call = s.next(t)
				if len(call.results) != 2 || !strings.Contains(call.results[1], `"error":"the tool call timed out"`) || time.Since(begin) != limit {
					t.Errorf("the model was told %q after %s", call.results, time.Since(begin))
				}
				call.gets(t, reply{text: "sorry"})
				for _, e := range completes(t, r, "sorry") {
					if e.Error != nil {
						t.Errorf("an answer was refused: %v", e.Error)
					}
				}
			})
		})
	}
}

// TestServersToolTimeout: without a timeout of its own the handler has the
// server's time.
func TestServersToolTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDaemon(t, testdaemon.WithTurnLimits(limits.Limits{ToolTimeout: time.Minute}))
		c, _ := s.client(t)
		door := newDoor(t, c, "door")
		r := follow(c.Run(t.Context(), actor("door"), "go"))
		s.next(t).gets(t, reply{calls: []string{"door"}})
		<-door.asked
		if cause := <-door.ended; !errors.Is(cause, client.ErrToolCanceled) || !strings.Contains(cause.Error(), "1m0s") {
			t.Errorf("the handler's context ended by %v", cause)
		}
		if call := s.says(t, "sorry"); len(call.results) != 1 || !strings.Contains(call.results[0], "1m0s") {
			t.Errorf("the model was told %q", call.results)
		}
		completes(t, r, "sorry")
	})
}

// TestTimeoutOfAWaitingCall: the time of a call that waits for a free handler
// runs too, and its handler is not called any more.
func TestTimeoutOfAWaitingCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDaemon(t)
		c, _ := s.client(t, client.WithConcurrency(1))
		slow := newDoor(t, c, "slow")
		quickly := newDoor(t, c, "quick", client.ToolTimeout(time.Second))
		r := follow(c.Run(t.Context(), actor("slow", "quick"), "go"))
		s.next(t).gets(t, reply{calls: []string{"slow", "quick"}})
		<-slow.asked
		begin := time.Now()
		result := as[*client.ToolCallAnswered](r.until(t, func(e *client.Event) bool { return as[*client.ToolCallAnswered](e) != nil }))
		if result.Name != "quick" || !strings.Contains(result.Error, "timed out") || time.Since(begin) != time.Second {
			t.Errorf("after %s: %+v", time.Since(begin), result)
		}
		slow.let(t, "done")
		if call := s.says(t, "well"); len(call.results) != 2 {
			t.Errorf("the model was told %q", call.results)
		}
		completes(t, r, "well")
		if len(quickly.asked) != 0 {
			t.Error("the handler was called")
		}
	})
}

func TestTimeoutsAreSent(t *testing.T) {
	l := newTurnLog(t, func(l *turnLog) { l.finish(true, "") })
	c := dial(t, host(t, l), client.WithToolTimeout(time.Minute))
	newDoor(t, c, "plain")
	newDoor(t, c, "timed", client.ToolTimeout(time.Second))
	newDoor(t, c, "long", client.ToolTimeout(24*time.Hour))
	mustAdd(t, client.AddRawTool(c, "raw", "d", nothing))
	mustAdd(t, client.AddRawTool(c, "raw_timed", "d", nothing, client.ToolTimeout(time.Second)))
	if _, err := c.Do(t.Context(), llm("plain", "timed", "long", "raw", "raw_timed"), "hi"); err != nil {
		t.Fatal(err)
	}
	ex := l.streams[0].execute
	if got := ex.GetToolTimeout().AsDuration(); got != time.Minute+2*time.Second {
		t.Errorf("the run's: %s", got)
	}
	want := map[string]time.Duration{"plain": 0, "timed": 3 * time.Second, "long": 24 * time.Hour, "raw": 0, "raw_timed": 3 * time.Second}
	for _, tool := range ex.GetTools() {
		if got := tool.GetTimeout().AsDuration(); got != want[tool.GetName()] || (got == 0) != (tool.GetTimeout() == nil) {
			t.Errorf("%s: %s", tool.GetName(), got)
		}
	}
	if len(ex.GetTools()) != len(want) {
		t.Errorf("%d tools", len(ex.GetTools()))
	}
}

func nothing(context.Context, json.RawMessage) (any, error) { return nil, nil }

func TestWrongTimeouts(t *testing.T) {
	set := client.NewToolSet()
	for name, err := range map[string]error{
		"too long":      client.AddTool(set, "t", "d", func(context.Context, struct{}) (any, error) { return nil, nil }, client.ToolTimeout(25*time.Hour)),
		"raw, too long": client.AddRawTool(set, "t", "d", nothing, client.ToolTimeout(25*time.Hour)),
		"raw, none":     client.AddRawTool(set, "t", "d", nothing, client.ToolTimeout(0)),
	} {
		if err == nil || !strings.Contains(err.Error(), `tool "t": client.ToolTimeout: want more than 0`) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	c := dial(t, serve(t, func(context.Context, *peer) error {
		t.Error("something was sent")
		return nil
	}))
	if _, err := c.Do(t.Context(), llm(), "hi", client.WithToolTimeout(25*time.Hour)); !errors.Is(err, client.ErrInvalidRequest) || !strings.Contains(err.Error(), "24h0m0s") {
		t.Errorf("got %v", err)
	}
}
