package server

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Each event that the protocol has can be shown, and says so of itself alone.
func TestEveryEventIsDisplayed(t *testing.T) {
	members := (&agentdv1.RunResponse{}).ProtoReflect().Descriptor().Oneofs().ByName("response").Fields()
	if members.Len() == 0 {
		t.Fatal("the oneof has no members")
	}
	for i := range members.Len() {
		member := members.Get(i)
		m := &agentdv1.RunResponse{Seq: 1, TurnId: "e-1"}
		fill(m.ProtoReflect().Mutable(member).Message())
		before := proto.CloneOf(m)
		d := displayOf(m)
		if d.GetKind() == 0 || d.GetPhase() == 0 || d.GetVisibility() == 0 {
			t.Errorf("%s is shown as %v", member.Name(), d)
		}
		if _, id, ok := strings.Cut(d.GetRef(), ":"); d.GetRef() != refStream && (!ok || id == "") {
			t.Errorf("%s has the ref %q", member.Name(), d.GetRef())
		}
		if !proto.Equal(m, before) || !proto.Equal(d, displayOf(m)) {
			t.Errorf("%s: to show an event changes it", member.Name())
		}
	}
	if d := displayOf(&agentdv1.RunResponse{}); d != nil {
		t.Errorf("an event without a member is shown as %v", d)
	}
}

// What is said of how an event may be shown is no multiple of the event.
func TestDisplaysAreSmall(t *testing.T) {
	members := (&agentdv1.RunResponse{}).ProtoReflect().Descriptor().Oneofs().ByName("response").Fields()
	for i := range members.Len() {
		m := &agentdv1.RunResponse{Seq: 1, TurnId: "e-1"}
		fillWith(m.ProtoReflect().Mutable(members.Get(i)).Message(), 1000)
		if event, display := proto.Size(m), proto.Size(displayOf(m)); display > event+64 {
			t.Errorf("%s takes %d bytes, how it is shown %d", members.Get(i).Name(), event, display)
		}
	}
}

// fill sets the texts of a message, and of those in it, to their names.
func fill(m protoreflect.Message) { fillWith(m, 1) }

// fillWith sets the texts to so many times their names.
func fillWith(m protoreflect.Message, times int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap():
		case f.IsList():
			switch list := m.Mutable(f).List(); {
			case f.Kind() == protoreflect.StringKind:
				list.Append(protoreflect.ValueOfString(strings.Repeat(string(f.Name()), times)))
			case f.Message() != nil && strings.HasPrefix(string(f.Message().FullName()), "agentd."):
				fillWith(list.AppendMutable().Message(), times)
			}
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(strings.Repeat(string(f.Name()), times)))
		case f.Message() != nil && strings.HasPrefix(string(f.Message().FullName()), "agentd."):
			fillWith(m.Mutable(f).Message(), times)
		}
	}
}

func chunkEvent(c *agentdv1.RunResponse_OutputChunk) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Seq: 1, TurnId: "e-1", Response: &agentdv1.RunResponse_OutputChunk_{OutputChunk: c}}
}

func endEvent(e *agentdv1.RunResponse_EndResponse) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Seq: 1, TurnId: "e-1", Response: &agentdv1.RunResponse_End{End: e}}
}

func noticeEvent(input string) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Seq: 1, TurnId: "e-1", Response: &agentdv1.RunResponse_ToolCallAnnounced{
		ToolCallAnnounced: &agentdv1.ToolCallAnnounced{ToolCallId: "c1", ToolName: "look", ToolInput: input},
	}}
}

func callEvent() *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Seq: 1, TurnId: "e-1", Response: &agentdv1.RunResponse_ToolCall{
		ToolCall: &agentdv1.RunResponse_ToolCallRequest{ToolCallId: "c1", ToolName: "look", ToolInput: "{}"},
	}}
}

func outputEvent(output string) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Seq: 1, TurnId: "e-1", Response: &agentdv1.RunResponse_ToolCallAnswered{ToolCallAnswered: &agentdv1.ToolCallAnswered{
		ToolCallId: "c1", Result: &agentdv1.ToolCallAnswered_Output{Output: output},
	}}}
}

func partsEvent() *agentdv1.RunResponse {
	m := outputEvent("")
	m.GetToolCallAnswered().Parts = []*agentdv1.Part{{Content: &agentdv1.Part_Text{Text: "fog"}}}
	return m
}

func failureEvent(text string) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Seq: 1, TurnId: "e-1", Response: &agentdv1.RunResponse_ToolCallAnswered{ToolCallAnswered: &agentdv1.ToolCallAnswered{
		ToolCallId: "c1", Result: &agentdv1.ToolCallAnswered_Error{Error: text},
	}}}
}

func resolvedEvent(status agentdv1.InteractionStatus) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Seq: 1, TurnId: "e-1", Response: &agentdv1.RunResponse_InteractionResolved{
		InteractionResolved: &agentdv1.InteractionResolved{Interaction: &agentdv1.Interaction{Id: "c1", Status: status}},
	}}
}

func retractEvent(id string) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Seq: 1, TurnId: "e-1", Response: &agentdv1.RunResponse_MessageRetracted{
		MessageRetracted: &agentdv1.MessageRetracted{MessageId: id},
	}}
}

func fallbackEvent(id string) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Seq: 1, TurnId: "e-1", Response: &agentdv1.RunResponse_ModelCallFellBack{
		ModelCallFellBack: &agentdv1.ModelCallFellBack{MessageId: id, AgentPath: []string{"root", "a"}},
	}}
}

func callOverEvent(id string, outcome agentdv1.ModelCallEnded_Outcome) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Seq: 1, TurnId: "e-1", Response: &agentdv1.RunResponse_ModelCallEnded{
		ModelCallEnded: &agentdv1.ModelCallEnded{MessageId: id, AgentPath: []string{"root", "a"}, Outcome: outcome},
	}}
}

func errorEvent(seq int64) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Seq: seq, TurnId: "e-1", Response: &agentdv1.RunResponse_Error{Error: &agentdv1.RunResponse_ErrorResponse{}}}
}

// What one member shows differs by what it holds.
func TestDisplay(t *testing.T) {
	path := []string{"root", "a"}
	for name, tc := range map[string]struct {
		event *agentdv1.RunResponse
		want  *agentdv1.Display
	}{
		"text":                {chunkEvent(&agentdv1.RunResponse_OutputChunk{MessageId: "e-1/m", AgentPath: path, Content: "hi"}), shown(kindText, phaseDelta, "message:e-1/m", public)},
		"thought":             {chunkEvent(&agentdv1.RunResponse_OutputChunk{MessageId: "e-1/m", AgentPath: path, Content: "hm", IsThought: true}), shown(kindReasoning, phaseDelta, "reasoning:e-1/m", private)},
		"closing":             {chunkEvent(&agentdv1.RunResponse_OutputChunk{AgentPath: path, Last: true}), shown(kindText, phaseCompleted, "agent:root/a", public)},
		"last text":           {chunkEvent(&agentdv1.RunResponse_OutputChunk{MessageId: "e-1/m", AgentPath: path, Content: "hi", Last: true}), shown(kindText, phaseDelta, "message:e-1/m", public)},
		"call":                {callEvent(), shown(kindTool, phaseStarted, "tool:c1", private)},
		"notice":              {noticeEvent("{}"), shown(kindTool, phaseStarted, "tool:c1", private)},
		"notice, withheld":    {noticeEvent(""), shown(kindTool, phaseStarted, "tool:c1", public)},
		"output":              {outputEvent("fog"), shown(kindTool, phaseCompleted, "tool:c1", private)},
		"parts":               {partsEvent(), shown(kindTool, phaseCompleted, "tool:c1", private)},
		"output, withheld":    {outputEvent(""), shown(kindTool, phaseCompleted, "tool:c1", public)},
		"failure":             {failureEvent("no"), shown(kindTool, phaseFailed, "tool:c1", private)},
		"failure, withheld":   {failureEvent(""), shown(kindTool, phaseFailed, "tool:c1", public)},
		"resolved":            {resolvedEvent(agentdv1.InteractionStatus_INTERACTION_STATUS_RESOLVED), shown(kindInteraction, phaseResolved, "interaction:c1", public)},
		"canceled":            {resolvedEvent(agentdv1.InteractionStatus_INTERACTION_STATUS_CANCELED), shown(kindInteraction, phaseCanceled, "interaction:c1", public)},
		"retract":             {retractEvent("e-1/m"), shown(kindText, phaseCanceled, "message:e-1/m", public)},
		"retract of all":      {retractEvent(""), shown(kindText, phaseCanceled, "message:*", public)},
		"fallback":            {fallbackEvent("e-1/m"), shown(kindError, phaseProgress, "message:e-1/m", private)},
		"fallback, summary":   {fallbackEvent(""), shown(kindError, phaseProgress, "agent:root/a", private)},
		"agent started":       {agentEvent("m", 0), shown(kindStatus, phaseStarted, "agent:root/a", private)},
		"agents started":      {agentEvent("", 0), shown(kindStatus, phaseStarted, "agent:root/a", public)},
		"agent ended":         {agentEvent("", agentdv1.AgentEnded_OUTCOME_TRANSFERRED), shown(kindStatus, phaseCompleted, "agent:root/a", public)},
		"agent failed":        {agentEvent("", agentdv1.AgentEnded_OUTCOME_FAILED), shown(kindStatus, phaseFailed, "agent:root/a", public)},
		"agent canceled":      {agentEvent("", agentdv1.AgentEnded_OUTCOME_CANCELED), shown(kindStatus, phaseCanceled, "agent:root/a", public)},
		"answered":            {callOverEvent("e-1/m", agentdv1.ModelCallEnded_OUTCOME_ANSWERED), shown(kindStatus, phaseCompleted, "call:e-1/m", private)},
		"summarised":          {callOverEvent("", agentdv1.ModelCallEnded_OUTCOME_SUMMARIZED), shown(kindStatus, phaseProgress, "agent:root/a", private)},
		"call failed":         {callOverEvent("", agentdv1.ModelCallEnded_OUTCOME_FAILED), shown(kindStatus, phaseProgress, "agent:root/a", private)},
		"error of the turn":   {errorEvent(9), shown(kindError, phaseFailed, "turn:e-1", public)},
		"error of the stream": {errorEvent(0), shown(kindError, phaseFailed, "stream", public)},
		"completed":           {endEvent(&agentdv1.RunResponse_EndResponse{Completed: true}), shown(kindStatus, phaseCompleted, "turn:e-1", public)},
		"stopped":             {endEvent(&agentdv1.RunResponse_EndResponse{Receipt: &agentdv1.CancelReceipt{}}), shown(kindStatus, phaseCanceled, "turn:e-1", public)},
		"failed":              {endEvent(&agentdv1.RunResponse_EndResponse{Reason: new("why")}), shown(kindStatus, phaseFailed, "turn:e-1", public)},
	} {
		if got := displayOf(tc.event); !proto.Equal(got, tc.want) {
			t.Errorf("%s is shown as %v, want %v", name, got, tc.want)
		}
	}
}

// agentEvent is the end of an agent with an outcome, and the start of one without.
func agentEvent(model string, outcome agentdv1.AgentEnded_Outcome) *agentdv1.RunResponse {
	path := []string{"root", "a"}
	if outcome == 0 {
		return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_AgentStarted{AgentStarted: &agentdv1.AgentStarted{AgentPath: path, Model: model}}}
	}
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_AgentEnded{AgentEnded: &agentdv1.AgentEnded{AgentPath: path, Outcome: outcome}}}
}

// What a filter lets through holds nothing of what it is to hide, and shows as
// what it lets through.
func TestFilterOfEveryEvent(t *testing.T) {
	withheld := []string{"tool_call_announced", "tool_call_answered", "agent_started"}
	members := (&agentdv1.RunResponse{}).ProtoReflect().Descriptor().Oneofs().ByName("response").Fields()
	for i := range members.Len() {
		member := members.Get(i)
		for _, only := range []agentdv1.Display_Visibility{everything, public, private} {
			m := &agentdv1.RunResponse{Seq: 1, TurnId: "e-1"}
			fill(m.ProtoReflect().Mutable(member).Message())
			whole := proto.CloneOf(m)
			see := view{display: true, only: only}
			if !see.keep(m) {
				if only == everything || displayOf(m).GetVisibility() == only {
					t.Errorf("%s does not pass the filter %v", member.Name(), only)
				}
				continue
			}
			see.apply(m)
			shown := m.GetDisplay().GetVisibility()
			m.Display = nil
			if changed := !proto.Equal(m, whole); changed != (only == public && slices.Contains(withheld, string(member.Name()))) {
				t.Errorf("%s has passed the filter %v as %v", member.Name(), only, m)
			}
			if only == public && shown != public && member.Name() != "tool_call" {
				t.Errorf("%s passes the filter %v and is %v", member.Name(), only, shown)
			}
		}
	}
}
