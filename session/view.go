package session

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// view renders the facts and hints of one turn as protocol messages. It is a
// function of what it is given, in order: text that a delta has shown is not
// shown again by the event that completes the message. It is used by one
// goroutine.
type view struct {
	sessionID string
	turnID    string
	snapshot  map[string]any

	out      []*agentdv1.RunResponse
	shown    map[string]*streamed // what has been shown of unfinished messages
	speakers []*speaker           // agents that spoke, in order of their first word
	calls    []string             // open calls, in order
	usage    Usage
	joining  *joining // the chunk at the end of out, while it may grow
}

// speaker is an agent that spoke in the turn.
type speaker struct {
	key    string
	path   []string
	closed bool // its last chunk has been sent
}

// joining is a chunk to which following deltas of the same message are added.
type joining struct {
	messageID string
	chunk     *agentdv1.RunResponse_OutputChunk
	text      strings.Builder
}

func newView(sessionID string, t *Turn) *view {
	return &view{sessionID: sessionID, turnID: t.id, snapshot: t.snapshot, shown: map[string]*streamed{}}
}

// take returns the messages rendered since the last call.
func (v *view) take() []*agentdv1.RunResponse {
	v.finishJoin()
	out := v.out
	v.out = nil
	return out
}

// delta shows the part of a piece of text that has not been shown. offset is
// how much of the message and kind came before it.
func (v *view) delta(d *Delta, offset int) {
	m := v.shown[d.MessageID]
	if m == nil {
		m = &streamed{}
		v.shown[d.MessageID] = m
	}
	sent := m.of(d.Thought)
	if offset > *sent || offset+len(d.Text) <= *sent {
		return // a gap, which the event that completes the message fills, or nothing new
	}
	text := d.Text[*sent-offset:]
	*sent += len(text)
	v.speaker(d.Path)
	if j := v.joining; j != nil && j.messageID == d.MessageID && j.chunk.IsThought == d.Thought {
		j.text.WriteString(text)
		return
	}
	v.finishJoin()
	j := &joining{messageID: d.MessageID, chunk: v.chunk(d.Path, "", d.Thought)}
	j.text.WriteString(text)
	v.joining = j
}

// seen is how much of a message and kind has been shown, in bytes.
func (v *view) seen(d *Delta) int {
	if m := v.shown[d.MessageID]; m != nil {
		return *m.of(d.Thought)
	}
	return 0
}

func (v *view) finishJoin() {
	if v.joining != nil {
		v.joining.chunk.Content = v.joining.text.String()
		v.joining = nil
	}
}

// fact renders what a record says and reports whether it was the turn's end.
func (v *view) fact(fact any) (end bool) {
	v.finishJoin()
	switch f := fact.(type) {
	case *TurnStarted:
		v.add(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_Execute{
			Execute: &agentdv1.RunResponse_ExecuteResponse{SessionId: v.sessionID},
		}})
		v.state(v.snapshot)
	case *Event:
		v.event(f)
	case *ToolCall:
		v.call(*f)
	case *ToolResult:
		v.calls = slices.DeleteFunc(v.calls, func(id string) bool { return id == f.CallID })
		if f.Outcome != Answered {
			v.cancelled(f.CallID, f.Error)
		}
	case *TurnEnded:
		v.end(f)
		return true
	}
	return false
}

func (v *view) event(ev *Event) {
	if m := v.shown[ev.MessageID]; m != nil {
		delete(v.shown, ev.MessageID)
		v.text(ev.Path, cut(ev.Thoughts, m.thoughts), true)
		v.text(ev.Path, cut(ev.Text, m.text), false)
	} else {
		v.text(ev.Path, ev.Thoughts, true)
		v.text(ev.Path, ev.Text, false)
	}
	if ev.Usage != nil {
		v.usage = v.usage.Add(*ev.Usage)
	}
	if ev.Last {
		if i := v.find(ev.Path); i >= 0 {
			v.close(v.speakers[i])
		}
	}
	v.state(ev.State)
	for _, call := range ev.Calls {
		v.call(call)
	}
}

// cut returns s without its first n bytes.
func cut(s string, n int) string { return s[min(n, len(s)):] }

func (v *view) text(path []string, text string, thought bool) {
	if text != "" {
		v.speaker(path)
		v.chunk(path, text, thought)
	}
}

func (v *view) chunk(path []string, text string, thought bool) *agentdv1.RunResponse_OutputChunk {
	c := &agentdv1.RunResponse_OutputChunk{SessionId: v.sessionID, AgentPath: path, Content: text, IsThought: thought}
	v.add(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_OutputChunk_{OutputChunk: c}})
	return c
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

// close sends an agent's last chunk: the one that just went out if it is the
// agent's and can be marked, else an empty one.
func (v *view) close(s *speaker) {
	if s.closed {
		return
	}
	s.closed = true
	if n := len(v.out); n > 0 {
		if c := v.out[n-1].GetOutputChunk(); c != nil && !c.IsThought && strings.Join(c.AgentPath, "/") == s.key {
			c.Last = true
			return
		}
	}
	v.chunk(s.path, "", false).Last = true
}

func (v *view) state(delta map[string]any) {
	if len(delta) == 0 {
		return
	}
	v.add(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_StateUpdate_{
		StateUpdate: &agentdv1.RunResponse_StateUpdate{SessionId: v.sessionID, StateDelta: toStruct(delta)},
	}})
}

func (v *view) call(c ToolCall) {
	v.calls = append(v.calls, c.ID)
	v.add(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCall{
		ToolCall: &agentdv1.RunResponse_ToolCallRequest{
			SessionId:  v.sessionID,
			ToolCallId: c.ID,
			ToolName:   c.Name,
			ToolInput:  string(c.Input),
			AgentPath:  c.Path,
		},
	}})
}

func (v *view) cancelled(callID, reason string) {
	v.add(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCancelled_{
		ToolCancelled: &agentdv1.RunResponse_ToolCancelled{SessionId: v.sessionID, ToolCallId: callID, Reason: reason},
	}})
}

func (v *view) end(f *TurnEnded) {
	for _, id := range v.calls {
		v.cancelled(id, "the turn ended")
	}
	for _, s := range v.speakers {
		v.close(s)
	}
	if f.Code != 0 {
		v.add(ErrorResponse(v.sessionID, &Error{Code: f.Code, Message: f.Message}))
	}
	end := &agentdv1.RunResponse_EndResponse{
		SessionId:    v.sessionID,
		UsageSummary: v.usage.proto(),
		Completed:    f.Completed,
	}
	if f.Reason != "" {
		end.Reason = &f.Reason
	}
	v.add(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_End{End: end}})
}

// fail ends the turn for the client when its end could not be recorded.
func (v *view) fail(err *Error) {
	v.finishJoin()
	v.end(&TurnEnded{Code: err.Code, Message: err.Message, Reason: err.Message})
}

func (v *view) add(m *agentdv1.RunResponse) { v.out = append(v.out, m) }

// ErrorResponse returns the protocol's message for an error.
func ErrorResponse(sessionID string, err *Error) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Error{
		Error: &agentdv1.RunResponse_ErrorResponse{
			SessionId: sessionID,
			Code:      err.Code,
			Message:   err.Message,
			Retryable: err.Retryable(),
		},
	}}
}

func (u Usage) proto() *agentdv1.UsageSummary {
	return &agentdv1.UsageSummary{
		TotalUsage: &agentdv1.TokenUsage{
			PromptTokens:     clamp(u.Prompt),
			CompletionTokens: clamp(u.Completion),
			CachedTokens:     clamp(u.Cached),
			ThoughtsTokens:   clamp(u.Thoughts),
			TotalTokens:      clamp(u.Total),
		},
		LlmCalls:      clamp(u.Calls),
		EstimatedCost: u.CostUSD,
	}
}

// clamp keeps a count within the protocol's int32.
func clamp(n int64) int32 { return int32(min(max(n, 0), 1<<31-1)) }

// toStruct converts by way of JSON, so that numbers of any kind pass.
func toStruct(m map[string]any) *structpb.Struct {
	s := &structpb.Struct{}
	data, err := marshal(m)
	if err == nil {
		err = protojson.Unmarshal(data, s)
	}
	if err != nil {
		return &structpb.Struct{} // not reached: m came out of JSON
	}
	return s
}
