package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/client"
)

// A result that no server takes is sent, and reported to the caller, as a tool error
// that names the limit and the size.
func TestLargeResults(t *testing.T) {
	for name, tool := range map[string]func(context.Context) (any, error){
		"output": func(context.Context) (any, error) { return strings.Repeat("x", 1<<20), nil },
		// As JSON a byte takes six.
		"output as JSON": func(context.Context) (any, error) { return strings.Repeat("\x01", 1<<18), nil },
		"state": func(ctx context.Context) (any, error) {
			return "ok", client.CallFrom(ctx).SetState("k", strings.Repeat("x", 1<<20))
		},
		"parts": func(context.Context) (any, error) {
			return client.ToolOutput{Parts: []client.Part{client.Inline("image/png", make([]byte, 4<<20))}}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			url, scripts := scripted(t)
			c := dial(t, url)
			if err := client.AddTool(c, "dump", "dumps", func(ctx context.Context, _ struct{}) (any, error) { return tool(ctx) }); err != nil {
				t.Fatal(err)
			}
			got := callTool(t, c, scripts, "dump", "{}")
			if e := got.GetError(); !strings.Contains(e, "takes") || !strings.Contains(e, "at most") || got.GetStateDeltaJson() != "" || got.GetParts() != nil {
				t.Errorf("the answer is %.200v", got)
			}
		})
	}
}

// A result that the client takes for good and the server does not is an error to
// the model and to the caller, and the turn continues at once.
func TestResultThatTheServerRefuses(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t, client.WithMaxResultBytes(8<<20))
	if err := client.AddTool(c, "dump", "dumps", func(context.Context, struct{}) (any, error) {
		return strings.Repeat("x", 2<<20), nil
	}); err != nil {
		t.Fatal(err)
	}
	mine := follow(c.Run(t.Context(), actor("dump"), "go"))
	s.next(t).gets(t, reply{calls: []string{"dump"}})
	call := s.next(t)
	if len(call.results) != 1 || !strings.Contains(call.results[0], "refused") || !strings.Contains(call.results[0], "1048576") {
		t.Errorf("the model is told %.300v", call.results)
	}
	call.gets(t, reply{text: "done"})
	events := mine.rest(t)
	results := resultsOf(events)
	if len(results) != 1 || !strings.Contains(as[*client.ToolCallAnswered](results[0]).Error, "refused") {
		t.Errorf("the caller is told %.300v", results)
	}
	refusals := slices.DeleteFunc(slices.Clone(events), func(e *client.Event) bool { return e.Error == nil })
	if len(refusals) != 1 || !errors.Is(refusals[0].Error, client.ErrLimitExceeded) {
		t.Errorf("the caller is told the refusals %v", refusals)
	}
	if !lastEnd(t, events).Completed {
		t.Error("the turn did not complete")
	}
}

// A result that the client may send, and that is more than the server reads in one message,
// is an error to the model, on each way to the server; the turn continues.
func TestResultAboveTheServersMessages(t *testing.T) {
	for name, opts := range map[string][]client.Option{"HTTP/2": nil, "HTTP/1.1": {client.WithHTTP1()}} {
		for _, attached := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " attached ", attached), func(t *testing.T) {
				s := newDaemon(t)
				c, _ := s.client(t, append(opts, client.WithMaxResultBytes(32<<20), client.WithMaxMessageBytes(32<<20))...)
				mustAdd(t, client.AddTool(c, "dump", "dumps", func(context.Context, struct{}) (any, error) {
					return strings.Repeat("x", 6<<20), nil
				}))
				run := c.Run(t.Context(), actor("dump"), "go")
				if attached {
					session := c.NewSession(actor("dump"))
					turn, err := session.Start(t.Context(), "go")
					if err != nil {
						t.Fatal(err)
					}
					run = c.Attach(t.Context(), session.ID(), client.WithTurnID(turn.ID))
				}
				mine := follow(run)
				s.next(t).gets(t, reply{calls: []string{"dump"}})
				call := s.next(t)
				if len(call.results) != 1 || !strings.Contains(call.results[0], "refused") || !strings.Contains(call.results[0], "4194304") {
					t.Errorf("the model is told %.300v", call.results)
				}
				call.gets(t, reply{text: "done"})
				if end := lastEnd(t, mine.rest(t)); !end.Completed {
					t.Errorf("the turn ended with %+v", end)
				}
			})
		}
	}
}
