package daemon_test

import (
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
)

// thinks is a script of a model that thinks, speaks and asks for a tool, twice.
const thinks = `answers:
  - {when: {step: 1}, thoughts: [white, " whale"], text: ["Let ", "me "], calls: [{name: look, args: {where: north}}]}
  - {when: {step: 2}, thoughts: more, text: "look. ", calls: [{name: look, args: {where: south}}]}
  - {when: {}, thoughts: enough, text: Fog.}`

// thinkingTurn runs a turn of that model to its end; the second call fails.
func thinkingTurn(t *testing.T, c agentdv1connect.SessionServiceClient) *agentdv1.Turn {
	t.Helper()
	ex := lookRequest("go")
	ex.Agent = llm("root", "scripted/thinks", "look")
	turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn()
	for i := range 2 {
		turn = until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
		result := &agentdv1.RunRequest_ToolCallResponse{ToolCallId: turn.GetPendingToolCalls()[0].GetToolCallId()}
		if result.Result = (&agentdv1.RunRequest_ToolCallResponse_Output{Output: "all white"}); i == 1 {
			result.Result = &agentdv1.RunRequest_ToolCallResponse_Error{Error: "no light"}
		}
		call(t, c.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{result}})
	}
	return until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
}

// onlyOf are the events that a filter is to leave of all, and how.
func onlyOf(all []*agentdv1.RunResponse, only agentdv1.Display_Visibility) (out []*agentdv1.RunResponse) {
	for _, e := range all {
		e = proto.CloneOf(e)
		always := e.GetToolCallAnnounced() != nil || e.GetToolCallAnswered() != nil || e.GetAgentStarted() != nil || e.GetAgentEnded() != nil
		switch {
		case only == agentdv1.Display_VISIBILITY_PUBLIC && always:
			if n := e.GetToolCallAnnounced(); n != nil {
				n.ToolInput = ""
			}
			if a := e.GetAgentStarted(); a != nil {
				a.Model = ""
			}
			if r := e.GetToolCallAnswered(); r.GetError() != "" {
				r.Result = &agentdv1.ToolCallAnswered_Error{}
			} else if r != nil {
				r.Result = &agentdv1.ToolCallAnswered_Output{}
			}
		case only == agentdv1.Display_VISIBILITY_PUBLIC && (e.GetOutputChunk().GetIsThought() || e.GetModelCallEnded() != nil),
			only == agentdv1.Display_VISIBILITY_PRIVATE && !always && !e.GetOutputChunk().GetIsThought() && e.GetModelCallEnded() == nil && e.GetEnd() == nil:
			continue
		}
		out = append(out, e)
	}
	return out
}

// same compares events without what is computed from them.
func same(a, b []*agentdv1.RunResponse) bool {
	return slices.EqualFunc(a, b, func(a, b *agentdv1.RunResponse) bool {
		a, b = proto.CloneOf(a), proto.CloneOf(b)
		a.Display, b.Display = nil, nil
		return proto.Equal(a, b)
	})
}

// A filter leaves the positions as they are: from each of them on, watched at once
// or listed in pieces, a client gets what is left of the whole, and no more than
// that is announced.
func TestFilteredEvents(t *testing.T) {
	d := start(t, daemon.Config{Scripts: map[string]string{"thinks": thinks}})
	c := wires(t, d)["Connect, JSON, HTTP/1.1"]
	turn := thinkingTurn(t, c)
	all := followTurn(t, c, &agentdv1.WatchTurnRequest{SessionId: turn.GetSessionId()})
	for _, e := range all {
		if e.GetDisplay() != nil {
			t.Fatalf("nobody has asked for the display of %v", e)
		}
	}
	for _, only := range []agentdv1.Display_Visibility{agentdv1.Display_VISIBILITY_UNSPECIFIED, agentdv1.Display_VISIBILITY_PUBLIC, agentdv1.Display_VISIBILITY_PRIVATE} {
		want := onlyOf(all, only)
		if filters := only != agentdv1.Display_VISIBILITY_UNSPECIFIED; (len(want) < len(all)) != filters {
			t.Fatalf("the filter %v leaves %d events of %d", only, len(want), len(all))
		}
		// From the start, and behind each event, also one that the filter hides.
		for i := range all {
			var after *int64
			left := want
			if i > 0 {
				after = new(all[i-1].GetSeq())
				left = slices.DeleteFunc(slices.Clone(want), func(e *agentdv1.RunResponse) bool { return e.GetSeq() <= *after })
			}
			watched := followTurn(t, c, &agentdv1.WatchTurnRequest{SessionId: turn.GetSessionId(), AfterSeq: after, Display: true, Visibility: only})
			if !same(watched, left) {
				t.Fatalf("filter %v after event %d: watched %v\nwant %v", only, i, watched, left)
			}
			listed, pages := listAll(t, c, &agentdv1.ListTurnEventsRequest{SessionId: turn.GetSessionId(), AfterSeq: after, PageSize: 2, Display: true, Visibility: only})
			if !slices.EqualFunc(listed, watched, func(a, b *agentdv1.RunResponse) bool { return proto.Equal(a, b) }) || pages != (len(left)+1)/2 {
				t.Fatalf("filter %v after event %d: listed in %d pages %v\nwant %v", only, i, pages, listed, watched)
			}
			for _, e := range watched {
				if e.GetDisplay().GetRef() == "" || only == agentdv1.Display_VISIBILITY_PUBLIC && e.GetDisplay().GetVisibility() != only {
					t.Errorf("filter %v: %v", only, e)
				}
			}
		}
	}
}

// listAll lists events page by page, and counts the pages.
func listAll(t *testing.T, c agentdv1connect.SessionServiceClient, req *agentdv1.ListTurnEventsRequest) (out []*agentdv1.RunResponse, pages int) {
	t.Helper()
	for more := true; more; pages++ {
		page := call(t, c.ListTurnEvents, req)
		if len(page.GetEvents()) == 0 {
			t.Fatal("an empty page was announced")
		}
		out, more = append(out, page.GetEvents()...), page.GetMore()
		req.AfterSeq = new(page.GetNextAfterSeq())
	}
	return out, pages
}

// What a user interface makes of the display alone is what was said and done.
func TestDisplayShowsTheTurn(t *testing.T) {
	d := start(t, daemon.Config{Scripts: map[string]string{"thinks": thinks}})
	c := wires(t, d)["Connect, binary, HTTP/2"]
	turn := thinkingTurn(t, c)
	events := followTurn(t, c, &agentdv1.WatchTurnRequest{SessionId: turn.GetSessionId(), Display: true})
	texts, phases := map[agentdv1.Display_Kind]string{}, map[string][]string{}
	for _, e := range events {
		show := e.GetDisplay()
		texts[show.GetKind()] += e.GetOutputChunk().GetContent()
		what, _, _ := strings.Cut(show.GetRef(), ":")
		if show.GetPhase() != agentdv1.Display_PHASE_DELTA {
			phases[what] = append(phases[what], strings.TrimPrefix(show.GetPhase().String(), "PHASE_"))
		}
	}
	if got := texts[agentdv1.Display_KIND_TEXT]; got != "Let me look. Fog." {
		t.Errorf("text %q", got)
	}
	if got := texts[agentdv1.Display_KIND_REASONING]; got != "white whalemoreenough" {
		t.Errorf("reasoning %q", got)
	}
	for what, want := range map[string]string{"turn": "STARTED COMPLETED", "tool": "STARTED COMPLETED STARTED FAILED", "agent": "STARTED COMPLETED COMPLETED", "call": "COMPLETED COMPLETED COMPLETED", "message": "COMPLETED COMPLETED COMPLETED", "reasoning": ""} {
		if got := strings.Join(phases[what], " "); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
}

// A filtered stream on which nothing is to be shown stays alive, a client that is
// asked for a tool gets its arguments whatever the filter, and who comes back
// behind the last event that it has seen misses nothing.
func TestFilteredWatchOfARunningTurn(t *testing.T) {
	d := start(t, daemon.Config{Scripts: map[string]string{"thinks": thinks}})
	c := wires(t, d)["gRPC"]
	ex := lookRequest("go")
	ex.Agent = llm("root", "scripted/thinks", "look")
	turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn()
	var seen []*agentdv1.RunResponse
	req := &agentdv1.WatchTurnRequest{SessionId: turn.GetSessionId(), ToolNames: []string{"look"}, Display: true, Visibility: agentdv1.Display_VISIBILITY_PUBLIC}
	for over := false; !over; {
		stream, err := c.WatchTurn(t.Context(), connect.NewRequest(req))
		if err != nil {
			t.Fatal(err)
		}
		for stream.Receive() {
			e := proto.CloneOf(stream.Msg().GetEvent())
			if e.GetSeq() > req.GetAfterSeq() {
				seen = append(seen, e)
				req.AfterSeq = new(e.GetSeq())
			}
			if asked := e.GetToolCall(); asked != nil {
				if !strings.Contains(asked.GetToolInput(), "where") {
					t.Errorf("asked without arguments: %v", asked)
				}
				call(t, c.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{{
					ToolCallId: asked.GetToolCallId(), Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "fog"},
				}}})
			}
			if over = e.GetEnd() != nil; !over && e.GetOutputChunk() != nil {
				break // and come back
			}
		}
		if err := stream.Close(); err != nil && stream.Err() != nil {
			t.Fatal(err, stream.Err())
		}
	}
	want := onlyOf(followTurn(t, c, &agentdv1.WatchTurnRequest{SessionId: turn.GetSessionId()}), agentdv1.Display_VISIBILITY_PUBLIC)
	if a, b := joined(seen), joined(want); a != b || a != "Let me look. Fog." {
		t.Errorf("seen %q, want %q", a, b)
	}
	count := func(events []*agentdv1.RunResponse, is func(*agentdv1.RunResponse) bool) (n int) {
		for _, e := range events {
			if is(e) {
				n++
			}
		}
		return n
	}
	results := func(e *agentdv1.RunResponse) bool { return e.GetToolCallAnswered() != nil }
	thoughts := func(e *agentdv1.RunResponse) bool { return e.GetOutputChunk().GetIsThought() }
	if count(seen, results) != 2 || count(seen, thoughts) != 0 {
		t.Errorf("seen %v", seen)
	}
}
