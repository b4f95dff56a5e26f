package client_test

import (
	"slices"
	"testing"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

func isToolCall(e *client.Event) bool   { return e.ToolCall != nil }
func isToolNotice(e *client.Event) bool { return as[*client.ToolCallAnnounced](e) != nil }

// resultsOf are the events with results of tool calls.
func resultsOf(events []*client.Event) []*client.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e *client.Event) bool { return as[*client.ToolCallAnswered](e) == nil })
}

// Each client receives the result of a call once, when the server has it: also the one
// that returned it.
func TestResultsAreReportedOnce(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	door := newDoor(t, c, "door")
	mine := follow(c.Run(t.Context(), actor("door"), "go"))
	s.next(t).gets(t, reply{calls: []string{"door"}})
	id := mine.until(t, isStarted).SessionID
	call := mine.until(t, isToolCall).ToolCall
	other, _ := s.client(t)
	watching := follow(other.Attach(t.Context(), id, client.Observe()))
	watching.until(t, isToolNotice)
	door.let(t, "open")
	s.says(t, "done")
	for name, events := range map[string][]*client.Event{
		"who answers": mine.rest(t),
		"who watches": watching.rest(t),
		"who is late": follow(other.Attach(t.Context(), id, client.Observe())).rest(t),
	} {
		results := resultsOf(events)
		if len(results) != 1 {
			t.Fatalf("%s is told %d results", name, len(results))
		}
		r := as[*client.ToolCallAnswered](results[0])
		if r.ID != call.ID || r.Name != "door" || r.Output != "open" || r.Error != "" || !slices.Equal(r.AgentPath, call.AgentPath) {
			t.Errorf("%s: %+v", name, r)
		}
		if results[0].Seq == 0 || results[0].Time.IsZero() || (name == "who is late") != results[0].Replayed {
			t.Errorf("%s: %+v", name, results[0])
		}
	}
}

// A handler stops when another client has returned the result of its call, and that result
// stands.
func TestResultOfAnotherClient(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	door := newDoor(t, c, "door")
	mine := follow(c.Run(t.Context(), actor("door"), "go"))
	s.next(t).gets(t, reply{calls: []string{"door"}})
	id := mine.until(t, isStarted).SessionID
	asked := mine.until(t, isToolCall)
	call := asked.ToolCall
	await(t, door.asked, "call of the tool")
	sessions := agentdv1connect.NewSessionServiceClient(s.d.HTTPClient(), s.d.URL)
	submitted, err := sessions.SubmitToolResults(t.Context(), connect.NewRequest(&agentdv1.SubmitToolResultsRequest{
		SessionId: id, TurnId: asked.TurnID, Results: []*agentdv1.RunRequest_ToolCallResponse{{
			ToolCallId: call.ID, Result: &agentdv1.RunRequest_ToolCallResponse_Error{Error: "locked"},
		}},
	}))
	if err != nil || len(submitted.Msg.GetRefused()) > 0 {
		t.Fatalf("%v, %v", submitted, err)
	}
	door.stops(t)
	s.says(t, "done")
	events := mine.rest(t)
	results := resultsOf(events)
	if len(results) != 1 || results[0].Seq == 0 || as[*client.ToolCallAnswered](results[0]).ID != call.ID || as[*client.ToolCallAnswered](results[0]).Error != "locked" || as[*client.ToolCallAnswered](results[0]).Output != "" {
		t.Errorf("told %d results, the first %+v", len(results), results)
	}
	if !lastEnd(t, events).Completed {
		t.Error("the turn did not complete")
	}
	for _, e := range events {
		if e.Error != nil {
			t.Errorf("refused: %v", e.Error)
		}
	}
}
