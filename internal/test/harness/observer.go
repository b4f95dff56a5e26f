package harness

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Observer holds the messages of one stream against what must be true of every
// stream. It is used by one goroutine.
type Observer struct {
	Faults []string

	Session    string
	seen       int
	Text       map[string]string // by agent path, without thoughts
	closed     map[string]bool   // agents whose last chunk has come
	spoke      map[string]bool
	said       map[string][2]int64 // bytes of text and thoughts, by message
	completed  map[string]bool     // by message
	Calls      []*agentdv1.RunResponse_ToolCallRequest
	Asked      map[string]bool // by call
	Cancelled  map[string]bool // by call
	answered   map[string]bool // by call
	lastCaller string          // the agent whose calls are being sent, "" between answers
	Errors     []*agentdv1.RunResponse_ErrorResponse
	Retries    []*agentdv1.ModelCallRetried
	Fallbacks  []*agentdv1.ModelCallFellBack
	tries      map[string]uint32 // of the present model that have failed, by message
	ModelCalls []*agentdv1.ModelCallEnded
	Heartbeats int
	agents     [][]string // those that have started and not ended
	End        *agentdv1.RunResponse_EndResponse
	together   int // how many calls an answer has
}

// NewObserver returns an observer of a stream whose model calls so many tools
// together.
func NewObserver(together int) *Observer {
	return &Observer{
		together: together,
		Text:     map[string]string{}, closed: map[string]bool{}, spoke: map[string]bool{},
		said: map[string][2]int64{}, completed: map[string]bool{},
		tries: map[string]uint32{},
		Asked: map[string]bool{}, Cancelled: map[string]bool{}, answered: map[string]bool{},
	}
}

func (o *Observer) faultf(format string, args ...any) {
	o.Faults = append(o.Faults, fmt.Sprintf(format, args...))
}

// See takes in the next message.
func (o *Observer) See(m *agentdv1.RunResponse) {
	if o.End != nil {
		o.faultf("%v follows EndResponse", m)
	}
	if first := o.seen == 0; first != (m.GetExecute() != nil) && !(first && m.GetError() != nil) {
		o.faultf("message %d is %v, ExecuteResponse comes first and once", o.seen+1, m)
	}
	o.seen++
	caller := ""
	switch r := m.GetResponse().(type) {
	case *agentdv1.RunResponse_Execute:
		o.Session = r.Execute.GetSessionId()
		o.inSession(o.Session)
	case *agentdv1.RunResponse_Heartbeat:
		o.Heartbeats++
		o.inSession(r.Heartbeat.GetSessionId())
	case *agentdv1.RunResponse_OutputChunk_:
		o.chunk(r.OutputChunk)
	case *agentdv1.RunResponse_ToolCall:
		caller = strings.Join(r.ToolCall.GetAgentPath(), "/")
		o.call(caller, r.ToolCall)
	case *agentdv1.RunResponse_ToolCallAnnounced:
		// The client came back when the call was settled, or has closed its side.
		o.inSession(r.ToolCallAnnounced.GetSessionId())
		o.Asked[r.ToolCallAnnounced.GetToolCallId()] = true
	case *agentdv1.RunResponse_ToolCallCanceled:
		id := r.ToolCallCanceled.GetToolCallId()
		o.settle(o.Cancelled, id)
		o.inSession(r.ToolCallCanceled.GetSessionId())
	case *agentdv1.RunResponse_ToolCallAnswered:
		a := r.ToolCallAnswered
		o.settle(o.answered, a.GetToolCallId())
		o.inSession(a.GetSessionId())
		if a.GetResult() == nil || a.GetToolName() == "" || len(a.GetAgentPath()) == 0 {
			o.faultf("a result that does not say what it is: %v", a)
		}
	case *agentdv1.RunResponse_Error:
		o.Errors = append(o.Errors, r.Error)
	case *agentdv1.RunResponse_ModelCallRetried:
		o.retry(r.ModelCallRetried)
	case *agentdv1.RunResponse_ModelCallFellBack:
		o.fallback(r.ModelCallFellBack)
	case *agentdv1.RunResponse_HistoryCompacted:
		o.inSession(r.HistoryCompacted.GetSessionId())
		if r.HistoryCompacted.GetSummary() == "" || len(r.HistoryCompacted.GetAgentPath()) == 0 {
			o.faultf("a summary that does not say what it is: %v", r.HistoryCompacted)
		}
	case *agentdv1.RunResponse_RemoteSession:
		o.inSession(r.RemoteSession.GetSessionId())
		if r.RemoteSession.GetBackend() == "" || len(r.RemoteSession.GetAgentPath()) == 0 {
			o.faultf("a remote session that does not say whose it is: %v", r.RemoteSession)
		}
	case *agentdv1.RunResponse_ModelCallEnded:
		o.modelCall(r.ModelCallEnded)
	case *agentdv1.RunResponse_ProviderToolsUsed:
		p := r.ProviderToolsUsed
		o.inSession(p.GetSessionId())
		if len(p.GetAgentPath()) == 0 || p.GetMessageId() == "" || len(p.GetUses())+len(p.GetCitations()) == 0 {
			o.faultf("provider tools that do not say what they are: %v", p)
		}
	case *agentdv1.RunResponse_RawPayloadReceived:
		p := r.RawPayloadReceived
		o.inSession(p.GetSessionId())
		if len(p.GetAgentPath()) == 0 || p.GetMessageId() == "" || p.GetAttempt() < 1 ||
			p.GetStatus() < 100 || p.GetProvider() == "" {
			o.faultf("a raw payload that does not say what it is: %v", p)
		}
	case *agentdv1.RunResponse_MessageCompleted:
		o.complete(r.MessageCompleted)
	case *agentdv1.RunResponse_AgentStarted:
		o.agentStarts(r.AgentStarted)
	case *agentdv1.RunResponse_AgentEnded:
		o.agentEnds(r.AgentEnded)
	case *agentdv1.RunResponse_Transferred:
		o.inSession(r.Transferred.GetSessionId())
		from, to := r.Transferred.GetAgentPath(), r.Transferred.GetToAgentPath()
		if len(from) == 0 || len(to) == 0 || from[0] != to[0] || slices.Equal(from, to) {
			o.faultf("a transfer from %q to %q, which are no two agents of one tree", from, to)
		}
	case *agentdv1.RunResponse_StateUpdate_:
		o.inSession(r.StateUpdate.GetSessionId())
	case *agentdv1.RunResponse_TurnQueued:
		o.inSession(r.TurnQueued.GetSessionId())
	case *agentdv1.RunResponse_MessageInjected:
		o.inSession(r.MessageInjected.GetSessionId())
		if r.MessageInjected.GetUserPrompt() == "" {
			o.faultf("a message of the user that says nothing: %v", r.MessageInjected)
		}
	case *agentdv1.RunResponse_End:
		o.End = r.End
		o.inSession(r.End.GetSessionId())
		for agent := range o.spoke {
			if !o.closed[agent] {
				o.faultf("%s has spoken and had no last chunk", agent)
			}
		}
		o.usage(r.End.GetUsageSummary())
		if len(o.agents) > 0 {
			o.faultf("agents that have started and not ended: %q", o.agents)
		}
	default:
		o.faultf("a message of unknown kind: %v", m)
	}
	// What is no event of the turn has no place among those that WatchTurn sends.
	if m.GetTurnId() != "" || current == nil || current.over == OverRun {
		o.lastCaller = caller
	}
}

func (o *Observer) inSession(id string) {
	if id == "" || id != o.Session {
		o.faultf("a message of session %q on the stream of %q", id, o.Session)
	}
}

// settle takes note of what becomes of a call, which is said once.
func (o *Observer) settle(as map[string]bool, id string) {
	if !o.Asked[id] || o.Cancelled[id] || o.answered[id] {
		o.faultf("call %s is settled, asked %v, cancelled before %v, answered before %v",
			id, o.Asked[id], o.Cancelled[id], o.answered[id])
	}
	as[id] = true
}

// complete checks that a message is told to be complete when all of it was, and once.
func (o *Observer) complete(c *agentdv1.MessageCompleted) {
	o.inSession(c.GetSessionId())
	id := c.GetMessageId()
	said := o.said[id]
	if id == "" || len(c.GetAgentPath()) == 0 ||
		said != [2]int64{c.GetTextBytes(), c.GetThoughtBytes()} || o.completed[id] {
		o.faultf("%v, after %d bytes of text and thoughts; completed before %v", c, said, o.completed[id])
	}
	o.completed[id] = true
}

// agentStarts checks that an agent says what it is, and does not run yet.
func (o *Observer) agentStarts(a *agentdv1.AgentStarted) {
	o.inSession(a.GetSessionId())
	if o.agentAt(a.GetAgentPath()) >= 0 || len(a.GetAgentPath()) == 0 || a.GetKind() == 0 ||
		(a.GetModel() != "") != (a.GetKind() == agentdv1.AgentKind_AGENT_KIND_LLM) {
		o.faultf("%v, while %q are at work", a, o.agents)
	}
	o.agents = append(o.agents, a.GetAgentPath())
}

// agentEnds checks that only an agent that has started ends.
func (o *Observer) agentEnds(a *agentdv1.AgentEnded) {
	o.inSession(a.GetSessionId())
	at := o.agentAt(a.GetAgentPath())
	if at < 0 || a.GetOutcome() == 0 {
		o.faultf("%v, while %q are at work", a, o.agents)
		return
	}
	o.agents = slices.Delete(o.agents, at, at+1)
}

func (o *Observer) agentAt(path []string) int {
	return slices.IndexFunc(o.agents, func(p []string) bool { return slices.Equal(p, path) })
}

// retry checks that the tries of a call are told one by one.
func (o *Observer) retry(r *agentdv1.ModelCallRetried) {
	o.inSession(r.GetSessionId())
	o.tries[r.GetMessageId()]++
	failed := o.tries[r.GetMessageId()]
	if r.GetAttempt() != failed || r.GetMessageId() == "" || len(r.GetAgentPath()) == 0 ||
		r.GetMessage() == "" || r.GetCode() == 0 || r.GetWait().AsDuration() < 0 {
		o.faultf("retry %v, want that of try %d", r, failed)
	}
	o.Retries = append(o.Retries, r)
}

// fallback checks that a change of the model says what was changed, and follows the
// one before.
func (o *Observer) fallback(f *agentdv1.ModelCallFellBack) {
	o.inSession(f.GetSessionId())
	if len(f.GetAgentPath()) == 0 || f.GetModel() == "" || f.GetNextModel() == "" ||
		f.GetCode() == 0 || f.GetMessage() == "" {
		o.faultf("a change of the model that does not say what it is: %v", f)
	}
	for _, before := range slices.Backward(o.Fallbacks) {
		if before.GetMessageId() == f.GetMessageId() && f.GetMessageId() != "" { // those of summaries are of several
			if before.GetNextModel() != f.GetModel() {
				o.faultf("%s takes the place of %s, which was not called: the model was %s",
					f.GetNextModel(), f.GetModel(), before.GetNextModel())
			}
			break
		}
	}
	o.tries[f.GetMessageId()] = 0
	o.Fallbacks = append(o.Fallbacks, f)
}

// modelCall checks that a call says whose it was, and that its answer is told once.
func (o *Observer) modelCall(c *agentdv1.ModelCallEnded) {
	o.inSession(c.GetSessionId())
	if len(c.GetAgentPath()) == 0 || c.GetModel() == "" || c.GetProvider() == "" ||
		c.GetUsage() == nil || c.GetUsage().GetModelCalls() < 1 ||
		c.GetMessageId() != "" && c.GetStopReason() == 0 {
		o.faultf("a model call that does not say what it was: %v", c)
	}
	answered := c.GetOutcome() == agentdv1.ModelCallEnded_OUTCOME_ANSWERED
	if answered != (c.GetMessageId() != "") || c.GetOutcome() == agentdv1.ModelCallEnded_OUTCOME_UNSPECIFIED {
		o.faultf("what has come of a model call is %v: %v", c.GetOutcome(), c)
	}
	for _, before := range o.ModelCalls {
		if c.GetMessageId() != "" && before.GetMessageId() == c.GetMessageId() {
			o.faultf("the model call of message %s ends twice", c.GetMessageId())
		}
	}
	o.ModelCalls = append(o.ModelCalls, c)
}

// usage holds the sum of the turn against its model calls.
func (o *Observer) usage(sum *agentdv1.UsageSummary) {
	if sum == nil {
		o.faultf("EndResponse has no usage")
		return
	}
	got := agentdv1.UsageSummary{TotalUsage: &agentdv1.TokenUsage{}}
	for _, c := range o.ModelCalls {
		u := c.GetUsage()
		got.LlmCalls += int32(u.GetModelCalls())
		got.TotalUsage.PromptTokens += int32(u.GetPromptTokens())
		got.TotalUsage.CompletionTokens += int32(u.GetCompletionTokens())
		got.TotalUsage.CachedTokens += int32(u.GetCachedTokens())
		got.TotalUsage.ThoughtsTokens += int32(u.GetThoughtsTokens())
		got.TotalUsage.TotalTokens += int32(u.GetTotalTokens())
		got.TotalUsage.CacheWriteTokens += int32(u.GetCacheWriteTokens())
		got.EstimatedCost += u.GetCostUsd()
		got.UnpricedCalls += int32(u.GetUnpricedCalls())
	}
	if math.Abs(got.GetEstimatedCost()-sum.GetEstimatedCost()) < 1e-9 {
		got.EstimatedCost = sum.GetEstimatedCost()
	}
	if !proto.Equal(&got, sum) {
		o.faultf("the model calls took %v, the turn says %v", &got, sum)
	}
}

func (o *Observer) chunk(c *agentdv1.RunResponse_OutputChunk) {
	agent := strings.Join(c.GetAgentPath(), "/")
	o.inSession(c.GetSessionId())
	if o.closed[agent] {
		o.faultf("%s speaks after its last chunk: %q", agent, c.GetContent())
	}
	if c.GetContent() == "" && !c.GetLast() {
		o.faultf("%s says nothing, and it is not its last chunk", agent)
	}
	o.spoke[agent] = true
	o.closed[agent] = c.GetLast()
	said := o.said[c.GetMessageId()]
	if !c.GetIsThought() {
		o.Text[agent] += c.GetContent()
		said[0] += int64(len(c.GetContent()))
	} else {
		said[1] += int64(len(c.GetContent()))
	}
	o.said[c.GetMessageId()] = said
}

func (o *Observer) call(agent string, c *agentdv1.RunResponse_ToolCallRequest) {
	o.inSession(c.GetSessionId())
	if o.Asked[c.GetToolCallId()] || c.GetToolCallId() == "" {
		o.faultf("call id %q is not unique", c.GetToolCallId())
	}
	// Of an agent's answer with n calls the call before stands right before.
	n := 0
	for _, before := range o.Calls {
		if strings.Join(before.GetAgentPath(), "/") == agent {
			n++
		}
	}
	if n%o.together != 0 && o.lastCaller != agent {
		o.faultf("call %d of %s comes apart from those of the same answer", n+1, agent)
	}
	o.Asked[c.GetToolCallId()] = true
	o.Calls = append(o.Calls, c)
}
