package cli

import (
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/terminal"
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
	said := line(strings.TrimSpace(strings.Join(who, "/")+"  "+what), 2*maxDetail)
	_, err := fmt.Fprintf(w, "%12d  %s  %-21s  %s\n", event.GetSeq(), at, kind, said)
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
	case *agentdv1.RunResponse_ToolCallAnnounced:
		c := r.ToolCallAnnounced
		return kind, c.GetAgentPath(), c.GetToolName() + " " + c.GetToolInput()
	case *agentdv1.RunResponse_ToolCallUnserved:
		return kind, r.ToolCallUnserved.GetAgentPath(), unserved(r.ToolCallUnserved)
	case *agentdv1.RunResponse_ToolCallAnswered:
		a := r.ToolCallAnswered
		if a.GetError() != "" {
			return kind, a.GetAgentPath(), a.GetToolName() + " failed: " + a.GetError()
		}
		return kind, a.GetAgentPath(), a.GetToolName() + " = " + line(a.GetOutput(), maxDetail) + files(a.GetParts())
	case *agentdv1.RunResponse_MessageCompleted:
		return kind, r.MessageCompleted.GetAgentPath(), said(r.MessageCompleted)
	case *agentdv1.RunResponse_AgentStarted:
		return kind, r.AgentStarted.GetAgentPath(), agentOf(r.AgentStarted)
	case *agentdv1.RunResponse_AgentEnded:
		return kind, r.AgentEnded.GetAgentPath(), enumName(r.AgentEnded.GetOutcome().String(), "OUTCOME_")
	case *agentdv1.RunResponse_RemoteSession:
		return kind, r.RemoteSession.GetAgentPath(), remoteSession(r.RemoteSession)
	case *agentdv1.RunResponse_Transferred:
		return kind, r.Transferred.GetAgentPath(), "to " + strings.Join(r.Transferred.GetToAgentPath(), "/")
	case *agentdv1.RunResponse_MessageInjected:
		return kind, nil, line(r.MessageInjected.GetUserPrompt(), maxDetail) + files(r.MessageInjected.GetUserParts())
	case *agentdv1.RunResponse_ModelCallFellBack:
		f := r.ModelCallFellBack
		return kind, f.GetAgentPath(), fellBack(f) + ": " + f.GetMessage()
	case *agentdv1.RunResponse_ModelCallEnded:
		return kind, r.ModelCallEnded.GetAgentPath(), callEnded(r.ModelCallEnded)
	case *agentdv1.RunResponse_ProviderToolsUsed:
		return kind, r.ProviderToolsUsed.GetAgentPath(), printed(event)
	case *agentdv1.RunResponse_RawPayloadReceived:
		return kind, r.RawPayloadReceived.GetAgentPath(), payload(r.RawPayloadReceived)
	case *agentdv1.RunResponse_HistoryCompacted:
		c := r.HistoryCompacted
		return kind, c.GetAgentPath(), compacted(c) + ": " + c.GetSummary()
	case *agentdv1.RunResponse_InteractionRequested:
		in := r.InteractionRequested.GetInteraction()
		return kind, in.GetAgentPath(), asks(in)
	case *agentdv1.RunResponse_InteractionResolved:
		in := r.InteractionResolved.GetInteraction()
		return kind, in.GetAgentPath(), terminal.Outcome(client.InteractionOf(in))
	case *agentdv1.RunResponse_Error:
		return kind, nil, codeName(r.Error.GetCode()) + ": " + r.Error.GetMessage()
	case *agentdv1.RunResponse_End:
		how := "completed"
		if !r.End.GetCompleted() {
			how = "not completed " + r.End.GetReason()
		}
		return kind, nil, how + "; " + usage(ended(r.End))
	case *agentdv1.RunResponse_StateUpdate_:
		text := r.StateUpdate.GetStateDeltaJson()
		if text == "" {
			text = jsonOr(r.StateUpdate.GetStateDelta())
		}
		return kind, nil, text
	}
	if fd := m.WhichOneof(of); fd != nil { // the others in the protocol's words
		what = jsonOr(m.Get(fd).Message().Interface())
	}
	return kind, nil, what
}

// printed is an event as a terminal shows it.
func printed(event *agentdv1.RunResponse) string {
	var out strings.Builder
	p := terminal.Printer{Out: &out}
	_ = p.Print(client.EventOf(event)) // a Builder takes everything
	return out.String()
}

// jsonOr is a message as JSON, or why there is none.
func jsonOr(m proto.Message) string {
	text, err := compact(m)
	if err != nil {
		return err.Error()
	}
	return text
}

// agentOf tells what an agent is.
func agentOf(m *agentdv1.AgentStarted) string {
	what := enumName(m.GetKind().String(), "AGENT_KIND_")
	if m.GetModel() != "" {
		what += " " + m.GetModel()
	}
	return what
}

// enumName is completed for OUTCOME_COMPLETED.
func enumName(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }

// said tells how much a message says.
func said(m *agentdv1.MessageCompleted) string {
	text := number(m.GetTextBytes()) + " bytes of text"
	if n := m.GetThoughtBytes(); n > 0 {
		text += ", " + number(n) + " bytes of thoughts"
	}
	return text
}
