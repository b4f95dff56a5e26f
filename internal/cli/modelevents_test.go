package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/cli"
)

// cites is what a provider has run for an agent.
func cites(path []string, uses []*agentdv1.ProviderToolUse, citations ...*agentdv1.Citation) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ProviderToolsUsed{
		ProviderToolsUsed: &agentdv1.ProviderToolsUsed{AgentPath: path, Uses: uses, Citations: citations},
	}}
}

func citation(uri, title string) *agentdv1.Citation {
	return &agentdv1.Citation{Uri: uri, Title: title}
}

func fallback(path ...string) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ModelCallFellBack{ModelCallFellBack: &agentdv1.ModelCallFellBack{
		AgentPath: path, MessageId: "m1", Model: "gpt-x", NextModel: "claude\x1b-x", Code: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, Message: "busy",
	}}}
}

// fallbackOfSummary is one of a call that is to write a summary.
func fallbackOfSummary(path ...string) *agentdv1.RunResponse {
	m := fallback(path...)
	m.GetModelCallFellBack().MessageId = ""
	return m
}

func compaction(reason agentdv1.HistoryCompacted_Reason, prompt, window int64) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_HistoryCompacted{HistoryCompacted: &agentdv1.HistoryCompacted{
		AgentPath: []string{"root", "a"}, Summary: "They\nmet.", Reason: reason, PromptTokens: prompt, ContextTokens: window,
	}}}
}

func callOver(m *agentdv1.ModelCallEnded) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ModelCallEnded{ModelCallEnded: m}}
}

func raw(body string, truncated bool) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Seq: 7, Response: &agentdv1.RunResponse_RawPayloadReceived{RawPayloadReceived: &agentdv1.RawPayloadReceived{
		AgentPath: []string{"root"}, Attempt: 2, Provider: "openai", Status: 200, ContentType: "text/event-stream", Body: []byte(body), Truncated: truncated,
	}}}
}

func TestTextOfModelEvents(t *testing.T) {
	a, b := []string{"root", "a"}, []string{"root", "b"}
	search := []*agentdv1.ProviderToolUse{{ToolName: "web_search", Input: "{\"q\":\n\"sun\"}"}, {ToolName: "code_execution", Error: "no\npower"}}
	var many []*agentdv1.Citation
	for i := range 52 {
		many = append(many, citation(fmt.Sprintf("https://x.example/%d", i+1), ""))
	}
	for name, tc := range map[string]struct {
		events []*agentdv1.RunResponse
		want   string
	}{
		"citations": {
			[]*agentdv1.RunResponse{
				says(a, "It shines."), cites(a, search, citation("https://sun.example/a?b=c", "The\x1b[31m Sun"), citation("https://sky.example", ""), citation("https://sun.example/a?b=c", "The\x1b[31m Sun"), citation("", "A book"), citation("", "")),
				says(a, "And so on.", "last"), ends(true),
			},
			"a: It shines.\n→ web_search {\"q\": \"sun\"} (by the provider)\n→ code_execution (by the provider)\n✗ code_execution: no power\n" +
				"[1] The[31m Sun https://sun.example/a?b=c\n[2] https://sky.example\n[3] A book\nAnd so on.\n",
		},
		"of one that waits": {
			[]*agentdv1.RunResponse{says(a, "a1 "), says(b, "b1"), cites(b, nil, citation("https://b.example", "B")), says(a, "a2", "last"), ends(true)},
			"a: a1 a2\nb: b1\n[1] B https://b.example\n",
		},
		"nothing cited": {[]*agentdv1.RunResponse{says(a, "x"), cites(a, nil), ends(true)}, "a: x\n"},
		"many":          {[]*agentdv1.RunResponse{cites(a, nil, many...)}, "[50] https://x.example/50\n… and 2 more\n"},
		"fallback":      {[]*agentdv1.RunResponse{fallback(a...)}, "↻ a: gpt-x failed (MODEL_UNAVAILABLE), going on with claude-x\n"},
		"of a summary":  {[]*agentdv1.RunResponse{fallbackOfSummary(a...)}, "↻ a: gpt-x failed (MODEL_UNAVAILABLE), the summary is asked of claude-x\n"},
		"compaction": {
			[]*agentdv1.RunResponse{
				compaction(agentdv1.HistoryCompacted_REASON_SHARE, 90000, 100000), compaction(agentdv1.HistoryCompacted_REASON_OVERFLOW, 90000, 0),
				compaction(agentdv1.HistoryCompacted_REASON_OVERFLOW, 0, 0),
			},
			"… a: a summary stands for the beginning of the conversation; the prompt had 90,000 of 100,000 tokens\n" +
				"… a: a summary stands for the beginning of the conversation; the prompt was too long: 90,000 tokens\n" +
				"… a: a summary stands for the beginning of the conversation\n",
		},
		"not shown":       {[]*agentdv1.RunResponse{raw("x", false), callOver(&agentdv1.ModelCallEnded{AgentPath: a})}, ""},
		"a finished call": {[]*agentdv1.RunResponse{says(a, "one "), callOver(&agentdv1.ModelCallEnded{AgentPath: a}), retract(), says(a, "two", "last"), ends(true)}, "a: one \ntwo\n"},
		"files": {
			[]*agentdv1.RunResponse{{Response: &agentdv1.RunResponse_MessageInjected{MessageInjected: &agentdv1.MessageInjected{UserPrompt: "see", UserParts: []*agentdv1.Part{
				{Content: &agentdv1.Part_Text{Text: "x"}}, {Content: &agentdv1.Part_Inline{Inline: &agentdv1.InlineData{MimeType: "image/png", Data: []byte("x")}}},
				{Content: &agentdv1.Part_File{File: &agentdv1.FileUri{MimeType: "image/gif", Uri: "gs://x"}}},
			}}}}},
			"> see [text, image/png, image/gif gs://x]\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			screen := &cli.Text{Out: &out}
			for _, event := range tc.events {
				if err := screen.Event(event); err != nil {
					t.Fatal(err)
				}
			}
			if name == "many" {
				if !strings.HasSuffix(out.String(), tc.want) || strings.Count(out.String(), "\n") != 51 {
					t.Errorf("shown %q", out.String())
				}
			} else if out.String() != tc.want {
				t.Errorf("shown\n%q\nwant\n%q", out.String(), tc.want)
			}
		})
	}
}

func TestModelEventLines(t *testing.T) {
	call := &agentdv1.ModelCallEnded{
		AgentPath: []string{"root", "a"}, Model: "gpt-x", Usage: &agentdv1.Usage{TotalTokens: 1234, ModelCalls: 2, CostUsd: new(0.0123)},
		Duration: durationpb.New(1500 * time.Millisecond), TimeToFirstText: durationpb.New(200 * time.Millisecond), StopReason: agentdv1.StopReason_STOP_REASON_MAX_TOKENS,
	}
	result := &agentdv1.ToolCallAnswered{ToolName: "look", Result: &agentdv1.ToolCallAnswered_Output{Output: "fine"}, Parts: []*agentdv1.Part{
		{Content: &agentdv1.Part_Inline{Inline: &agentdv1.InlineData{MimeType: "image/png", Data: []byte("x")}}},
	}}
	for name, tc := range map[string]struct {
		event *agentdv1.RunResponse
		want  string
	}{
		"call":        {callOver(call), "model_call_ended       root/a gpt-x, 2 model calls, 1,234 tokens, $0.0123, 1.5s, first text after 200ms, max tokens"},
		"no price":    {callOver(&agentdv1.ModelCallEnded{ServedModel: "x", Usage: &agentdv1.Usage{ModelCalls: 1, UnpricedCalls: 1}, StopReason: agentdv1.StopReason_STOP_REASON_STOP}), "model_call_ended       x, 1 model call, 0 tokens, price unknown"},
		"fallback":    {fallback("root"), "model_call_fell_back   root gpt-x failed (MODEL_UNAVAILABLE), going on with claude-x: busy"},
		"of summary":  {fallbackOfSummary("root"), "model_call_fell_back   root gpt-x failed (MODEL_UNAVAILABLE), the summary is asked of claude-x: busy"},
		"summary":     {callOver(&agentdv1.ModelCallEnded{Model: "x", Usage: &agentdv1.Usage{ModelCalls: 1, CostUsd: new(0.0)}, Outcome: agentdv1.ModelCallEnded_OUTCOME_SUMMARIZED}), "model_call_ended       x, 1 model call, 0 tokens, wrote a summary"},
		"failed":      {callOver(&agentdv1.ModelCallEnded{Model: "x", Usage: &agentdv1.Usage{ModelCalls: 1, CostUsd: new(0.0)}, Outcome: agentdv1.ModelCallEnded_OUTCOME_FAILED}), "model_call_ended       x, 1 model call, 0 tokens, failed"},
		"provider":    {cites([]string{"a"}, []*agentdv1.ProviderToolUse{{ToolName: "web_search"}}, citation("https://b.example", "B")), "provider_tools_used    a → web_search (by the provider) [1] B https://b.example"},
		"payload":     {raw("body", true), "raw_payload_received   root try 2: openai responded 200, 4 bytes of text/event-stream, cut"},
		"compaction":  {compaction(agentdv1.HistoryCompacted_REASON_SHARE, 0, 0), "history_compacted      root/a a summary stands for the beginning of the conversation: They met."},
		"tool result": {&agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallAnswered{ToolCallAnswered: result}}, "tool_call_answered     look = fine [image/png]"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := cli.EventLine(&out, tc.event); err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(out.String()[28:]); got != tc.want {
				t.Errorf("got\n%q, want\n%q", got, tc.want)
			}
		})
	}
}

// The last line says what is not in the cost.
func TestSummaryOfUnknownPrices(t *testing.T) {
	for name, tc := range map[string]struct {
		cost     float64
		unpriced int32
		want     string
	}{
		"all known":   {0.5, 0, "completed; 3 model calls, 10 tokens, $0.5000, 1s, session s"},
		"some known":  {0.5, 2, "completed; 3 model calls, 10 tokens, ≥ $0.5000 (2 calls unpriced), 1s, session s"},
		"all but one": {0.00001, 1, "completed; 3 model calls, 10 tokens, > $0 (1 call unpriced), 1s, session s"},
		"none known":  {0, 3, "completed; 3 model calls, 10 tokens, price unknown, 1s, session s"},
		"for free":    {0, 0, "completed; 3 model calls, 10 tokens, 1s, session s"},
	} {
		t.Run(name, func(t *testing.T) {
			e := cli.Ending{Session: "s", Took: time.Second, End: &agentdv1.RunResponse_EndResponse{Completed: true, UsageSummary: &agentdv1.UsageSummary{
				LlmCalls: 3, TotalUsage: &agentdv1.TokenUsage{TotalTokens: 10}, EstimatedCost: tc.cost, UnpricedCalls: tc.unpriced,
			}}}
			if got := e.Summary(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// failing takes nothing.
type failing struct{}

var errFull = errors.New("full")

func (failing) Write([]byte) (int, error) { return 0, errFull }

func TestPayloads(t *testing.T) {
	var shown, kept bytes.Buffer
	screen := cli.Payloads{Screen: cli.JSON{Out: &shown}, Out: &kept}
	for _, event := range []*agentdv1.RunResponse{says([]string{"a"}, "x"), raw("one\xff", false), raw("two", true)} {
		if err := screen.Event(event); err != nil {
			t.Fatal(err)
		}
	}
	var bodies []string
	for l := range strings.Lines(kept.String()) {
		var p struct {
			Provider string
			Body     []byte
		}
		if err := json.Unmarshal([]byte(l), &p); err != nil || p.Provider != "openai" {
			t.Fatalf("%v: %s", err, l)
		}
		bodies = append(bodies, string(p.Body))
	}
	if strings.Join(bodies, " ") != "one\xff two" || strings.Count(shown.String(), "\n") != 3 {
		t.Errorf("kept %q, shown %s", bodies, shown.String())
	}
	screen.Out = failing{}
	if err := screen.Event(raw("x", false)); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
}
