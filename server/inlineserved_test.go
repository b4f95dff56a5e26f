package server_test

import (
	"context"
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
)

// A client of the oldest form is asked for the tools that its agents define.
func TestOldestClientIsAskedForItsTools(t *testing.T) {
	f := serve(t, engine{run: func(ctx context.Context, run *session.Run) error {
		_, err := ask(ctx, run, "c1")
		return err
	}}, server.Config{})
	inline := marshal(t, &agentdv1.Tool{Name: "tool", Description: "A tool."})
	old := execute().GetExecute()
	old.Tools = nil
	old.GetAgent().GetLlm().ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), inline))
	for form, first := range map[string][]byte{
		"binary": marshal(t, &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: old}}),
		"JSON":   []byte(`{"execute":{"agent":{"name":"root","llm":{"model":"echo","tools":[{"name":"tool","description":"A tool."}]}},"userPrompt":"go"}}`),
	} {
		t.Run(form, func(t *testing.T) {
			s := f.rawStream(t, json.Valid(first))
			defer s.close()
			s.write(0, first)
			call := s.until(isCall).GetToolCall()
			s.write(0, s.encode(toolResult(call.GetToolCallId(), "yes")))
			if end := s.until(isEnd).GetEnd(); !end.GetCompleted() {
				t.Errorf("got %v, want a completed turn", end)
			}
		})
	}
}
