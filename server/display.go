package server

import (
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

const (
	kindText        = agentdv1.Display_KIND_TEXT
	kindReasoning   = agentdv1.Display_KIND_REASONING
	kindTool        = agentdv1.Display_KIND_TOOL
	kindInteraction = agentdv1.Display_KIND_INTERACTION
	kindStatus      = agentdv1.Display_KIND_STATUS
	kindError       = agentdv1.Display_KIND_ERROR

	phaseDelta     = agentdv1.Display_PHASE_DELTA
	phaseCompleted = agentdv1.Display_PHASE_COMPLETED
	phaseStarted   = agentdv1.Display_PHASE_STARTED
	phaseProgress  = agentdv1.Display_PHASE_PROGRESS
	phaseFailed    = agentdv1.Display_PHASE_FAILED
	phaseRequested = agentdv1.Display_PHASE_REQUESTED
	phaseResolved  = agentdv1.Display_PHASE_RESOLVED
	phaseCanceled  = agentdv1.Display_PHASE_CANCELED

	everything = agentdv1.Display_VISIBILITY_UNSPECIFIED
	public     = agentdv1.Display_VISIBILITY_PUBLIC
	private    = agentdv1.Display_VISIBILITY_PRIVATE
)

// The part of a ref before the colon; an id of the event follows it.
const (
	refMessage     = "message:"     // what an agent says; the thoughts of the same message have a ref of their own
	refReasoning   = "reasoning:"   // what the model thinks while it writes a message
	refAgent       = "agent:"       // an agent, by its path: all that it says in the turn
	refTool        = "tool:"        // a tool call
	refInteraction = "interaction:" // a question to a person
	refTurn        = "turn:"        // the turn itself
	refModelCall   = "call:"        // a model call, by its message
	refGoal        = "goal:"        // a goal of the session; without an id a message for it
	// refStream is the ref of an event about the stream, not about a turn.
	refStream = "stream"
	// everyMessage follows refMessage where all unfinished messages are meant.
	everyMessage = "*"
)

// displayOf returns how a user interface may show an event, nil for an event that the
// protocol does not have. It depends on the event alone.
//
// A text has deltas. The event that says so completes it, or the turn's end. The chunk
// that closes an agent completes all that the agent says. The retract of a message voids
// its reasoning too. A tool call, and the start of an agent, is private because of the
// arguments, the result or the model that the event holds; without them (see withhold)
// it is public.
func displayOf(m *agentdv1.RunResponse) *agentdv1.Display {
	turn := refTurn + m.GetTurnId()
	switch r := m.GetResponse().(type) {
	case *agentdv1.RunResponse_Execute:
		return shown(kindStatus, phaseStarted, turn, public)
	case *agentdv1.RunResponse_Heartbeat:
		return shown(kindStatus, phaseProgress, refStream, public)
	case *agentdv1.RunResponse_TurnQueued:
		return shown(kindStatus, phaseProgress, turn, public)
	case *agentdv1.RunResponse_StateUpdate_:
		return shown(kindStatus, phaseProgress, turn, private)
	case *agentdv1.RunResponse_End:
		return shown(kindStatus, phaseOfEnd(r.End), turn, public)
	case *agentdv1.RunResponse_Error:
		if m.GetSeq() == 0 {
			turn = refStream
		}
		return shown(kindError, phaseFailed, turn, public)
	case *agentdv1.RunResponse_ModelCallRetried:
		return shown(kindError, phaseProgress, refMessage+r.ModelCallRetried.GetMessageId(), private)
	case *agentdv1.RunResponse_ModelCallFellBack:
		return shown(kindError, phaseProgress, refOfCall(refMessage, r.ModelCallFellBack), private)
	case *agentdv1.RunResponse_ModelCallEnded:
		return shown(kindStatus, phaseOfCall(r.ModelCallEnded), refOfCall(refModelCall, r.ModelCallEnded), private)
	case *agentdv1.RunResponse_HistoryCompacted:
		return shown(kindStatus, phaseProgress, refAgent+strings.Join(r.HistoryCompacted.GetAgentPath(), "/"), private)
	case *agentdv1.RunResponse_RemoteSession:
		return shown(kindStatus, phaseProgress, refAgent+strings.Join(r.RemoteSession.GetAgentPath(), "/"), private)
	case *agentdv1.RunResponse_Goal:
		return shown(kindStatus, phaseOfGoal(r.Goal), refGoal+r.Goal.GetGoalId(), private)
	case *agentdv1.RunResponse_RawPayloadReceived:
		return shown(kindStatus, phaseProgress, refModelCall+r.RawPayloadReceived.GetMessageId(), private)
	case *agentdv1.RunResponse_ProviderToolsUsed:
		return shown(kindTool, phaseCompleted, refTool+r.ProviderToolsUsed.GetMessageId(), public)
	case *agentdv1.RunResponse_OutputChunk_:
		return displayOfChunk(r.OutputChunk)
	case *agentdv1.RunResponse_MessageCompleted:
		if r.MessageCompleted.GetTextBytes() == 0 {
			return shown(kindReasoning, phaseCompleted, refReasoning+r.MessageCompleted.GetMessageId(), private)
		}
		return shown(kindText, phaseCompleted, refMessage+r.MessageCompleted.GetMessageId(), public)
	case *agentdv1.RunResponse_Transferred:
		return shown(kindStatus, phaseProgress, refAgent+strings.Join(r.Transferred.GetAgentPath(), "/"), public)
	case *agentdv1.RunResponse_AgentStarted:
		return shown(kindStatus, phaseStarted, refAgent+strings.Join(r.AgentStarted.GetAgentPath(), "/"),
			visibilityOf(r.AgentStarted.GetModel()))
	case *agentdv1.RunResponse_AgentEnded:
		return shown(kindStatus, phaseOfAgent(r.AgentEnded), refAgent+strings.Join(r.AgentEnded.GetAgentPath(), "/"),
			public)
	case *agentdv1.RunResponse_MessageInjected:
		return shown(kindText, phaseCompleted, refMessage+r.MessageInjected.GetQueuedTurnId(), public)
	case *agentdv1.RunResponse_MessageRetracted:
		id := r.MessageRetracted.GetMessageId()
		if id == "" {
			id = everyMessage
		}
		return shown(kindText, phaseCanceled, refMessage+id, public)
	case *agentdv1.RunResponse_ToolCall:
		return shown(kindTool, phaseStarted, refTool+r.ToolCall.GetToolCallId(),
			visibilityOf(r.ToolCall.GetToolInput()))
	case *agentdv1.RunResponse_ToolCallAnnounced:
		return shown(kindTool, phaseStarted, refTool+r.ToolCallAnnounced.GetToolCallId(),
			visibilityOf(r.ToolCallAnnounced.GetToolInput()))
	case *agentdv1.RunResponse_ToolCallUnserved:
		return shown(kindTool, phaseProgress, refTool+r.ToolCallUnserved.GetToolCallId(), public)
	case *agentdv1.RunResponse_ToolCallCanceled:
		return shown(kindTool, phaseCanceled, refTool+r.ToolCallCanceled.GetToolCallId(), public)
	case *agentdv1.RunResponse_ToolCallAnswered:
		phase := phaseCompleted
		if _, failed := r.ToolCallAnswered.GetResult().(*agentdv1.ToolCallAnswered_Error); failed {
			phase = phaseFailed
		}
		visibility := visibilityOf(r.ToolCallAnswered.GetOutput() + r.ToolCallAnswered.GetError())
		if len(r.ToolCallAnswered.GetParts()) > 0 {
			visibility = private
		}
		return shown(kindTool, phase, refTool+r.ToolCallAnswered.GetToolCallId(), visibility)
	case *agentdv1.RunResponse_InteractionRequested:
		return shown(kindInteraction, phaseRequested, refInteraction+r.InteractionRequested.GetInteraction().GetId(),
			public)
	case *agentdv1.RunResponse_InteractionResolved:
		phase := phaseResolved
		status := r.InteractionResolved.GetInteraction().GetStatus()
		if status == agentdv1.InteractionStatus_INTERACTION_STATUS_CANCELED {
			phase = phaseCanceled
		}
		return shown(kindInteraction, phase, refInteraction+r.InteractionResolved.GetInteraction().GetId(), public)
	default:
		return nil
	}
}

func shown(
	kind agentdv1.Display_Kind, phase agentdv1.Display_Phase, ref string, visibility agentdv1.Display_Visibility,
) *agentdv1.Display {
	return &agentdv1.Display{Kind: kind, Phase: phase, Ref: ref, Visibility: visibility}
}

// refOfCall returns the ref of an event about a model call: its message, or its agent
// if the call has no message, such as one for a summary.
func refOfCall(kind string, m interface {
	GetMessageId() string
	GetAgentPath() []string
},
) string {
	if id := m.GetMessageId(); id != "" {
		return kind + id
	}
	return refAgent + strings.Join(m.GetAgentPath(), "/")
}

// phaseOfCall returns the phase of a model call. Without a message its agent continues.
func phaseOfCall(m *agentdv1.ModelCallEnded) agentdv1.Display_Phase {
	if m.GetMessageId() == "" {
		return phaseProgress
	}
	return phaseCompleted
}

func phaseOfEnd(end *agentdv1.RunResponse_EndResponse) agentdv1.Display_Phase {
	switch {
	case end.GetCompleted():
		return phaseCompleted
	case end.GetReceipt() != nil:
		return phaseCanceled
	default:
		return phaseFailed
	}
}

// phaseOfAgent returns the phase of an agent that ends. One that transfers is done.
func phaseOfAgent(m *agentdv1.AgentEnded) agentdv1.Display_Phase {
	switch m.GetOutcome() {
	case agentdv1.AgentEnded_OUTCOME_FAILED:
		return phaseFailed
	case agentdv1.AgentEnded_OUTCOME_CANCELED:
		return phaseCanceled
	default:
		return phaseCompleted
	}
}

// displayOfChunk distinguishes a piece of text from a chunk that only closes its agent.
func displayOfChunk(c *agentdv1.RunResponse_OutputChunk) *agentdv1.Display {
	switch {
	case c.GetContent() == "":
		return shown(kindText, phaseCompleted, refAgent+strings.Join(c.GetAgentPath(), "/"), public)
	case c.GetIsThought():
		return shown(kindReasoning, phaseDelta, refReasoning+c.GetMessageId(), private)
	default:
		return shown(kindText, phaseDelta, refMessage+c.GetMessageId(), public)
	}
}

// visibilityOf is that of an event about a tool call, or an agent, that holds payload.
func visibilityOf(payload string) agentdv1.Display_Visibility {
	if payload == "" {
		return public
	}
	return private
}

// view is how a client of SessionService wants to see events.
type view struct {
	display bool
	only    agentdv1.Display_Visibility // everything: no filter
}

// keep reports whether the client sees an event at all. It always sees the course of
// agents and of tool calls, and what the rest of a stream depends on: retracts, errors,
// the end, heartbeats.
func (p view) keep(m *agentdv1.RunResponse) bool {
	if p.only == everything {
		return true
	}
	switch m.GetResponse().(type) {
	case *agentdv1.RunResponse_ToolCall, *agentdv1.RunResponse_ToolCallAnnounced,
		*agentdv1.RunResponse_ToolCallUnserved,
		*agentdv1.RunResponse_ToolCallCanceled, *agentdv1.RunResponse_ToolCallAnswered,
		*agentdv1.RunResponse_AgentStarted, *agentdv1.RunResponse_AgentEnded,
		*agentdv1.RunResponse_MessageRetracted, *agentdv1.RunResponse_Error,
		*agentdv1.RunResponse_End, *agentdv1.RunResponse_Heartbeat:
		return true
	}
	return displayOf(m).GetVisibility() == p.only
}

// apply changes an event into what the client sees. The caller owns the event and has
// kept it.
func (p view) apply(m *agentdv1.RunResponse) {
	if p.only == public {
		withhold(m)
	}
	if p.display {
		m.Display = displayOf(m)
	}
}

// withhold removes the arguments and the result of a tool call from an event, and the
// name of an agent's model. A call for this client stays whole, since the client runs
// the tool.
func withhold(m *agentdv1.RunResponse) {
	switch r := m.GetResponse().(type) {
	case *agentdv1.RunResponse_AgentStarted:
		r.AgentStarted.Model = ""
	case *agentdv1.RunResponse_ToolCallAnnounced:
		r.ToolCallAnnounced.ToolInput = ""
	case *agentdv1.RunResponse_ToolCallAnswered:
		r.ToolCallAnswered.Parts = nil
		switch result := r.ToolCallAnswered.GetResult().(type) {
		case *agentdv1.ToolCallAnswered_Output:
			result.Output = ""
		case *agentdv1.ToolCallAnswered_Error:
			result.Error = ""
		}
	}
}

// phaseOfGoal is where a goal has come to.
func phaseOfGoal(ev *agentdv1.GoalEvent) agentdv1.Display_Phase {
	switch ended := ev.GetEnded(); {
	case ev.GetStarted() != nil:
		return phaseStarted
	case ended == nil:
		return phaseProgress
	case ended.GetStatus() == agentdv1.GoalStatus_GOAL_STATUS_COMPLETED:
		return phaseCompleted
	case ended.GetStatus() == agentdv1.GoalStatus_GOAL_STATUS_STOPPED:
		return phaseCanceled
	default:
		return phaseFailed
	}
}
