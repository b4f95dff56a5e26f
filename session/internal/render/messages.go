package render

import (
	"slices"
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/record"
)

// event renders what an event states that its deltas have not shown.
func (v *view) event(ev *record.Event, offered []string) {
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
	v.remote(position.Remote, ev.Remote)
	for i, call := range ev.Calls {
		v.call(position.Calls+i, call, offered)
	}
}

// text renders a text of an event.
func (v *view) text(slot int, ev *record.Event, text string, thought bool) {
	if text != "" {
		c := v.chunk(ev.MessageID, ev.Path, thought)
		c.Content = text
		v.emit(slot, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_OutputChunk_{OutputChunk: c}})
	}
}

func (v *view) chunk(messageID string, path []string, thought bool) *agentdv1.RunResponse_OutputChunk {
	return &agentdv1.RunResponse_OutputChunk{
		SessionId: v.sessionID, AgentPath: path, IsThought: thought, MessageId: messageID,
	}
}

// completed renders that a message is complete.
func (v *view) completed(ev *record.Event) {
	if ev.MessageID == "" || ev.Text == "" && ev.Thoughts == "" || v.hidden() {
		return
	}
	v.kept(position.Completed, position.Completed, func() *agentdv1.RunResponse {
		return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_MessageCompleted{
			MessageCompleted: &agentdv1.MessageCompleted{
				SessionId: v.sessionID, AgentPath: ev.Path, MessageId: ev.MessageID,
				TextBytes: int64(len(ev.Text)), ThoughtBytes: int64(len(ev.Thoughts)),
			},
		}}
	})
}

// transferred renders which agent continues the turn.
func (v *view) transferred(ev *record.Event) {
	if len(ev.To) == 0 {
		return
	}
	v.emit(position.Transfer, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Transferred{
		Transferred: &agentdv1.Transferred{SessionId: v.sessionID, AgentPath: ev.Path, ToAgentPath: ev.To},
	}})
}

// speaker is an agent that spoke in the turn.
type speaker struct {
	key    string
	path   []string
	closed bool // its last chunk has been sent
}

// speaker notes that an agent spoke.
func (v *view) speaker(path []string) {
	if v.find(path) < 0 {
		v.speakers = append(v.speakers, &speaker{key: strings.Join(path, "/"), path: path})
	}
}

// find returns the place of an agent among the speakers, -1 for none.
func (v *view) find(path []string) int {
	key := strings.Join(path, "/")
	return slices.IndexFunc(v.speakers, func(s *speaker) bool { return s.key == key })
}

// close renders an agent's last chunk.
func (v *view) close(slot int, s *speaker) {
	if s.closed {
		return
	}
	s.closed = true
	c := v.chunk("", s.path, false)
	c.Last = true
	v.emit(slot, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_OutputChunk_{OutputChunk: c}})
}

// state renders a change of the state.
func (v *view) state(slot int, delta map[string]any) {
	if len(delta) > 0 {
		update := stateUpdate(delta)
		update.SessionId = v.sessionID
		v.emit(slot, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_StateUpdate_{StateUpdate: update}})
	}
}
