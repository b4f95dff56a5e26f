package render

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/lineage"
	"github.com/apzuk3/agentd/internal/tracecontext"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/recent"
	"github.com/apzuk3/agentd/session/record"
)

// view renders facts and deltas as messages of the protocol, in order, from a position on. Its
// messages are a function of what it is given, see the package doc. It is owned by the
// goroutine of its reader.
type view struct {
	sessionID    string
	retention    time.Duration             // how long the turn waits for a person
	at           int64                     // the position of the last message: the client has what is at or before it
	states       map[string]map[string]any // the state at the start of a turn, by turn
	only         string                    // the turn to show; "" is all
	whole        bool                      // the session is read across its turns, see Start.Turn
	ends         []int64                   // if whole, the positions of the ends of turns that have run
	injectedInto string                    // the turn that the prompt of the turn to show has become a message of

	out     []*agentdv1.RunResponse
	joining *joining        // the chunk at the end of out, while it may grow
	shared  []sharedMessage // of out
	taken   []sharedMessage // of what was taken last

	rendered // the turn that is being rendered

	// Of the record that is being rendered.
	rec      record.Record
	replayed bool
	lineage  *agentdv1.Lineage // of its messages; nil for those of the tree itself
	entry    *recent.Entry     // nil if the messages of the record are not shared
}

// rendered is what a view keeps of a turn.
type rendered struct {
	turnID    string
	over      bool              // it has ended
	speakers  []*speaker        // agents that spoke
	agents    []working         // those that have started and not ended, in order
	calls     []record.ToolCall // open calls, in order, and those about which a person is asked
	requested map[string]bool   // calls that the client has received a request for
	reported  map[string]bool   // calls that the client knows to be unserved
	asking    index.Asked       // what people are asked
	usage     record.Usage
	output    string // the output, if it is structured
	trace     tracecontext.Context
	metadata  map[string]string // for the tools
}

// begin makes the view render another turn from its beginning, and returns what it has kept of
// the turn before.
func (v *view) begin(turnID string) (before rendered) {
	before = v.rendered
	v.rendered = rendered{
		turnID: turnID, requested: map[string]bool{},
		asking: index.Asked{SessionID: v.sessionID, Retention: v.retention},
	}
	return before
}

// joining is a chunk to which following deltas of the same message are added.
type joining struct {
	chunk *agentdv1.RunResponse_OutputChunk
	msg   *agentdv1.RunResponse
	first string          // the text of its first delta
	text  strings.Builder // its whole text once it shows several
	// shared is the delta that the chunk shows, if it is one alone.
	shared *Shared
}

// takes reports whether the chunk may grow by a delta.
func (j *joining) takes(d *record.Delta) bool {
	return j.chunk.GetMessageId() == d.MessageID && j.chunk.GetIsThought() == d.Thought &&
		max(len(j.first), j.text.Len())+len(d.Text) <= maxPiece
}

// take returns the messages rendered since the last call.
func (v *view) take() []*agentdv1.RunResponse {
	v.finishJoin()
	out := v.out
	v.out = nil
	v.taken, v.shared = v.shared, v.taken[:0]
	return out
}

// delta renders a delta, or joins it to the one before. Of deltas that are joined either all are
// replayed, or none is.
func (v *view) delta(d *record.Delta, pos int64, replayed bool, shared *Shared) {
	if pos <= v.at || v.hidden() {
		return
	}
	v.at = pos
	if j := v.joining; j != nil && j.takes(d) {
		if j.text.Len() == 0 {
			j.text.WriteString(j.first)
		}
		j.text.WriteString(d.Text)
		j.msg.Seq, j.shared = pos, nil
		return
	}
	v.finishJoin()
	c := v.chunk(d.MessageID, d.Path, d.Thought)
	m := &agentdv1.RunResponse{
		Seq: pos, TurnId: v.turnID, Replayed: replayed,
		Response: &agentdv1.RunResponse_OutputChunk_{OutputChunk: c},
		Lineage:  lineageOf(lineage.BranchOf(d.MessageID)),
	}
	v.out = append(v.out, m)
	v.joining = &joining{chunk: c, msg: m, first: d.Text, shared: shared}
}

// finishJoin completes the chunk that may grow.
func (v *view) finishJoin() {
	j := v.joining
	if j == nil {
		return
	}
	j.chunk.Content = cmp.Or(j.text.String(), j.first)
	if j.shared != nil {
		v.shared = append(v.shared, sharedMessage{len(v.out) - 1, j.shared})
	}
	v.joining = nil
}

// hidden reports whether the client does not receive the turn that is rendered.
func (v *view) hidden() bool {
	return v.only != "" && v.only != v.turnID && v.injectedInto != v.turnID
}

// emit sends a message of the current record, unless the client has it or does not receive
// its turn.
func (v *view) emit(slot int, m *agentdv1.RunResponse) {
	if !v.hidden() {
		v.send(slot, v.turnID, m)
	}
}

// send sends a message of the current record, also of a turn that is hidden, unless the client
// has it.
func (v *view) send(slot int, turnID string, m *agentdv1.RunResponse) {
	pos := position.Of(v.rec.Seq, slot)
	if pos <= v.at {
		return
	}
	v.at = pos
	v.place(m, pos, turnID)
	m.Replayed = v.replayed
	v.out = append(v.out, m)
}

// place says of a message of the current record where it stands, and when it happened.
func (v *view) place(m *agentdv1.RunResponse, pos int64, turnID string) {
	m.Seq, m.TurnId, m.Time = pos, turnID, timestamppb.New(v.rec.Time)
	if m.Lineage == nil {
		m.Lineage = v.lineage
	}
}

// fact renders what a record states and reports whether it is a turn's end. offered are the
// open calls that are offered to the client.
func (v *view) fact(rec record.Record, fact any, replayed bool, offered []string) (end bool) {
	v.finishJoin()
	rec.Data = nil // fact states it, and the view outlives the record
	v.rec, v.replayed, v.lineage = rec, replayed, nil
	asking := v.asking.Add(rec, fact, v.calls)
	if u := record.UsageOf(fact); u != nil {
		v.usage = v.usage.Add(*u)
	}
	switch f := fact.(type) {
	case *record.TurnStarted:
		v.begin(rec.TurnID)
		v.trace, v.metadata = f.Trace, f.Metadata
		v.begun(f.Warnings, f.Goal)
		if v.whole {
			v.state(position.State, f.State)
		} else {
			v.state(position.State, v.states[rec.TurnID])
		}
		if f.Alone != nil {
			v.agentsChanged(position.Alone, *f.Alone)
		}
	case *record.TurnResumed:
		v.emit(position.Start, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_MessageRetracted{
			MessageRetracted: &agentdv1.MessageRetracted{SessionId: v.sessionID},
		}})
	case *record.TurnQueued:
		v.queued(f)
	case *record.TurnDropped:
		if v.whole || v.only == rec.TurnID {
			before := v.begin(rec.TurnID)
			v.end(f.End(), nil)
			if v.whole { // another turn may be running meanwhile
				v.rendered = before
			}
		}
		return true
	case *record.ModelRetry:
		v.lineage = lineageOf(lineage.BranchOf(f.MessageID))
		v.retried(f)
	case *record.ModelFallback:
		v.lineage = lineageOf(lineage.BranchOf(f.MessageID))
		v.fellBack(f)
	case *record.RawPayload:
		v.lineage = lineageOf(lineage.BranchOf(f.MessageID))
		v.raw(f)
	case *agentdv1.RemoteSession:
		v.remote(position.Start, f)
	case *record.AgentsChanged:
		v.agentsChanged(position.Start, f.Changes...)
	case *record.Event:
		if f.Injected != "" {
			v.injected(f)
			return false
		}
		v.lineage = lineageOf(f.Branch)
		v.event(f, offered)
	case *record.ToolCall:
		v.call(position.Calls, *f, offered)
	case *record.ToolResult:
		if len(asking) > 0 && !asking[0].Raised() {
			v.resolved(position.Calls, asking[0])
			v.calls = slices.DeleteFunc(v.calls, func(c record.ToolCall) bool { return c.ID == f.CallID })
			break
		}
		v.settled(f)
		for i, in := range asking {
			v.resolved(position.Calls+1+i, in)
		}
	case *record.Question:
		for _, in := range asking {
			v.requests(position.Calls, in)
		}
	case *record.InteractionResolved:
		for _, in := range asking {
			v.resolved(position.Calls, in)
			if in.Raised() {
				break
			}
			v.calls = slices.DeleteFunc(v.calls, func(c record.ToolCall) bool { return c.ID == f.ID })
			if f.Decision == record.Approve {
				v.call(position.Calls+1, f.ApprovedCall(in.Call), offered)
			}
		}
	case *record.GoalStarted, *record.GoalCheckpointed, *record.GoalPaused, *record.GoalResumed, *record.GoalEnded,
		*record.MessageInjected, *record.ChildSpawned, *record.ChildReported:
		v.goal(f)
	case *record.TurnEnded:
		v.end(f, asking)
		v.over = true
		if v.whole {
			v.ends = append(v.ends, position.Of(rec.Seq, position.End))
		}
		return true
	}
	return false
}
