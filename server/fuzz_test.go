package server

import (
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/jsondiff"
	"github.com/apzuk3/agentd/internal/protorules"
)

// Whatever a client sends is refused with a message that can be sent, or
// translated, and never a panic.
func FuzzMessage(f *testing.F) {
	output := "x"
	for _, m := range []*agentdv1.RunRequest{
		{},
		{Request: &agentdv1.RunRequest_Execute{Execute: &agentdv1.RunRequest_ExecuteRequest{
			Agent: &agentdv1.Agent{Name: "a", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{McpAttachments: []*agentdv1.McpAttachment{{}}}}},
			Tools: []*agentdv1.Tool{{Name: "no spaces"}}, SessionId: &output,
		}}},
		{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: &agentdv1.RunRequest_ToolCallResponse{ToolCallId: "c"}}},
		{Request: &agentdv1.RunRequest_Cancel{Cancel: &agentdv1.RunRequest_CancelRequest{ToolCallId: new(string)}}},
		{Request: &agentdv1.RunRequest_End{End: &agentdv1.RunRequest_EndRequest{Reason: &output}}},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, false)
	}
	f.Add([]byte(`{"execute":{"initialState":{"a":{"b":[1e999,null]}}}}`), true)
	f.Add([]byte(`{"execute":{"initialStateJson":"{\"a\":[1e999,null,\"\\\\ud83d\\\\ude00\"]}"}}`), true)
	f.Add([]byte(`{"toolCallResponse":{"toolCallId":"c","stateDelta":{},"stateDeltaJson":"{\"a\":{\"b\":1,\"b\":2}}"}}`), true)
	f.Add([]byte(`{"heartbeat":{"sessionId":"\ud800"}}`), true)
	f.Add([]byte(`{"execute":{"agent":{"llm":{"tools":[{"name":"t","description":"d"},"u"]}},"tools":[{"name":"t"}]}}`), true)
	inline := &agentdv1.LlmAgent{ToolNames: []string{"\n\x01t\x12\x01d", "u"}} // the first one is a Tool
	if data, err := proto.Marshal(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: &agentdv1.RunRequest_ExecuteRequest{
		Agent: &agentdv1.Agent{AgentType: &agentdv1.Agent_Llm{Llm: inline}},
	}}}); err == nil {
		f.Add(data, false)
	}
	rules, err := protorules.Protocol()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte, json bool) {
		msg := &agentdv1.RunRequest{}
		var err error
		if json {
			err = jsonCodec{}.Unmarshal(data, msg)
		} else {
			err = binaryCodec{}.Unmarshal(data, msg)
		}
		e := check(rules, msg)
		switch {
		case err != nil:
			e = receiveError(err, 1<<20)
			if !inStep(err) {
				t.Errorf("a message that was read whole must not end the stream: %v", err)
			}
		case e != nil:
		case msg.GetExecute() != nil:
			_, e = requestOf(msg.GetExecute(), http.Header{})
		case msg.GetToolCallResponse() != nil:
			_, e = toolResultOf(msg.GetToolCallResponse(), new(maxValues))
		}
		if e == nil {
			return
		}
		if e.Code == codeInternal {
			t.Errorf("a client's mistake is no fault of ours: %v (%v)", e, e.Err)
		}
		for _, c := range []interface{ Marshal(any) ([]byte, error) }{binaryCodec{}, jsonCodec{}} {
			if _, err := c.Marshal(errorResponse("session", e)); err != nil {
				t.Errorf("the refusal cannot be sent: %v", err)
			}
		}
	})
}

// The largest message that gets in costs a bounded time to check.
func BenchmarkCheckLargestTree(b *testing.B) {
	rules, err := protorules.Protocol()
	if err != nil {
		b.Fatal(err)
	}
	root := &agentdv1.SequentialAgent{}
	for range 400_000 { // about 4 MiB on the wire
		root.Agents = append(root.Agents, &agentdv1.Agent{Name: "a", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{}}})
	}
	msg := &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: &agentdv1.RunRequest_ExecuteRequest{
		Agent: &agentdv1.Agent{Name: "root", AgentType: &agentdv1.Agent_Sequential{Sequential: root}},
	}}}
	b.SetBytes(int64(proto.Size(msg)))
	for b.Loop() {
		if e := check(rules, msg); e != nil {
			b.Fatal(e)
		}
	}
}

// The call of a result is found in any beginning of it that holds the ids; anything
// else yields nothing and causes no panic.
func FuzzResultHead(f *testing.F) {
	f.Add("s", "c", uint16(40), []byte("x"))
	f.Add("", "call", uint16(3), []byte(`{"toolCallResponse":[{"toolCallId":"no"}],"tool_call_response":{"toolCallId":{"a":1}}}`))
	f.Fuzz(func(t *testing.T, sessionID, callID string, cut uint16, noise []byte) {
		_, _ = resultOfEnvelope(noise)
		if of, ok := resultHeadOf(noise); ok && of.callID == "" {
			t.Errorf("found %+v", of)
		}
		if !utf8.ValidString(sessionID) || !utf8.ValidString(callID) {
			return
		}
		m := &agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: &agentdv1.RunRequest_ToolCallResponse{
			SessionId: sessionID, ToolCallId: callID, Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: strings.Repeat("x", 2000)},
		}}}
		binary, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		text, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		for _, data := range [][]byte{binary, text} {
			if of, ok := resultHeadOf(data[:min(int(cut), len(data))]); ok && of != (resultHead{sessionID, callID}) {
				t.Errorf("found %+v in %.300q", of, data)
			}
			if of, ok := resultHeadOf(data[:len(data)-1000]); ok != (callID != "") || ok && of.callID != callID {
				t.Errorf("found %+v in %.300q", of, data)
			}
		}
	})
}

// JSON text is read as it is; refused text is no JSON, or nothing that a caller may
// send.
func FuzzJSONText(f *testing.F) {
	for _, seed := range []string{`{"a":[1e400,-0.0,9007199254740993,"\ud83d\ude00","\\ud800"],"b":{}}`, `{"a":1,"a":2}`, `[}`, `{"a"}`, `1 2`, `"\ud800\u0041"`, `"\udc00"`, `{"":null`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, e := jsonText("field", text, new(maxValues))
		if e != nil {
			if len(e.Violations) != 1 || e.Violations[0].Field != "field" {
				t.Errorf("%v names %v", e, e.Violations)
			}
			return
		}
		want, err := jsondiff.Decode([]byte(text))
		if err != nil {
			t.Fatalf("%q is taken: %v", text, err)
		}
		if d := jsondiff.First(want, got); d != nil {
			t.Errorf("%q: %v", text, d)
		}
	})
}
