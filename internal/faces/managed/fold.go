package managed

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// The statuses of a session and of a thread.
const (
	statusRunning      = "running"
	statusIdle         = "idle"
	statusRescheduling = "rescheduling"
	statusTerminated   = "terminated"
)

// fold makes the events of the protocol from those of agentd, in order, from the beginning of a session or from the
// end of one of its turns. What it makes follows from what it was given alone, so that a list, a stream and a reader
// after a restart see the same events. One goroutine owns it.
type fold struct {
	sessionID string
	tag       string   // of its ids, "" before the first
	out       []*event // of the event that is being read
	now       *agentdv1.RunResponse

	running
}

// running is what a fold knows of the turn that runs. The zero value is that of no turn.
type running struct {
	turn     string // "" if none runs
	idle     bool   // it only waits for its client
	agents   []*agent
	calls    map[string]*call // by tool call id
	order    []*call          // the same, in the order asked
	expected int              // calls of the last response that are still to come
	held     *event           // the end of its model call, which goes out behind them
	lost     []*call          // those that were canceled and of which that is not yet said
	texts    map[string]*said // by message id
	retract  int64
	failed   *agentdv1.RunResponse_ErrorResponse
}

// agent is an agent that runs and calls a model.
type agent struct {
	path     []string
	span     string // the id of the start of its model call, "" for none
	works    bool   // it does not only wait for results
	retrying bool   // its model call failed and is made again
}

// call is a tool call, or a question to a person.
type call struct {
	id     string // the tool call id
	event  string // the id of its event
	name   string
	path   []string
	asks   string // the interaction, "" for a call that nobody is asked about
	gated  bool   // it was an agent.tool_use
	done   bool
	reason string // of one that was canceled
}

// said is what an agent has said of a message so far.
type said struct {
	text    []byte
	thought bool
	path    []string
}

// add returns the events that one of agentd becomes.
func (f *fold) add(e *agentdv1.RunResponse) []*event {
	f.out, f.now = nil, e
	if e.GetSeq() == 0 {
		return nil
	}
	if len(f.lost) > 0 && !endsTurn(e) {
		f.tellLost()
	}
	switch r := e.GetResponse().(type) {
	case *agentdv1.RunResponse_Execute:
		f.begin(e)
	case *agentdv1.RunResponse_TurnQueued:
		f.put(slotSelf, "user.message", nil,
			field{"content", contentOf(r.TurnQueued.GetUserPrompt(), r.TurnQueued.GetUserParts())})
		f.prompted(e.GetTurnId()).queued = true
	case *agentdv1.RunResponse_MessageInjected:
		f.put(slotSelf, "user.message", nil,
			field{"content", contentOf(r.MessageInjected.GetUserPrompt(), r.MessageInjected.GetUserParts())})
		f.prompted(r.MessageInjected.GetQueuedTurnId())
	case *agentdv1.RunResponse_AgentStarted:
		f.agentStarted(r.AgentStarted)
	case *agentdv1.RunResponse_AgentEnded:
		f.agentEnded(r.AgentEnded.GetAgentPath())
	case *agentdv1.RunResponse_OutputChunk_:
		f.chunk(r.OutputChunk)
	case *agentdv1.RunResponse_MessageRetracted:
		f.retract = e.GetSeq()
		f.texts = nil
	case *agentdv1.RunResponse_MessageCompleted:
		f.messageCompleted(r.MessageCompleted)
	case *agentdv1.RunResponse_ModelCallEnded:
		f.modelCallEnded(r.ModelCallEnded)
	case *agentdv1.RunResponse_ModelCallRetried:
		f.retried(r.ModelCallRetried)
	case *agentdv1.RunResponse_ProviderToolsUsed:
		f.providerTools(r.ProviderToolsUsed)
	case *agentdv1.RunResponse_ToolCallAnnounced:
		c := r.ToolCallAnnounced
		f.called(&call{id: c.GetToolCallId(), name: c.GetToolName(), path: c.GetAgentPath()}, c.GetToolInput())
	case *agentdv1.RunResponse_ToolCall:
		c := r.ToolCall
		f.called(&call{id: c.GetToolCallId(), name: c.GetToolName(), path: c.GetAgentPath()}, c.GetToolInput())
	case *agentdv1.RunResponse_InteractionRequested:
		f.asked(r.InteractionRequested.GetInteraction())
	case *agentdv1.RunResponse_InteractionResolved:
		f.resolved(r.InteractionResolved.GetInteraction())
	case *agentdv1.RunResponse_ToolCallAnswered:
		f.answered(r.ToolCallAnswered)
	case *agentdv1.RunResponse_ToolCallCanceled:
		f.lose(f.calls[r.ToolCallCanceled.GetToolCallId()], r.ToolCallCanceled.GetReason())
	case *agentdv1.RunResponse_Error:
		f.failedWith(e.GetTurnId(), r.Error)
	case *agentdv1.RunResponse_End:
		f.end(e.GetTurnId(), r.End)
	}
	if f.blocked() && !f.idle {
		f.idle = true
		f.put(slotIdle, "session.status_idle", nil,
			field{"stop_reason", stopReason{"requires_action", f.openIDs()}}, field{"stop_details", nil})
	}
	return f.out
}

// endsTurn reports whether an event is one of those with which a turn ends.
func endsTurn(e *agentdv1.RunResponse) bool {
	in := e.GetInteractionResolved().GetInteraction()
	return e.GetToolCallCanceled() != nil || e.GetAgentEnded() != nil || e.GetError() != nil || e.GetEnd() != nil ||
		e.GetOutputChunk() != nil && e.GetOutputChunk().GetContent() == "" ||
		in.GetStatus() == agentdv1.InteractionStatus_INTERACTION_STATUS_CANCELED
}

// put adds an event with an id made of the seq and a slot.
func (f *fold) put(slot int, kind string, path []string, fields ...field) {
	f.emit(f.event(slot, kind, path, fields...))
}

// event makes an event that emit adds, now or later.
func (f *fold) event(slot int, kind string, path []string, fields ...field) *event {
	return &event{
		id: f.idOf(slot), kind: kind, at: f.now.GetTime().AsTime(), path: path, fields: fields,
	}
}

func (f *fold) emit(e *event) {
	e.place = place{f.now.GetSeq(), len(f.out)}
	f.out = append(f.out, e)
}

// id is an id of an event of the session.
func (f *fold) id(rest string) string {
	if f.tag == "" {
		f.tag = tagOf(f.sessionID)
	}
	return f.tag + rest
}

// idOf is eventID for the event that is being read.
func (f *fold) idOf(slot int) string { return f.id(fmt.Sprintf("%016x%02x", f.now.GetSeq(), slot)) }

// messageID names a message of an agent: what is said once more, after a retract, has another id.
func (f *fold) messageID(id string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", id, f.retract))
	return f.id("m" + hex.EncodeToString(sum[:12]))
}

// prompted names the last event by the turn whose message it is.
func (f *fold) prompted(turnID string) *event {
	e := f.last()
	e.id, e.turn = f.id("u"+turnID), turnID
	return e
}

func (f *fold) last() *event { return f.out[len(f.out)-1] }

// clean reports whether a fold that begins here makes the same of what follows.
func (f *fold) clean() bool { return f.turn == "" }

// status is that of the session.
func (f *fold) status() string {
	switch {
	case f.turn == "", f.idle:
		return statusIdle
	case slices.ContainsFunc(f.agents, func(a *agent) bool { return a.retrying }):
		return statusRescheduling
	}
	return statusRunning
}

func (f *fold) begin(e *agentdv1.RunResponse) {
	f.running = running{turn: e.GetTurnId(), calls: map[string]*call{}}
	f.put(slotSelf, "user.message", nil)
	f.prompted(f.turn).prompt = f.turn
	f.put(slotRunning, "session.status_running", nil)
}

// agent returns an agent that runs, nil for none.
func (f *fold) agent(path []string) *agent {
	i := slices.IndexFunc(f.agents, func(a *agent) bool { return slices.Equal(a.path, path) })
	if i < 0 {
		return nil
	}
	return f.agents[i]
}

func (f *fold) agentStarted(s *agentdv1.AgentStarted) {
	if s.GetKind() != agentdv1.AgentKind_AGENT_KIND_LLM || f.turn == "" {
		return
	}
	a := &agent{path: s.GetAgentPath(), works: true}
	f.agents = append(f.agents, a)
	f.wake() // beside agents that wait
	f.spanStart(a)
}

// wake says that the session runs again, if it was idle.
func (f *fold) wake() {
	if f.idle {
		f.idle = false
		f.put(slotRunning, "session.status_running", nil)
	}
}

func (f *fold) agentEnded(path []string) {
	a := f.agent(path)
	if a == nil {
		return
	}
	f.agents = slices.DeleteFunc(f.agents, func(b *agent) bool { return a == b })
	if a.span != "" {
		f.emit(f.spanEnd(a, true, nil))
	}
}

// spanStart says that an agent calls its model.
func (f *fold) spanStart(a *agent) {
	a.span = f.idOf(slotSpanStart)
	f.put(slotSpanStart, "span.model_request_start", a.path)
}

// spanEnd makes the event that ends the model call of an agent.
func (f *fold) spanEnd(a *agent, failed bool, u *agentdv1.Usage) *event {
	start := a.span
	a.span = ""
	return f.event(slotSpanEnd, "span.model_request_end", a.path,
		field{"model_request_start_id", start}, field{"is_error", failed}, field{"model_usage", modelUsageOf(u)})
}

func (f *fold) modelCallEnded(m *agentdv1.ModelCallEnded) {
	a := f.agent(m.GetAgentPath())
	if a == nil {
		a = &agent{path: m.GetAgentPath()} // of an agent that is not said to run: its call is told and no more
	}
	if a.span == "" { // its second call in a row: the first one was not of a client
		f.spanStart(a)
	}
	end := f.spanEnd(a, m.GetOutcome() == agentdv1.ModelCallEnded_OUTCOME_FAILED, m.GetUsage())
	a.retrying = false
	if n := m.GetToolCalls(); n > 0 {
		a.works, f.expected, f.held = false, int(n), end
		return
	}
	f.emit(end)
}

func (f *fold) retried(r *agentdv1.ModelCallRetried) {
	if a := f.agent(r.GetAgentPath()); a != nil {
		a.retrying = true
	}
	f.put(slotError, "session.error", r.GetAgentPath(),
		field{"error", turnErrorOf(r.GetCode(), r.GetMessage(), "retrying")})
}

func (f *fold) chunk(c *agentdv1.RunResponse_OutputChunk) {
	if a := f.agent(c.GetAgentPath()); a != nil {
		a.retrying = false
	}
	if c.GetContent() == "" || c.GetMessageId() == "" {
		return
	}
	s := f.texts[c.GetMessageId()]
	if s == nil {
		if f.texts == nil {
			f.texts = map[string]*said{}
		}
		s = &said{path: c.GetAgentPath()}
		f.texts[c.GetMessageId()] = s
	}
	if c.GetIsThought() {
		s.thought = true
	} else {
		s.text = append(s.text, c.GetContent()...)
	}
}

func (f *fold) messageCompleted(m *agentdv1.MessageCompleted) {
	s := f.texts[m.GetMessageId()]
	delete(f.texts, m.GetMessageId())
	if m.GetThoughtBytes() > 0 {
		f.put(slotThinking, "agent.thinking", m.GetAgentPath())
	}
	if m.GetTextBytes() > 0 && s != nil {
		f.put(slotSelf, "agent.message", m.GetAgentPath(), field{"content", contentOf(string(s.text), nil)})
		f.last().id = f.messageID(m.GetMessageId())
	}
}

// providerTools tells what a provider has run, as far as there are slots.
func (f *fold) providerTools(p *agentdv1.ProviderToolsUsed) {
	for i, u := range p.GetUses() {
		slot := slotProvider + 2*i
		if slot+1 >= maxSlots {
			return
		}
		f.put(slot, "agent.tool_use", p.GetAgentPath(), field{"name", u.GetToolName()},
			field{"input", jsonObject(u.GetInput())}, field{"evaluated_permission", "allow"},
			field{"session_thread_id", threadID(f.sessionID, p.GetAgentPath())})
		id, text := f.last().id, textOfJSON(u.GetOutput())
		if u.GetError() != "" {
			text = u.GetError()
		}
		f.put(slot+1, "agent.tool_result", p.GetAgentPath(), field{"tool_use_id", id},
			field{"content", contentOf(text, nil)}, field{"is_error", u.GetError() != ""})
	}
}

// textOfJSON returns the text that a JSON string has, and other JSON as it is.
func textOfJSON(output string) string {
	var text string
	if json.Unmarshal([]byte(output), &text) == nil && strings.HasPrefix(output, `"`) {
		return text
	}
	return output
}
