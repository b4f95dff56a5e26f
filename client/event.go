package client

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Event is one thing that happened in a turn: when and where, and in Data what. An event
// belongs to the caller once it was yielded.
//
//	switch d := event.Data.(type) {
//	case *client.OutputChunk: // text, as it comes
//	case *client.ToolCallAnswered: // what a tool has returned
//	case *client.End: // the turn is over
//	}
//
// More kinds of events will come: a switch ignores those that it does not name.
type Event struct {
	// Seq is the event's place in the session: what [WithAfterSeq] takes. It
	// rises, but not by one. A call that the server asks again has the place of
	// what came before it; 0 is an event of this client, a refusal, or a server
	// that does not count.
	Seq int64
	// Cursor is the event's place for [WithCursor]: what comes after it. Events of
	// [Session.Watch] and [Session.Events] have one, but for those of this client and
	// [ToolCallUnserved]; those of a run have none.
	Cursor string
	// Time is when it happened by the server's clock; zero for text that is on
	// its way, and for events of this client.
	Time time.Time
	// TurnID names the turn; empty if the server does not say, and for events about
	// the connection.
	TurnID string
	// SessionID names the session; empty before the server has named a new one.
	SessionID string
	// Replayed is true when it happened before the server saw this client, or
	// saw it again.
	Replayed bool
	// Lineage says which agent that another one has called it is of; nil for the tree
	// of the turn itself.
	Lineage *Lineage
	// Data is what has happened; never nil.
	Data EventData

	// OutputChunk, StateUpdate, ToolCall, Error and End are Data where it is of their
	// type, else nil. Events of all other types are in Data alone.
	OutputChunk *OutputChunk
	StateUpdate *StateUpdate
	ToolCall    *ToolCall
	Error       *Error
	End         *End

	message *agentdv1.RunResponse // what it was made from; nil: this client made it
}

// Lineage is where an event comes from.
type Lineage struct {
	// ParentSessionID is the session that started the event's session; empty where the
	// event is of an agent that runs within the turn of its caller.
	ParentSessionID string
	// Branch has the names of the calls that lead to it, from the outermost, with dots
	// between them.
	Branch string
	// Depth is how many calls these are.
	Depth int
	// Position is the place of the event in a tree of sessions; 0 where it is of the
	// session alone.
	Position int64
}

// EventData is what an event says: a pointer to one of these types.
//
//   - about the turn: [TurnQueued], [TurnStarted], [MessageInjected], [StateUpdate], [Error], [End]
//   - about what agents say: [OutputChunk], [MessageCompleted], [MessageRetracted]
//   - about agents: [AgentStarted], [AgentEnded], [Transferred], [RemoteSession]
//   - about tools: [ToolCall], [ToolCallAnnounced], [ToolCallUnserved], [ToolCallAnswered], [ToolCallCanceled]
//   - about goals: [GoalEvent]
//   - about people: [InteractionRequested], [InteractionResolved]
//   - about model calls: [ModelCallRetried], [ModelCallFellBack], [ModelCallEnded], [ProviderToolsUsed],
//     [RawPayloadReceived], [HistoryCompacted]
//   - about the connection: [ConnectionLost], [ConnectionRestored], [ConnectionAbandoned]
//   - of a newer server: [UnknownEvent]
type EventData interface{ eventData() }

// Proto returns a copy of the message that the event was made from, with all that a newer
// server has said in it; nil for an event that this client has made.
func (e *Event) Proto() *agentdv1.RunResponse { return proto.CloneOf(e.message) }

// UnknownEvent is an event of a kind that this client does not know, as its server is
// newer. It may be ignored.
type UnknownEvent struct {
	// Number is that of the kind's field in the protocol's RunResponse; 0 where the
	// message does not say, as in Connect's JSON.
	Number int

	message *agentdv1.RunResponse
}

// Proto returns a copy of the message, in whose unknown fields the event is, unless the
// connection speaks JSON.
func (e *UnknownEvent) Proto() *agentdv1.RunResponse { return proto.CloneOf(e.message) }

// TurnStarted says that the turn runs. It comes first, but for [TurnQueued] and what is
// about the connection; an [Client.Attach] from a position after it has none. Of a
// prompt that was injected it says that the running turn has taken it up.
type TurnStarted struct {
	// SessionID names the session, new or continued; see [WithSessionID].
	SessionID string
	// Warnings are about what of the request the server has left out.
	Warnings []Warning
	// GoalID is the goal that the turn is of, "" for none, and GoalTurn its number within that goal, from 1.
	GoalID   string
	GoalTurn int
}

// OutputChunk is a piece of an agent's text. The chunks of one agent that are
// not thoughts, joined, are the model's text.
type OutputChunk struct {
	// AgentPath runs from the root of the tree to the agent that speaks.
	AgentPath []string
	// Content is the text; empty in a closing chunk.
	Content string
	// Last is true once per agent and turn in which it spoke.
	Last bool
	// IsThought is true when the text is the model's thinking.
	IsThought bool
	// MessageID names the message of which the text is a part: one response of
	// one model call. Empty in a chunk that only closes.
	MessageID string
}

// StateUpdate tells about session state: first the whole of it, if there is any, later
// what changed.
type StateUpdate struct {
	// Delta holds the keys that changed and their new values as encoding/json
	// would decode them, but for numbers that a float64 does not hold, such as
	// 9007199254740993, 1e400 or 0.10000000000000000001: those are of type json.Number, with
	// every digit of their writer. A key with nil has been removed. The text of all of
	// it is in the state_delta_json of the event's Proto.
	Delta map[string]any
}

// End is the end of a turn that did not fail, and comes last. Of one that failed the
// sequence's error does.
type End struct {
	// Completed is true when the agent tree finished naturally, false when the
	// turn was ended or canceled.
	Completed bool
	// Reason is why the turn ended, when it did not end by itself.
	Reason string
	// Usage is what the turn used; nil if the server sent none. A count of more than
	// 2,147,483,647 comes as that; the Turn of the session service has all of it.
	Usage *Usage
	// Receipt is what the end has stopped; nil when nobody ended or canceled the
	// turn.
	Receipt *CancelReceipt
	// Structured is the last response, JSON in the model's own text, which [Structured]
	// decodes, when the turn completed and the agent that gave it has an output
	// schema; else nil.
	Structured json.RawMessage
}

func (*TurnStarted) eventData()  {}
func (*OutputChunk) eventData()  {}
func (*StateUpdate) eventData()  {}
func (*Error) eventData()        {}
func (*End) eventData()          {}
func (*UnknownEvent) eventData() {}

// EventOf translates a message, such as one of WatchTurn or ListTurnEvents of the
// session service; nil for a heartbeat, which is no event. The event shares memory with
// the message.
func EventOf(m *agentdv1.RunResponse) *Event {
	data := dataOf(m)
	if data == nil {
		return nil
	}
	event := eventOf(m, data)
	event.SessionID = sessionIDOf(m)
	return event
}

// eventOf returns an event with what a message says about itself, but for the session.
func eventOf(m *agentdv1.RunResponse, data EventData) *Event {
	event := newEvent(data)
	event.Seq, event.TurnID = m.GetSeq(), m.GetTurnId()
	event.Time, event.Replayed = timeOf(m.GetTime()), m.GetReplayed()
	event.message = m
	if l := m.GetLineage(); l != nil {
		event.Lineage = &Lineage{
			ParentSessionID: l.GetParentSessionId(), Branch: l.GetBranch(), Depth: int(l.GetDepth()),
			Position: l.GetPosition(),
		}
	}
	return event
}

func errorEvent(m *agentdv1.RunResponse) *Event { return eventOf(m, fromResponse(m.GetError())) }

// newEvent returns an event of which nothing is known but what it says.
func newEvent(data EventData) *Event {
	event := &Event{Data: data}
	switch d := data.(type) {
	case *OutputChunk:
		event.OutputChunk = d
	case *StateUpdate:
		event.StateUpdate = d
	case *ToolCall:
		event.ToolCall = d
	case *Error:
		event.Error = d
	case *End:
		event.End = d
	}
	return event
}

// dataOf translates what a message says; nil for a heartbeat.
func dataOf(m *agentdv1.RunResponse) EventData {
	switch r := m.GetResponse().(type) {
	case *agentdv1.RunResponse_Heartbeat:
		return nil
	case *agentdv1.RunResponse_Execute:
		return &TurnStarted{
			SessionID: r.Execute.GetSessionId(), Warnings: warningsOf(r.Execute.GetWarnings()),
			GoalID: r.Execute.GetGoalId(), GoalTurn: int(r.Execute.GetGoalTurn()),
		}
	case *agentdv1.RunResponse_TurnQueued:
		return queuedOf(m)
	case *agentdv1.RunResponse_MessageInjected:
		return injectedOf(r.MessageInjected)
	case *agentdv1.RunResponse_StateUpdate_:
		return &StateUpdate{Delta: deltaOf(r.StateUpdate)}
	case *agentdv1.RunResponse_Error:
		return fromResponse(r.Error)
	case *agentdv1.RunResponse_End:
		return endOf(r.End)
	case *agentdv1.RunResponse_OutputChunk_:
		return chunkOf(r.OutputChunk)
	case *agentdv1.RunResponse_MessageCompleted:
		return completedOf(r.MessageCompleted)
	case *agentdv1.RunResponse_MessageRetracted:
		return &MessageRetracted{
			MessageID: r.MessageRetracted.GetMessageId(),
			AgentPath: r.MessageRetracted.GetAgentPath(),
		}
	case *agentdv1.RunResponse_AgentStarted:
		return agentStartedOf(r.AgentStarted)
	case *agentdv1.RunResponse_AgentEnded:
		return agentEndedOf(r.AgentEnded)
	case *agentdv1.RunResponse_Transferred:
		return &Transferred{AgentPath: r.Transferred.GetAgentPath(), ToAgentPath: r.Transferred.GetToAgentPath()}
	case *agentdv1.RunResponse_RemoteSession:
		return remoteSessionOf(r.RemoteSession)
	case *agentdv1.RunResponse_ToolCall:
		return toolCallOf(r.ToolCall)
	case *agentdv1.RunResponse_ToolCallCanceled:
		return &ToolCallCanceled{ID: r.ToolCallCanceled.GetToolCallId(), Reason: r.ToolCallCanceled.GetReason()}
	case *agentdv1.RunResponse_ToolCallAnnounced:
		return announcedOf(r.ToolCallAnnounced)
	case *agentdv1.RunResponse_ToolCallUnserved:
		return unservedOf(r.ToolCallUnserved)
	case *agentdv1.RunResponse_ToolCallAnswered:
		return answeredOf(r.ToolCallAnswered)
	case *agentdv1.RunResponse_InteractionRequested:
		return &InteractionRequested{Interaction: InteractionOf(r.InteractionRequested.GetInteraction())}
	case *agentdv1.RunResponse_InteractionResolved:
		return &InteractionResolved{Interaction: InteractionOf(r.InteractionResolved.GetInteraction())}
	case *agentdv1.RunResponse_ModelCallRetried:
		return retriedOf(r.ModelCallRetried)
	case *agentdv1.RunResponse_ModelCallFellBack:
		return fellBackOf(r.ModelCallFellBack)
	case *agentdv1.RunResponse_ModelCallEnded:
		return callEndedOf(r.ModelCallEnded)
	case *agentdv1.RunResponse_ProviderToolsUsed:
		return providerToolsOf(r.ProviderToolsUsed)
	case *agentdv1.RunResponse_RawPayloadReceived:
		return rawPayloadOf(r.RawPayloadReceived)
	case *agentdv1.RunResponse_Goal:
		return goalEventOf(r.Goal)
	case *agentdv1.RunResponse_HistoryCompacted:
		return compactedOf(r.HistoryCompacted)
	default:
		return unknownOf(m)
	}
}

// unknownOf returns the event of a message of which this client knows no member. The
// member is a message, so its field is one of bytes.
func unknownOf(m *agentdv1.RunResponse) *UnknownEvent {
	event := &UnknownEvent{message: m}
	for raw := m.ProtoReflect().GetUnknown(); len(raw) > 0; {
		number, kind, n := protowire.ConsumeField(raw)
		if n < 0 {
			break
		}
		if kind == protowire.BytesType {
			event.Number = int(number)
		}
		raw = raw[n:]
	}
	return event
}

// sessionIDOf is the session that a message names.
func sessionIDOf(m *agentdv1.RunResponse) string {
	reflected := m.ProtoReflect()
	member := reflected.WhichOneof(reflected.Descriptor().Oneofs().ByName("response"))
	if member == nil {
		return ""
	}
	switch said := reflected.Get(member).Message().Interface().(type) {
	case interface{ GetSessionId() string }:
		return said.GetSessionId()
	case interface {
		GetInteraction() *agentdv1.Interaction
	}:
		return said.GetInteraction().GetSessionId()
	default:
		return ""
	}
}

func chunkOf(m *agentdv1.RunResponse_OutputChunk) *OutputChunk {
	return &OutputChunk{
		AgentPath: m.GetAgentPath(),
		Content:   m.GetContent(),
		Last:      m.GetLast(),
		IsThought: m.GetIsThought(),
		MessageID: m.GetMessageId(),
	}
}

func endOf(m *agentdv1.RunResponse_EndResponse) *End {
	return &End{
		Completed:  m.GetCompleted(),
		Reason:     m.GetReason(),
		Usage:      usageOfEnd(m.GetUsageSummary()),
		Receipt:    receiptOf(m.GetReceipt()),
		Structured: rawOf(m.GetStructuredOutput()),
	}
}
