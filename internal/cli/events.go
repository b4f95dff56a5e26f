package cli

import (
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// EventLine writes an event on a line: its place, its time, its kind, and what it
// says.
func EventLine(w io.Writer, event *agentdv1.RunResponse) error {
	at := "            "
	if event.GetTime() != nil {
		at = event.GetTime().AsTime().Local().Format("15:04:05.000")
	}
	kind, who, what := eventParts(event)
	_, err := fmt.Fprintf(w, "%12d  %s  %-21s  %s\n", event.GetSeq(), at, kind, line(strings.TrimSpace(strings.Join(who, "/")+"  "+what), 2*maxDetail))
	return err
}

// eventParts is an event's kind, agent and content.
func eventParts(event *agentdv1.RunResponse) (kind string, who []string, what string) {
	m := event.ProtoReflect()
	of := m.Descriptor().Oneofs().ByName("response")
	if fd := m.WhichOneof(of); fd != nil {
		kind = string(fd.Name())
	}
	switch r := event.GetResponse().(type) {
	case *agentdv1.RunResponse_OutputChunk_:
		c := r.OutputChunk
		if c.GetIsThought() {
			kind = "thought"
		}
		if c.GetContent() == "" {
			return kind, c.GetAgentPath(), "(last)"
		}
		return kind, c.GetAgentPath(), fmt.Sprintf("%q", c.GetContent())
	case *agentdv1.RunResponse_ToolCall:
		return kind, r.ToolCall.GetAgentPath(), r.ToolCall.GetToolName() + " " + r.ToolCall.GetToolInput()
	case *agentdv1.RunResponse_ToolCallNotice_:
		return kind, r.ToolCallNotice.GetAgentPath(), r.ToolCallNotice.GetToolName() + " " + r.ToolCallNotice.GetToolInput()
	case *agentdv1.RunResponse_ToolCallUnserved_:
		return kind, r.ToolCallUnserved.GetAgentPath(), unserved(r.ToolCallUnserved)
	case *agentdv1.RunResponse_ToolResult_:
		if r.ToolResult.GetError() != "" {
			return kind, r.ToolResult.GetAgentPath(), r.ToolResult.GetToolName() + " failed: " + r.ToolResult.GetError()
		}
		return kind, r.ToolResult.GetAgentPath(), r.ToolResult.GetToolName() + " = " + line(r.ToolResult.GetOutput(), maxDetail) + files(r.ToolResult.GetParts())
	case *agentdv1.RunResponse_UserMessage_:
		return kind, nil, line(r.UserMessage.GetContent(), maxDetail) + files(r.UserMessage.GetParts())
	case *agentdv1.RunResponse_ModelFallback_:
		return kind, r.ModelFallback.GetAgentPath(), fellBack(r.ModelFallback) + ": " + r.ModelFallback.GetMessage()
	case *agentdv1.RunResponse_ModelCallEnded_:
		return kind, r.ModelCallEnded.GetAgentPath(), callEnded(r.ModelCallEnded)
	case *agentdv1.RunResponse_ProviderTools_:
		return kind, r.ProviderTools.GetAgentPath(), provided(r.ProviderTools)
	case *agentdv1.RunResponse_RawPayload_:
		return kind, r.RawPayload.GetAgentPath(), payload(r.RawPayload)
	case *agentdv1.RunResponse_HistoryCompacted_:
		return kind, r.HistoryCompacted.GetAgentPath(), compacted(r.HistoryCompacted) + ": " + r.HistoryCompacted.GetSummary()
	case *agentdv1.RunResponse_InteractionRequested_:
		return kind, r.InteractionRequested.GetInteraction().GetAgentPath(), asks(r.InteractionRequested.GetInteraction())
	case *agentdv1.RunResponse_InteractionResolved_:
		return kind, r.InteractionResolved.GetInteraction().GetAgentPath(), resolution(r.InteractionResolved.GetInteraction())
	case *agentdv1.RunResponse_Error:
		return kind, nil, codeName(r.Error.GetCode()) + ": " + r.Error.GetMessage()
	case *agentdv1.RunResponse_End:
		how := "completed"
		if !r.End.GetCompleted() {
			how = "not completed " + r.End.GetReason()
		}
		return kind, nil, how + "; " + usage(r.End.GetUsageSummary())
	case *agentdv1.RunResponse_StateUpdate_:
		return kind, nil, jsonOr(r.StateUpdate.GetStateDelta())
	}
	if fd := m.WhichOneof(of); fd != nil { // the others in the protocol's words
		what = jsonOr(m.Get(fd).Message().Interface())
	}
	return kind, nil, what
}

// jsonOr is a message as JSON, or why there is none.
func jsonOr(m proto.Message) string {
	text, err := compact(m)
	if err != nil {
		return err.Error()
	}
	return text
}
