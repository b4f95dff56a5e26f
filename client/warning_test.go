package client_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session/principal"
)

// asCaller has the daemon take everybody for a caller, who may not set state of app:.
func asCaller(c *testdaemon.Config) {
	c.Daemon.Authenticate = func(*http.Request) (principal.Principal, error) {
		return principal.Principal{ID: "ann", Role: principal.Caller}, nil
	}
}

// fieldsOf are what the warnings are about; each is one of app: state.
func fieldsOf(t *testing.T, warnings []client.Warning) (fields []string) {
	t.Helper()
	for _, w := range warnings {
		if w.Code != "app_state_ignored" || !strings.Contains(w.Message, "keys of app: are set by operators") || w.String() != w.Message {
			t.Errorf("warned of %+v", w)
		}
		fields = append(fields, w.Field)
	}
	return fields
}

const (
	inRequest = `execute.initial_state_json["app:plan"]`
	inResult  = `state_delta_json["app:seen"]`
)

// TestWarnings: what the server leaves out of a request and of a tool's result is a warning
// in the events, in the whole turn, for later watchers, and in a turn that nobody watches.
func TestWarnings(t *testing.T) {
	s := newDaemon(t, asCaller)
	c, _ := s.client(t)
	mustAdd(t, client.AddTool(c, "look", "looks", func(ctx context.Context, _ struct{}) (any, error) {
		return "seen", client.CallFrom(ctx).SetState("app:seen", true)
	}))
	state := client.WithInitialState(map[string]any{"app:plan": "sale", "mine": 1})
	run := follow(c.Run(t.Context(), actor("look"), "go", state))
	s.next(t).gets(t, reply{calls: []string{"look"}})
	s.says(t, "done")
	var started, results []string
	var by string
	all := run.rest(t)
	for _, event := range all {
		switch d := event.Data.(type) {
		case *client.TurnStarted:
			started = fieldsOf(t, d.Warnings)
		case *client.ToolCallAnswered:
			results, by = fieldsOf(t, d.Warnings), d.CreatedBy
		}
	}
	if !slices.Equal(started, []string{inRequest}) || !slices.Equal(results, []string{inResult}) || by != "ann" {
		t.Errorf("warned of %q at the start and of %q of an answer by %q", started, results, by)
	}
	id := all[0].SessionID
	watched, err := client.Collect(c.Attach(t.Context(), id, client.WithAfterSeq(0)))
	if err != nil || !slices.Equal(fieldsOf(t, watched.Warnings), []string{inRequest, inResult}) {
		t.Errorf("who comes later is warned of %v, %v", watched.Warnings, err)
	}

	s.will(t, reply{text: "again"})
	second, err := c.Do(t.Context(), nil, "again", client.WithSessionID(id), state)
	if err != nil || !slices.Equal(fieldsOf(t, second.Warnings), []string{inRequest}) {
		t.Errorf("Do is warned of %v, %v", second.Warnings, err)
	}
	chat := c.Session(id)
	s.will(t, reply{text: "and again"})
	turn := must[*client.Turn](t)(chat.Start(t.Context(), "and again", state))
	if !slices.Equal(fieldsOf(t, turn.Warnings), []string{inRequest}) {
		t.Errorf("Start is warned of %v", turn.Warnings)
	}
	res, err := client.Collect(chat.Attach(t.Context()))
	if err != nil || !slices.Equal(fieldsOf(t, res.Warnings), []string{inRequest}) {
		t.Errorf("who attaches is warned of %v, %v", res.Warnings, err)
	}
	s.will(t, reply{text: "quietly"})
	quiet, err := chat.Send(t.Context(), "quietly", client.WithInitialState(map[string]any{"mine": 2}))
	if err != nil || len(quiet.Warnings) > 0 {
		t.Errorf("without a reason it is warned of %v, %v", quiet.Warnings, err)
	}
}

// TestWarningsOfAQueuedTurn come when it starts.
func TestWarningsOfAQueuedTurn(t *testing.T) {
	s := newDaemon(t, asCaller)
	c, _ := s.client(t)
	first := follow(c.Run(t.Context(), actor(), "one"))
	id := first.until(t, isStarted).SessionID
	held := s.next(t)
	second := follow(c.Run(t.Context(), nil, "two", client.WithSessionID(id), client.WithOnBusy(client.OnBusyEnqueue),
		client.WithInitialState(map[string]any{"app:plan": "sale"})))
	if q := as[*client.TurnQueued](second.until(t, func(e *client.Event) bool { return as[*client.TurnQueued](e) != nil })); q.CreatedBy != "ann" {
		t.Errorf("queued by %q", q.CreatedBy)
	}
	held.gets(t, reply{text: "first"})
	first.rest(t)
	got := as[*client.TurnStarted](second.until(t, isStarted))
	if !slices.Equal(fieldsOf(t, got.Warnings), []string{inRequest}) {
		t.Errorf("warned of %v", got.Warnings)
	}
	s.says(t, "second")
	second.rest(t)
}

// TestWarningsAreBounded: a Result keeps the first ones.
func TestWarningsAreBounded(t *testing.T) {
	many := make([]client.Warning, 100)
	for i := range many {
		many[i].Field = strings.Repeat("x", i)
	}
	res, err := client.Collect(func(yield func(*client.Event, error) bool) {
		for range 4 {
			if !yield(&client.Event{Data: &client.ToolCallAnswered{Warnings: many}}, nil) {
				return
			}
		}
	})
	if err != nil || len(res.Warnings) != 256 || res.Warnings[255].Field != many[55].Field {
		t.Errorf("%d warnings, %v", len(res.Warnings), err)
	}
}
