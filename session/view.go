package session

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/record"
)

// view renders facts and deltas as protocol messages, in order, from a position
// on. It is a function of what it is given; whoever gives it the same, from
// whatever position, gets the same messages after that position, but for how
// neighbouring deltas are joined. It is used by one goroutine.
type view struct {
	sessionID string
	retention time.Duration // how long the turn waits for a person
	at        int64         // what is at or before this position is not shown
	snapshots map[string]map[string]any
	only      string // the turn to show; "" is all
	// whole says that a session is read across its turns: a turn that never starts has
	// its end there, and one that starts tells what its request has set, and not what
	// the turns before it have.
	whole  bool
	overs  []int64 // the positions of the ends of turns that have run, for who reads the whole
	joined string  // the turn that the prompt of that one has become a message of

	out     []*agentdv1.RunResponse
	joining *joining // the chunk at the end of out, while it may grow

	rendered // the turn that is being rendered

	// Of the record that is being rendered.
	rec      record.Record
	replayed bool
}

// rendered is what a view keeps of a turn.
type rendered struct {
	turnID   string
	speakers []*speaker        // agents that spoke
	agents   [][]string        // those that have started and not ended, in order
	calls    []record.ToolCall // open calls, in order, and those about which a person is asked
	asked    map[string]bool
	told     map[string]bool // calls of which the client knows that nobody has the tool
	asking   index.Asked     // what people are asked
	usage    record.Usage
	output   string // the output, if it is structured
}

// begin has the view render another turn from its beginning, and returns what it has
// kept of the one before.
func (v *view) begin(turnID string) (before rendered) {
	before = v.rendered
	v.rendered = rendered{turnID: turnID, asked: map[string]bool{}, asking: index.Asked{SessionID: v.sessionID, Retention: v.retention}}
	return before
}

// speaker is an agent that spoke in the turn.
type speaker struct {
	key    string
	path   []string
	closed bool // its last chunk has been sent
}

// joining is a chunk to which following deltas of the same message are added.
type joining struct {
	chunk *agentdv1.RunResponse_OutputChunk
	msg   *agentdv1.RunResponse
	text  strings.Builder
}

// take returns the messages rendered since the last call.
func (v *view) take() []*agentdv1.RunResponse {
	v.finishJoin()
	out := v.out
	v.out = nil
	return out
}

// delta shows a piece of text. Pieces that are joined are either all replayed, or none is.
func (v *view) delta(d *record.Delta, pos int64, replayed bool) {
	if pos <= v.at || v.hidden() {
		return
	}
	v.at = pos
	if j := v.joining; j != nil && j.chunk.MessageId == d.MessageID && j.chunk.IsThought == d.Thought && j.text.Len()+len(d.Text) <= maxPiece {
		j.text.WriteString(d.Text)
		j.msg.Seq = pos
		return
	}
	v.finishJoin()
	c := v.chunk(d.MessageID, d.Path, d.Thought)
	m := &agentdv1.RunResponse{
		Seq: pos, TurnId: v.turnID, Replayed: replayed,
		Response: &agentdv1.RunResponse_OutputChunk_{OutputChunk: c},
	}
	v.out = append(v.out, m)
	v.joining = &joining{chunk: c, msg: m}
	v.joining.text.WriteString(d.Text)
}

func (v *view) finishJoin() {
	if v.joining != nil {
		v.joining.chunk.Content = v.joining.text.String()
		v.joining = nil
	}
}

// hidden tells whether the turn that is rendered is not to be shown.
func (v *view) hidden() bool {
	return v.only != "" && v.only != v.turnID && v.joined != v.turnID
}

// emit sends a message of the current record, unless the client has it or is not
// to see its turn.
func (v *view) emit(slot int, m *agentdv1.RunResponse) {
	if !v.hidden() {
		v.send(slot, v.turnID, m)
	}
}

// send sends a message, also of a turn that is hidden.
func (v *view) send(slot int, turnID string, m *agentdv1.RunResponse) {
	pos := position.Of(v.rec.Seq, slot)
	if pos <= v.at {
		return
	}
	v.at = pos
	m.Seq, m.TurnId, m.Replayed = pos, turnID, v.replayed
	m.Time = timestamppb.New(v.rec.Time)
	v.out = append(v.out, m)
}

// fact renders what a record says and reports whether it was a turn's end. mine
// are the open calls that this client is asked for.
func (v *view) fact(rec record.Record, fact any, replayed bool, mine []string) (end bool) {
	v.finishJoin()
	rec.Data = nil // fact says it, and the view outlives the record
	v.rec, v.replayed = rec, replayed
	asking := v.asking.Add(rec, fact)
	if u := record.UsageOf(fact); u != nil {
		v.usage = v.usage.Add(*u)
	}
	switch f := fact.(type) {
	case *record.TurnStarted:
		v.begin(rec.TurnID)
		v.begun(f.Warnings)
		if v.whole {
			v.state(position.State, f.State)
		} else {
			v.state(position.State, v.snapshots[rec.TurnID])
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
		v.emit(position.Start, retryMessage(v.sessionID, f))
	case *record.ModelFallback:
		v.fellBack(f)
	case *record.RawPayload:
		v.raw(f)
	case *record.AgentsChanged:
		v.agentsChanged(position.Start, f.Changes...)
	case *record.Event:
		if f.Injected != "" {
			v.injected(f)
			return false
		}
		v.event(f, mine)
	case *record.ToolCall:
		v.call(position.Calls, *f, mine)
	case *record.ToolResult:
		if len(asking) > 0 {
			v.resolved(position.Calls, asking[0])
			v.calls = slices.DeleteFunc(v.calls, func(c record.ToolCall) bool { return c.ID == f.CallID })
		} else {
			v.settled(f)
		}
	case *record.InteractionResolved:
		for _, in := range asking {
			v.resolved(position.Calls, in)
			v.calls = slices.DeleteFunc(v.calls, func(c record.ToolCall) bool { return c.ID == f.ID })
			if f.Decision == record.Approve {
				v.call(position.Calls+1, f.ApprovedCall(in.Call), mine)
			}
		}
	case *record.TurnEnded:
		v.end(f, asking)
		if v.whole {
			v.overs = append(v.overs, position.Of(rec.Seq, position.End))
		}
		return true
	}
	return false
}

func (v *view) begun(warnings []record.Warning) {
	v.emit(position.Start, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Execute{
		Execute: &agentdv1.RunResponse_ExecuteResponse{SessionId: v.sessionID, Warnings: WarningsProto("execute.", warnings)},
	}})
}

// queued tells that a prompt waits; its client sees that, whatever else it does
// not.
func (v *view) queued(f *record.TurnQueued) {
	m := &agentdv1.RunResponse{Response: &agentdv1.RunResponse_TurnQueued{
		TurnQueued: &agentdv1.TurnQueued{SessionId: v.sessionID, UserPrompt: f.Prompt, UserParts: f.Parts, Inject: f.Inject, CreatedBy: f.By, Ahead: uint32(min(f.Ahead, 1<<20))},
	}}
	if v.only == v.rec.TurnID || !v.hidden() {
		v.send(position.Start, v.rec.TurnID, m)
	}
}

// injected tells that a prompt has become a message of the turn. For the client
// that has sent it the turn begins here.
func (v *view) injected(ev *record.Event) {
	if v.only == ev.Injected {
		v.joined = v.turnID
		v.begun(nil) // what was left out of its request would not count for this turn
	}
	v.emit(position.User, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_MessageInjected{
		MessageInjected: &agentdv1.MessageInjected{SessionId: v.sessionID, UserPrompt: ev.Text, UserParts: ev.Parts, QueuedTurnId: ev.Injected, CreatedBy: ev.InjectedBy},
	}})
}

func retryMessage(sessionID string, f *record.ModelRetry) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ModelCallRetried{
		ModelCallRetried: &agentdv1.ModelCallRetried{
			SessionId: sessionID, AgentPath: f.Path, MessageId: f.MessageID, Attempt: uint32(max(f.Attempt, 0)),
			Wait: durationpb.New(f.Wait), Code: f.Code, Message: f.Message,
		},
	}}
}

func (v *view) event(ev *record.Event, mine []string) {
	text, thoughts := ev.Unshown()
	v.text(position.Thoughts, ev, thoughts, true)
	v.text(position.Text, ev, text, false)
	if ev.Text != "" || ev.Thoughts != "" {
		v.speaker(ev.Path)
	}
	if ev.Final() {
		v.output = ""
		if ev.Structured {
			v.output = ev.FinalText()
		}
	}
	if ev.Last {
		if i := v.find(ev.Path); i >= 0 {
			v.close(position.Last, v.speakers[i])
		}
	}
	v.state(position.EventState, ev.State)
	v.completed(ev)
	v.modelCall(ev)
	v.transferred(ev)
	for i, call := range ev.Calls {
		v.call(position.Calls+i, call, mine)
	}
}

// completed tells that all of a message was shown.
func (v *view) completed(ev *record.Event) {
	if ev.MessageID == "" || ev.Text == "" && ev.Thoughts == "" {
		return
	}
	v.emit(position.Completed, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_MessageCompleted{
		MessageCompleted: &agentdv1.MessageCompleted{
			SessionId: v.sessionID, AgentPath: ev.Path, MessageId: ev.MessageID,
			TextBytes: int64(len(ev.Text)), ThoughtBytes: int64(len(ev.Thoughts)),
		},
	}})
}

// transferred tells which agent goes on.
func (v *view) transferred(ev *record.Event) {
	if len(ev.To) == 0 {
		return
	}
	v.emit(position.Transfer, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Transferred{
		Transferred: &agentdv1.Transferred{SessionId: v.sessionID, AgentPath: ev.Path, ToAgentPath: ev.To},
	}})
}

func (v *view) text(slot int, ev *record.Event, text string, thought bool) {
	if text != "" {
		c := v.chunk(ev.MessageID, ev.Path, thought)
		c.Content = text
		v.emit(slot, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_OutputChunk_{OutputChunk: c}})
	}
}

func (v *view) chunk(messageID string, path []string, thought bool) *agentdv1.RunResponse_OutputChunk {
	return &agentdv1.RunResponse_OutputChunk{SessionId: v.sessionID, AgentPath: path, IsThought: thought, MessageId: messageID}
}

func (v *view) find(path []string) int {
	key := strings.Join(path, "/")
	return slices.IndexFunc(v.speakers, func(s *speaker) bool { return s.key == key })
}

func (v *view) speaker(path []string) {
	if v.find(path) < 0 {
		v.speakers = append(v.speakers, &speaker{key: strings.Join(path, "/"), path: path})
	}
}

// close sends an agent's last chunk.
func (v *view) close(slot int, s *speaker) {
	if s.closed {
		return
	}
	s.closed = true
	c := v.chunk("", s.path, false)
	c.Last = true
	v.emit(slot, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_OutputChunk_{OutputChunk: c}})
}

func (v *view) state(slot int, delta map[string]any) {
	if len(delta) > 0 {
		update := stateUpdate(delta)
		update.SessionId = v.sessionID
		v.emit(slot, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_StateUpdate_{StateUpdate: update}})
	}
}

// call tells of a tool call: as a request to the client that is asked, as a
// notice to any other; or of what a person is asked about it.
func (v *view) call(slot int, c record.ToolCall, mine []string) {
	v.calls = append(v.calls, c)
	if c.Asks != nil {
		i := slices.IndexFunc(v.asking.Pending, func(in *index.Interaction) bool { return in.Call.ID == c.ID })
		v.emit(slot, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_InteractionRequested{
			InteractionRequested: &agentdv1.InteractionRequested{Interaction: v.asking.Pending[i].Proto()},
		}})
		return
	}
	if !slices.Contains(mine, c.ID) {
		v.emit(slot, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallAnnounced{
			ToolCallAnnounced: &agentdv1.ToolCallAnnounced{
				SessionId: v.sessionID, ToolCallId: c.ID, ToolName: c.Name, ToolInput: string(c.Input), AgentPath: c.Path,
			},
		}})
		return
	}
	if pos := position.Of(v.rec.Seq, slot); pos > v.at {
		v.asked[c.ID] = true
		v.send(slot, v.turnID, v.request(c)) // also while its prompt waits to be injected
	}
}

// resolved tells that no person is asked any more.
func (v *view) resolved(slot int, in *index.Interaction) {
	v.emit(slot, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_InteractionResolved{
		InteractionResolved: &agentdv1.InteractionResolved{Interaction: in.Proto()},
	}})
}

func (v *view) request(c record.ToolCall) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCall{
		ToolCall: &agentdv1.RunResponse_ToolCallRequest{
			SessionId: v.sessionID, ToolCallId: c.ID, ToolName: c.Name, ToolInput: string(c.Input), AgentPath: c.Path,
		},
	}}
}

// offer asks the client for a call whose place in the order is past: it has
// attached, or has taken over from another client.
func (v *view) offer(c record.ToolCall) {
	if v.asked[c.ID] || !v.isOpen(c.ID) {
		return
	}
	v.asked[c.ID] = true
	v.finishJoin()
	m := v.request(c)
	m.Seq, m.TurnId, m.Replayed = v.at, v.turnID, true
	v.out = append(v.out, m)
}

// isOpen tells whether the client has been told of a call that clients are asked for.
func (v *view) isOpen(id string) bool {
	return slices.ContainsFunc(v.calls, func(c record.ToolCall) bool { return c.ID == id && c.Asks == nil })
}

// settled tells what has become of a call; also who was asked for it and is not
// to see its turn, so that nobody goes on with it.
func (v *view) settled(f *record.ToolResult) {
	defer delete(v.asked, f.CallID)
	defer delete(v.told, f.CallID)
	i := slices.IndexFunc(v.calls, func(c record.ToolCall) bool { return c.ID == f.CallID })
	if f.Outcome == record.Answered && i >= 0 && (v.asked[f.CallID] || !v.hidden()) {
		v.send(position.Calls, v.turnID, v.result(v.calls[i], f))
	}
	if i >= 0 {
		v.calls = slices.Delete(v.calls, i, i+1)
	}
	if f.Outcome != record.Answered {
		v.cancelled(position.Calls, f.CallID, f.Error)
	}
}

func (v *view) result(c record.ToolCall, f *record.ToolResult) *agentdv1.RunResponse {
	r := &agentdv1.ToolCallAnswered{SessionId: v.sessionID, ToolCallId: c.ID, ToolName: c.Name, AgentPath: c.Path, Parts: f.Parts, CreatedBy: f.By, Warnings: WarningsProto("", f.Warnings)}
	if f.Output != nil {
		r.Result = &agentdv1.ToolCallAnswered_Output{Output: *f.Output}
	} else {
		r.Result = &agentdv1.ToolCallAnswered_Error{Error: f.Error}
	}
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallAnswered{ToolCallAnswered: r}}
}

func (v *view) cancelled(slot int, callID, reason string) {
	m := &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallCanceled{
		ToolCallCanceled: &agentdv1.ToolCallCanceled{SessionId: v.sessionID, ToolCallId: callID, Reason: reason},
	}}
	if v.asked[callID] || !v.hidden() {
		v.send(slot, v.turnID, m)
	}
}

func (v *view) end(f *record.TurnEnded, asking []*index.Interaction) {
	for i, c := range v.calls {
		slot := position.Calls + min(i, position.Close-position.Calls-1)
		if at := slices.IndexFunc(asking, func(in *index.Interaction) bool { return in.Call.ID == c.ID }); at >= 0 {
			v.resolved(slot, asking[at])
		} else {
			v.cancelled(slot, c.ID, "the turn ended")
		}
	}
	for _, path := range f.Spoke {
		v.speaker(path)
	}
	slices.SortStableFunc(v.speakers, func(a, b *speaker) int { return strings.Compare(a.key, b.key) })
	for i, s := range v.speakers {
		v.close(position.Close+min(i, position.Agents-position.Close-1), s)
	}
	v.endAgents(f)
	if f.Code != 0 {
		v.emit(position.Error, ErrorResponse(v.sessionID, f.Failure(v.turnID)))
	}
	end := &agentdv1.RunResponse_EndResponse{
		SessionId:    v.sessionID,
		UsageSummary: v.usage.Summary(),
		Completed:    f.Completed,
	}
	if f.Reason != "" {
		end.Reason = &f.Reason
	}
	if f.Receipt != nil {
		end.Receipt = f.Receipt.Proto()
	}
	if f.Completed && v.output != "" {
		end.StructuredOutput = Structured(v.output)
	}
	v.emit(position.End, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_End{End: end}})
}

// ErrorResponse returns the protocol's message for an error.
func ErrorResponse(sessionID string, err *fault.Error) *agentdv1.RunResponse {
	out := &agentdv1.RunResponse_ErrorResponse{
		SessionId: sessionID,
		Code:      err.Code,
		Message:   err.Message,
		Retryable: err.Retryable(),
		TurnId:    err.TurnID,
	}
	if err.RetryAfter > 0 {
		out.RetryAfter = durationpb.New(err.RetryAfter)
	}
	for _, v := range err.Violations {
		out.Violations = append(out.Violations, &agentdv1.FieldViolation{Field: v.Field, Rule: v.Rule})
	}
	if l := err.Limit; l != nil {
		out.Limit = &agentdv1.ExceededLimit{Name: l.Name, Value: l.Value, Received: l.Received}
	}
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Error{Error: out}}
}
