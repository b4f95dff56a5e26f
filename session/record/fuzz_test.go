package record_test

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// FuzzDecode reads any record. What decodes encodes to a record that says the same, and can be shown.
func FuzzDecode(f *testing.F) {
	took := &record.Usage{Prompt: 1, Completion: 2, Cached: 1, Thoughts: 1, Total: 3, Calls: 1, Cost: math.MaxInt64}
	path := []string{"root", "a"}
	call := record.ModelCall{Path: path, Model: "m", MessageID: "t/a|#0"}
	for kind, fact := range map[record.Kind]any{
		record.KindTurnQueued: &record.TurnQueued{
			TurnStarted: record.TurnStarted{
				Prompt: "go", Parts: record.Parts{{Content: &agentdv1.Part_Text{Text: "on"}}}, Agent: json.RawMessage(`{"name":"a","llm":{}}`),
				State: map[string]any{"k": json.Number("1e400")}, Budget: record.Budget{Cost: 1}, SessionBudget: &record.Budget{Wall: time.Hour},
			}, Inject: true, Front: true, Into: "t", Ahead: 2,
		},
		record.KindTurnDropped: &record.TurnDropped{Reason: "full", Code: fault.LimitExceeded, Message: "full"},
		record.KindTurnResumed: &record.TurnResumed{},
		record.KindModelRetry:  &record.ModelRetry{MessageID: "t/a|#0", Path: path, Attempt: 1, Wait: time.Second, Code: fault.Unavailable, Usage: took},
		record.KindModelFallback: &record.ModelFallback{
			MessageID: "t/a|#0", Path: path, Model: "m", Next: "n", Code: fault.Unavailable, Message: "down", Usage: took,
		},
		record.KindRawPayload:      &record.RawPayload{MessageID: "t/a|#0", Path: path, Attempt: 1, Provider: "p", Status: 200, Body: []byte{0, 255}, Truncated: true},
		record.KindCompactionAsked: &record.CompactionAsked{Focus: "the plan", By: "ann"},
		record.KindRemoteSession: &agentdv1.RemoteSession{
			AgentPath: path, Backend: "desk", RemoteAgentId: "agent_1", RemoteSessionId: "sesn_1", SpecHash: "ab", Cursor: "sevt_7",
			Terminal: agentdv1.RemoteSession_TERMINAL_TERMINATED, Reason: "gone",
		},
		record.KindClientsLeft: &record.ClientsLeft{CancelAt: time.Unix(1_700_000_000, 1000).UTC()},
		record.KindToolResult: &record.ToolResult{
			CallID: "c", Outcome: record.Returned, Output: new("x"), State: map[string]any{"a": []any{nil, true}}, By: "p",
			Warnings: []record.Warning{{Code: "c", Field: "f", Message: "m"}},
		},
		record.KindTurnEnded: &record.TurnEnded{Reason: "stop", RetryAfter: 1, Limit: &fault.Limit{}, Spoke: [][]string{path}, Receipt: &record.Receipt{
			Aborted: []record.AbortedCall{{ModelCall: call, Ran: 1}}, Cancelled: []record.CallName{{ID: "c", Name: "n"}}, Took: 1,
		}},
	} {
		data, err := json.Marshal(fact)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(kind), data)
	}
	event := func(data []byte) (*record.Event, error) {
		ev := &record.Event{}
		return ev, json.Unmarshal(data, ev)
	}
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		rec := record.Record{Seq: 1, TurnID: "t", Kind: record.Kind(kind), Data: data}
		fact, err := rec.Decode(event)
		if known := rec.Kind.Known(); err != nil || !known {
			if err == nil {
				t.Fatalf("kind %q is not known, and %s decodes", kind, data)
			}
			return
		}
		show(t, fact)
		var encoded [2][]byte
		for i := range encoded {
			if encoded[i], err = json.Marshal(fact); err != nil {
				t.Fatalf("%s decodes, and does not encode: %v", data, err)
			}
			rec.Data = encoded[i]
			if fact, err = rec.Decode(event); err != nil {
				t.Fatalf("%s decodes, and as %s does not: %v", data, encoded[i], err)
			}
		}
		if !bytes.Equal(encoded[0], encoded[1]) {
			t.Fatalf("%s became %s, and then %s", data, encoded[0], encoded[1])
		}
	})
}

// show makes of a fact what others read of it.
func show(t *testing.T, fact any) {
	for _, call := range record.CallsOf(fact) {
		if call.Size() < len(call.Input) {
			t.Fatalf("call %v has %d bytes", call, call.Size())
		}
	}
	switch f := fact.(type) {
	case *record.TurnStarted:
		_, _ = f.ReadSpec() // an error is a result
		f.WithoutParts().Parts.Blank()
	case *record.TurnQueued:
		_, _ = f.ReadSpec()
		_ = f.Parts.Check("user_parts", false)
	case *record.TurnDropped:
		_ = f.End().Failure("t").Error()
	case *record.TurnEnded:
		_ = f.Failure("t").Error()
		if f.Receipt != nil {
			f.Receipt.Proto()
			f.Receipt.Size()
		}
	case *record.ToolResult:
		if !f.Equal(*f) {
			t.Fatalf("result %v is not equal to itself", f)
		}
	case *record.InteractionResolved:
		if res := f.Result(); (res == nil) != (f.Decision == record.Approve) {
			t.Fatalf("resolution %v has result %v", f, res)
		}
	case *record.ModelRetry:
		if f.Usage != nil {
			f.Usage.Add(*f.Usage).Proto()
		}
	case *record.Event:
		f.CallEnded("s")
		f.Unshown()
	}
}
