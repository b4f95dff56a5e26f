package client_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// modelTale is a turn in which much happens to a model call.
func modelTale(l *turnLog) {
	path, cost := []string{"root"}, 0.25
	l.add(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_HistoryCompacted{HistoryCompacted: &agentdv1.HistoryCompacted{
		SessionId: session, AgentPath: path, Summary: "they met", ThroughSeq: 7, Reason: agentdv1.HistoryCompacted_REASON_OVERFLOW, PromptTokens: 900, ContextTokens: 1000,
	}}})
	l.add(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_RawPayloadReceived{RawPayloadReceived: &agentdv1.RawPayloadReceived{
		SessionId: session, AgentPath: path, MessageId: "m1", Attempt: 1, Provider: "openai", Status: 503, ContentType: "text/html", Body: []byte("busy\xff"), Truncated: true,
	}}})
	l.add(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_ModelCallFellBack{ModelCallFellBack: &agentdv1.ModelCallFellBack{
		SessionId: session, AgentPath: path, MessageId: "m1", Model: "gpt-x", NextModel: "claude-x", Code: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, Message: "busy",
	}}})
	l.say("m1", "It is sunny.")
	l.add(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_ProviderToolsUsed{ProviderToolsUsed: &agentdv1.ProviderToolsUsed{
		SessionId: session, AgentPath: path, MessageId: "m1",
		Uses: []*agentdv1.ProviderToolUse{{Id: "u1", ToolName: "web_search", Input: `{"q":"sun"}`, Output: `["x"]`}, {ToolName: "code_execution", Error: "no"}},
		Citations: []*agentdv1.Citation{
			{Uri: "https://sun.example", Title: "Sun", CitedText: "sunny", StartByte: 6, EndByte: 11}, {Uri: "https://sky.example"},
		},
	}}})
	l.add(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_ModelCallEnded{ModelCallEnded: &agentdv1.ModelCallEnded{
		SessionId: session, AgentPath: path, MessageId: "m1", Model: "claude-x", ServedModel: "claude-x-1", Provider: "anthropic",
		Usage: &agentdv1.Usage{PromptTokens: 5, CacheWriteTokens: 1 << 40, ModelCalls: 2, CostUsd: &cost}, StopReason: agentdv1.StopReason_STOP_REASON_STOP,
		Outcome:  agentdv1.ModelCallEnded_OUTCOME_ANSWERED,
		Duration: durationpb.New(3 * time.Second), TimeToFirstText: durationpb.New(time.Second),
	}}})
	l.add(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_ModelCallEnded{ModelCallEnded: &agentdv1.ModelCallEnded{
		SessionId: session, AgentPath: path, Usage: &agentdv1.Usage{ModelCalls: 1, UnpricedCalls: 1}, Outcome: agentdv1.ModelCallEnded_OUTCOME_FAILED,
	}}})
	l.add(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_ModelCallFellBack{ModelCallFellBack: &agentdv1.ModelCallFellBack{
		SessionId: session, AgentPath: path, Model: "gpt-x", NextModel: "claude-x", Code: agentdv1.ErrorCode_ERROR_CODE_TIMEOUT,
	}}})
	l.say("", "")
	l.finish(true, "")
}

// sayAt is what was said at a position.
type sayAt struct {
	Seq  int64
	Data client.EventData
}

// modelEvents are the events of a modelTale that are about models.
func modelEvents(t *testing.T, c *client.Client) (out []sayAt) {
	t.Helper()
	for event, err := range c.Run(t.Context(), llm(), "tell") {
		if err != nil {
			t.Fatal(err)
		}
		switch event.Data.(type) {
		case *client.TurnStarted, *client.End, *client.OutputChunk, *client.ConnectionLost, *client.ConnectionRestored:
			continue
		}
		if event.Time.IsZero() || event.TurnID != "turn" || event.SessionID != session {
			t.Errorf("%+v", event)
		}
		out = append(out, sayAt{event.Seq, event.Data})
	}
	return out
}

// What happens to model calls is reported once, wherever the connection breaks.
func TestModelEvents(t *testing.T) {
	path, cost := []string{"root"}, 0.25
	want := []sayAt{
		{20, &client.HistoryCompacted{AgentPath: path, Summary: "they met", ThroughSeq: 7, Reason: client.CompactionOverflow, PromptTokens: 900, ContextTokens: 1000}},
		{30, &client.RawPayloadReceived{AgentPath: path, MessageID: "m1", Attempt: 1, Provider: "openai", Status: 503, ContentType: "text/html", Body: []byte("busy\xff"), Truncated: true}},
		{40, &client.ModelCallFellBack{AgentPath: path, MessageID: "m1", Model: "gpt-x", NextModel: "claude-x", Code: client.ErrModelUnavailable, Message: "busy"}},
		{60, &client.ProviderToolsUsed{
			AgentPath: path, MessageID: "m1",
			Uses:      []client.ProviderToolUse{{ID: "u1", Name: "web_search", Input: `{"q":"sun"}`, Output: `["x"]`}, {Name: "code_execution", Error: "no"}},
			Citations: []client.Citation{{URI: "https://sun.example", Title: "Sun", CitedText: "sunny", StartByte: 6, EndByte: 11}, {URI: "https://sky.example"}},
		}},
		{70, &client.ModelCallEnded{
			AgentPath: path, MessageID: "m1", Outcome: client.OutcomeAnswered, Model: "claude-x", ServedModel: "claude-x-1", Provider: "anthropic",
			Usage: &client.Usage{PromptTokens: 5, CacheWriteTokens: 1 << 40, ModelCalls: 2, CostUSD: &cost}, StopReason: client.StopReasonStop, Duration: 3 * time.Second, TimeToFirstText: time.Second,
		}},
		{80, &client.ModelCallEnded{
			AgentPath: path, Usage: &client.Usage{ModelCalls: 1, UnpricedCalls: 1}, Outcome: client.OutcomeFailed,
		}},
		{90, &client.ModelCallFellBack{AgentPath: path, Model: "gpt-x", NextModel: "claude-x", Code: client.ErrTimeout}},
	}
	for at := range 12 {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			l := newTurnLog(t, modelTale)
			l.cut = func(stream, sent int) bool { return at > 0 && stream == 1 && sent == at }
			got := modelEvents(t, dial(t, host(t, l), quick))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Text whose model call is over is finished: a retract of what is unfinished leaves
// it.
func TestFinishedCallIsNotRetracted(t *testing.T) {
	for name, over := range map[string]bool{"over": true, "not over": false} {
		t.Run(name, func(t *testing.T) {
			l := newTurnLog(t, func(l *turnLog) {
				l.say("m1", "one ")
				if over {
					l.add(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_ModelCallEnded{ModelCallEnded: &agentdv1.ModelCallEnded{
						SessionId: session, AgentPath: []string{"root"}, MessageId: "m1",
					}}})
				}
				l.add(retractMsg(""))
				l.say("m2", "two")
				l.finish(true, "")
			})
			want := "two"
			if over {
				want = "one two"
			}
			if res, err := dial(t, host(t, l)).Do(t.Context(), llm(), "hi"); err != nil || res.Text != want {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
}

func TestDoCollectsCitations(t *testing.T) {
	res, err := dial(t, host(t, newTurnLog(t, modelTale))).Do(t.Context(), llm(), "hi", client.WithRawPayloads())
	if err != nil {
		t.Fatal(err)
	}
	if len(res.ProviderToolsUsed) != 1 || len(res.ProviderToolsUsed[0].Citations) != 2 {
		t.Fatalf("got %+v", res.ProviderToolsUsed)
	}
	if c := res.ProviderToolsUsed[0].Citations[0]; res.Text[c.StartByte:c.EndByte] != "sunny" {
		t.Errorf("cited %q", res.Text[c.StartByte:c.EndByte])
	}
}

// A real server reports each model call, and the calls add up to the turn.
func TestModelCallsOfADaemon(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	door := newDoor(t, c, "door")
	r := follow(c.Run(t.Context(), actor("door"), "go"))
	s.next(t).gets(t, reply{text: "I knock.", calls: []string{"door"}})
	door.let(t, "open")
	s.says(t, "It is open.")
	events := r.rest(t)
	var calls, tokens int64
	said := map[string]string{}
	for _, e := range events {
		if e.OutputChunk != nil {
			said[e.OutputChunk.MessageID] += e.OutputChunk.Content
		}
		m := as[*client.ModelCallEnded](e)
		if m == nil {
			continue
		}
		if said[m.MessageID] == "" || e.Seq == 0 || e.Time.IsZero() {
			t.Errorf("%+v of %q", e, said)
		}
		if strings.Join(m.AgentPath, "/") != "root" || m.Model != "puppet/any" || m.Provider != "puppet" || m.ServedModel != "puppet" || m.Duration < m.TimeToFirstText ||
			m.TimeToFirstText <= 0 || m.Usage.CostUSD != nil || m.StopReason != client.StopReasonStop {
			t.Errorf("%+v", m)
		}
		calls += m.Usage.ModelCalls
		tokens += m.Usage.TotalTokens
	}
	sum := lastEnd(t, events).Usage
	if calls != 2 || sum.ModelCalls != calls || sum.UnpricedCalls != calls || sum.CostUSD != nil || sum.TotalTokens != tokens {
		t.Errorf("%d calls with %d tokens, the turn used %v", calls, tokens, sum)
	}
}

// What a real server has reported of a call is neither repeated after a cut nor sent behind
// its position.
func TestModelCallsAreReportedOnce(t *testing.T) {
	s := newDaemon(t)
	c, w := s.client(t)
	door := newDoor(t, c, "door")
	isOver := func(e *client.Event) bool { return as[*client.ModelCallEnded](e) != nil }
	mine := follow(c.Run(t.Context(), actor("door"), "go"))
	s.next(t).gets(t, reply{text: "I knock.", calls: []string{"door"}})
	id := mine.until(t, isStarted).SessionID
	first := mine.until(t, isOver)
	await(t, door.asked, "call of the tool")
	w.cut()
	w.mend()
	door.let(t, "open")
	s.says(t, "It is open.")
	other, _ := s.client(t)
	for name, events := range map[string][]*client.Event{
		"who was cut off": mine.rest(t),
		"who is late":     follow(other.Attach(t.Context(), id, client.Observe(), client.WithAfterSeq(first.Seq))).rest(t),
	} {
		over := slices.DeleteFunc(slices.Clone(events), func(e *client.Event) bool { return !isOver(e) })
		if len(over) != 1 || over[0].Seq <= first.Seq || as[*client.ModelCallEnded](over[0]).MessageID == as[*client.ModelCallEnded](first).MessageID || textOf(events) != "It is open." {
			t.Errorf("%s is told of %d calls behind %d, and %q", name, len(over), first.Seq, textOf(events))
		}
		if !lastEnd(t, events).Completed {
			t.Errorf("%s: the turn did not complete", name)
		}
	}
}
