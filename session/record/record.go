package record

import (
	"fmt"
	"slices"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/logjson"
)

// Kind says what a record is about; it decides the form of Record.Data.
type Kind string

// The kinds of record. Data is JSON of the type named.
const (
	KindTurnStarted Kind = "turn_started" // TurnStarted
	KindTurnResumed Kind = "turn_resumed" // TurnResumed
	KindEvent       Kind = "event"        // the engine's own form, see Runner.Decode
	KindToolCall    Kind = "tool_call"    // ToolCall that no event holds
	KindToolResult  Kind = "tool_result"  // ToolResult
	KindTurnEnded   Kind = "turn_ended"   // TurnEnded
	KindTurnQueued  Kind = "turn_queued"  // TurnQueued; of a turn that waits for its start
	KindTurnDropped Kind = "turn_dropped" // TurnDropped; of a turn that waited for its start
	KindModelRetry  Kind = "model_retry"  // ModelRetry
	KindRawPayload  Kind = "raw_payload"  // RawPayload

	KindModelFallback Kind = "model_fallback" // ModelFallback

	KindInteractionRaised   Kind = "interaction_raised"   // Question
	KindInteractionResolved Kind = "interaction_resolved" // InteractionResolved

	KindClientsLeft Kind = "clients_left" // ClientsLeft

	KindAgentsChanged Kind = "agents_changed" // AgentsChanged

	KindCompactionAsked Kind = "compaction_asked" // CompactionAsked; of no turn

	// Of goals; all of no turn.
	KindGoalStarted      Kind = "goal_started"      // GoalStarted
	KindGoalCheckpointed Kind = "goal_checkpointed" // GoalCheckpointed
	KindGoalPaused       Kind = "goal_paused"       // GoalPaused
	KindGoalResumed      Kind = "goal_resumed"      // GoalResumed
	KindGoalEnded        Kind = "goal_ended"        // GoalEnded

	// Of children of the session; all of no turn.
	KindChildSpawned    Kind = "child_spawned"    // ChildSpawned
	KindChildReported   Kind = "child_reported"   // ChildReported
	KindMessageInjected Kind = "message_injected" // MessageInjected

	// Of an agent that a backend runs; the protocol's message, without the session's id.
	KindRemoteSession Kind = "remote_session" // agentdv1.RemoteSession
)

// kinds is the table of kinds, in an order in which one turn can have them: what Data of each is read into,
// nil where the engine reads it.
var kinds = []struct {
	kind  Kind
	blank func() any
}{
	{KindTurnQueued, func() any { return &TurnQueued{} }},
	{KindTurnDropped, func() any { return &TurnDropped{} }},
	{KindTurnStarted, func() any { return &TurnStarted{} }},
	{KindTurnResumed, func() any { return &TurnResumed{} }},
	{KindAgentsChanged, func() any { return &AgentsChanged{} }},
	{KindRemoteSession, func() any { return &agentdv1.RemoteSession{} }},
	{KindModelRetry, func() any { return &ModelRetry{} }},
	{KindModelFallback, func() any { return &ModelFallback{} }},
	{KindRawPayload, func() any { return &RawPayload{} }},
	{KindEvent, nil},
	{KindToolCall, func() any { return &ToolCall{} }},
	{KindInteractionRaised, func() any { return &Question{} }},
	{KindInteractionResolved, func() any { return &InteractionResolved{} }},
	{KindToolResult, func() any { return &ToolResult{} }},
	{KindClientsLeft, func() any { return &ClientsLeft{} }},
	{KindTurnEnded, func() any { return &TurnEnded{} }},
	{KindCompactionAsked, func() any { return &CompactionAsked{} }},
	{KindGoalStarted, func() any { return &GoalStarted{} }},
	{KindMessageInjected, func() any { return &MessageInjected{} }},
	{KindGoalPaused, func() any { return &GoalPaused{} }},
	{KindGoalResumed, func() any { return &GoalResumed{} }},
	{KindGoalCheckpointed, func() any { return &GoalCheckpointed{} }},
	{KindGoalEnded, func() any { return &GoalEnded{} }},
	{KindChildSpawned, func() any { return &ChildSpawned{} }},
	{KindChildReported, func() any { return &ChildReported{} }},
}

// Kinds returns every kind, in an order in which one turn can have them.
func Kinds() []Kind {
	var all []Kind
	for _, k := range kinds {
		all = append(all, k.kind)
	}
	return all
}

// Known reports whether the kind exists.
func (k Kind) Known() bool { return k.row() >= 0 }

// OfSession reports whether records of the kind are of the session alone, not of a turn.
func (k Kind) OfSession() bool { return slices.Contains(ofSession, k) }

// ofSession are the kinds of OfSession.
var ofSession = []Kind{
	KindCompactionAsked, KindGoalStarted, KindGoalCheckpointed, KindGoalPaused, KindGoalResumed, KindGoalEnded,
	KindMessageInjected, KindChildSpawned, KindChildReported,
}

// row is the place of a kind in the table, -1 for none.
func (k Kind) row() int {
	for i := range kinds {
		if kinds[i].kind == k {
			return i
		}
	}
	return -1
}

// Record is one entry of a session's log. A record is immutable once appended; Data must not be changed.
type Record struct {
	// Seq is 1 for the first record of a session and rises by one.
	Seq int64
	// TurnID is the turn the record belongs to; "" for one of the session alone.
	TurnID string
	// Kind says how to read Data.
	Kind Kind
	// Time is when the record was appended, in UTC, to the microsecond.
	Time time.Time
	// Data is what happened.
	Data []byte
}

// Decode returns the fact that the record states: a pointer to the type that its kind names. event reads
// the engine's own form.
func (r Record) Decode(event func(data []byte) (*Event, error)) (any, error) {
	if r.Kind == KindEvent {
		ev, err := event(r.Data)
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", r.Seq, err)
		}
		return ev, nil
	}
	row := r.Kind.row()
	if row < 0 {
		return nil, fmt.Errorf("record %d has unknown kind %q", r.Seq, r.Kind)
	}
	fact := kinds[row].blank()
	if err := logjson.Unmarshal(r.Data, fact); err != nil {
		return nil, fmt.Errorf("record %d (%s): %w", r.Seq, r.Kind, err)
	}
	return fact, nil
}
