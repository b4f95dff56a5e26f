package chaos

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// what is the kind of a message.
type what string

const (
	sawStart     what = "start"
	sawState     what = "state"
	sawText      what = "text"
	sawThought   what = "thought"
	sawLast      what = "last chunk"
	sawCall      what = "call"
	sawNotice    what = "notice"
	sawCancelled what = "cancelled call"
	sawResult    what = "result"
	sawRetract   what = "retract"
	sawError     what = "error"
	sawEnd       what = "end"
	sawCost      what = "cost of a call"
	sawModel     what = "event of a model"
	sawGoal      what = "event of a goal"
	sawOther     what = "other"
)

// seen is a message as somebody has got it.
type seen struct {
	seq    int64
	turn   string
	what   what
	id     string // of the message or the call
	text   string // of a chunk; of anything else all that it says
	stamp  time.Time
	opened time.Time // the stream it came on; zero for events of a client
}

// fact tells whether the message stands for a record of the log: text on its way
// does not, nor do answers to a client's own messages.
func (s seen) fact() bool {
	return s.seq > 0 && !s.stamp.IsZero() && s.what != sawText && s.what != sawThought
}

// chain is what came to somebody in one piece: from a position on, over as many
// streams as it took.
type chain struct {
	who    string
	after  int64 // -1: it begins with its first message
	last   int64
	events bool // a client's events; they leave out some messages
	msgs   []seen
}

func (c *chain) add(s seen) {
	if c.after < 0 && s.seq > 0 {
		c.after = s.seq - 1
	}
	c.last = max(c.last, s.seq)
	c.msgs = append(c.msgs, s)
}

// chains collects what comes to one client or watcher.
type chains struct {
	who    string
	events bool

	mu  sync.Mutex // protects all and the chains in it
	all []*chain
}

// from returns the chain that goes on after a position; -1 begins a new one.
func (c *chains) from(after int64) *chain {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.all); n > 0 && after >= 0 && c.all[n-1].last == after {
		return c.all[n-1]
	}
	next := &chain{who: c.who, after: after, last: max(after, 0), events: c.events}
	c.all = append(c.all, next)
	return next
}

func (c *chains) add(to *chain, s seen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to.add(s)
}

// last is the last position that has come.
func (c *chains) last() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := int64(0)
	for _, ch := range c.all {
		last = max(last, ch.last)
	}
	return last
}

// recorder keeps the messages of all streams of a client, as they come off the
// wire.
type recorder struct {
	chains

	timing  sync.Mutex // protects the fields below
	streams int
	caught  []time.Duration // from the opening of a stream that attaches to the last message that is replayed
}

var _ connect.Interceptor = (*recorder)(nil)

func (*recorder) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

func (*recorder) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func (r *recorder) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		return &recorded{StreamingClientConn: next(ctx, spec), to: r, opened: time.Now()}
	}
}

// recorded is one stream.
type recorded struct {
	connect.StreamingClientConn
	to     *recorder
	opened time.Time

	mu      sync.Mutex // protects the fields below
	chain   *chain
	attach  bool
	live    bool // something that is not replayed has come
	replays time.Duration
}

func (r *recorded) Send(msg any) error {
	if m, ok := msg.(*agentdv1.RunRequest); ok && (m.GetExecute() != nil || m.GetAttach() != nil) {
		after := int64(-1)
		if at := m.GetAttach(); at != nil && at.AfterSeq != nil {
			after = at.GetAfterSeq()
		}
		r.mu.Lock()
		r.chain = r.to.from(after)
		r.attach = m.GetAttach() != nil
		r.mu.Unlock()
		r.to.timing.Lock()
		r.to.streams++
		r.to.timing.Unlock()
	}
	return r.StreamingClientConn.Send(msg)
}

func (r *recorded) Receive(msg any) error {
	err := r.StreamingClientConn.Receive(msg)
	m, ok := msg.(*agentdv1.RunResponse)
	if err != nil || !ok {
		r.done()
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.chain != nil {
		s := seenOf(m)
		s.opened = r.opened
		r.to.add(r.chain, s)
	}
	if r.replays == 0 || m.GetReplayed() && !r.live {
		r.replays = time.Since(r.opened)
	}
	r.live = r.live || !m.GetReplayed()
	return nil
}

// done keeps how long the stream took to catch up.
func (r *recorded) done() {
	r.mu.Lock()
	took := r.replays
	attach := r.attach
	r.replays = 0
	r.mu.Unlock()
	if took > 0 && attach {
		r.to.timing.Lock()
		r.to.caught = append(r.to.caught, took)
		r.to.timing.Unlock()
	}
}

// seenOf reads a message. What it says is taken now: a client changes it.
func seenOf(m *agentdv1.RunResponse) seen {
	s := seen{seq: m.GetSeq(), turn: m.GetTurnId(), what: sawOther}
	if m.GetTime() != nil {
		s.stamp = m.GetTime().AsTime()
	}
	switch r := m.GetResponse().(type) {
	case *agentdv1.RunResponse_Execute:
		s.what, s.text = sawStart, r.Execute.GetSessionId()
	case *agentdv1.RunResponse_StateUpdate_:
		s.what, s.text = sawState, canonical(r.StateUpdate.GetStateDelta().AsMap())
	case *agentdv1.RunResponse_OutputChunk_:
		c := r.OutputChunk
		s.chunk(c.GetMessageId(), c.GetContent(), c.GetAgentPath(), c.GetIsThought())
	case *agentdv1.RunResponse_ToolCall:
		s.what, s.id = sawCall, r.ToolCall.GetToolCallId()
		s.text = callText(r.ToolCall.GetToolName(), r.ToolCall.GetToolInput(), r.ToolCall.GetAgentPath())
	case *agentdv1.RunResponse_ToolCallAnnounced:
		s.what, s.id = sawNotice, r.ToolCallAnnounced.GetToolCallId()
		s.text = callText(r.ToolCallAnnounced.GetToolName(), r.ToolCallAnnounced.GetToolInput(), r.ToolCallAnnounced.GetAgentPath())
	case *agentdv1.RunResponse_ToolCallCanceled:
		s.what, s.id, s.text = sawCancelled, r.ToolCallCanceled.GetToolCallId(), r.ToolCallCanceled.GetReason()
	case *agentdv1.RunResponse_ToolCallAnswered:
		s.what, s.id = sawResult, r.ToolCallAnswered.GetToolCallId()
		s.text = r.ToolCallAnswered.GetOutput() + r.ToolCallAnswered.GetError()
	case *agentdv1.RunResponse_MessageRetracted:
		s.what, s.id = sawRetract, r.MessageRetracted.GetMessageId()
	case *agentdv1.RunResponse_ModelCallEnded:
		c := r.ModelCallEnded
		s.what, s.id = sawCost, c.GetMessageId()
		s.text = costText(s.id, c.GetAgentPath(), client.UsageOf(c.GetUsage()))
	case *agentdv1.RunResponse_MessageCompleted:
		s.what, s.id, s.text = sawModel, r.MessageCompleted.GetMessageId(), completedText(r.MessageCompleted.GetTextBytes(), r.MessageCompleted.GetThoughtBytes())
	case *agentdv1.RunResponse_AgentStarted:
		s.what, s.text = sawModel, fmt.Sprint(r.AgentStarted.GetAgentPath(), " starts ", r.AgentStarted.GetModel())
	case *agentdv1.RunResponse_AgentEnded:
		s.what, s.text = sawModel, fmt.Sprint(r.AgentEnded.GetAgentPath(), " ends ", strings.ToLower(strings.TrimPrefix(r.AgentEnded.GetOutcome().String(), "OUTCOME_")))
	case *agentdv1.RunResponse_ModelCallFellBack:
		s.what, s.id, s.text = sawModel, r.ModelCallFellBack.GetMessageId(), "fallback to "+r.ModelCallFellBack.GetNextModel()
	case *agentdv1.RunResponse_RawPayloadReceived:
		s.what, s.id, s.text = sawModel, r.RawPayloadReceived.GetMessageId(), rawText(int(r.RawPayloadReceived.GetStatus()), r.RawPayloadReceived.GetBody())
	case *agentdv1.RunResponse_HistoryCompacted:
		s.what, s.text = sawModel, fmt.Sprint(r.HistoryCompacted.GetSummary(), r.HistoryCompacted.GetThroughSeq())
	case *agentdv1.RunResponse_Goal:
		s.what, s.text = sawGoal, strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", r.Goal.GetEvent()), "*agentdv1.GoalEvent_"))
		s.text += " " + r.Goal.GetMessage().GetText()
	case *agentdv1.RunResponse_Error:
		s.what, s.text = sawError, fmt.Sprint(r.Error.GetCode(), " ", r.Error.GetMessage())
	case *agentdv1.RunResponse_End:
		s.what, s.text = sawEnd, endText(r.End.GetCompleted(), r.End.GetReason(), usedAtEnd(r.End.GetUsageSummary()))
	}
	return s
}

// seenOfEvent does as seenOf for an event of a client.
func seenOfEvent(e *client.Event) seen {
	s := seen{seq: e.Seq, turn: e.TurnID, what: sawOther, stamp: e.Time}
	switch d := e.Data.(type) {
	case *client.TurnStarted:
		s.what, s.text = sawStart, d.SessionID
	case *client.StateUpdate:
		s.what, s.text = sawState, canonical(d.Delta)
	case *client.OutputChunk:
		c := d
		s.chunk(c.MessageID, c.Content, c.AgentPath, c.IsThought)
	case *client.ToolCall:
		s.what, s.id, s.text = sawCall, d.ID, callText(d.Name, string(d.Input), d.AgentPath)
	case *client.ToolCallAnnounced:
		s.what, s.id, s.text = sawNotice, d.ID, callText(d.Name, string(d.Input), d.AgentPath)
	case *client.ToolCallCanceled:
		s.what, s.id, s.text = sawCancelled, d.ID, d.Reason
	case *client.ToolCallAnswered:
		s.what, s.id, s.text = sawResult, d.ID, d.Output+d.Error
	case *client.ModelCallEnded:
		c := d
		s.what, s.id = sawCost, c.MessageID
		s.text = costText(s.id, c.AgentPath, c.Usage)
	case *client.MessageCompleted:
		s.what, s.id, s.text = sawModel, d.MessageID, completedText(d.TextBytes, d.ThoughtBytes)
	case *client.AgentStarted:
		s.what, s.text = sawModel, fmt.Sprint(d.AgentPath, " starts ", d.Model)
	case *client.AgentEnded:
		s.what, s.text = sawModel, fmt.Sprint(d.AgentPath, " ends ", d.Outcome)
	case *client.ModelCallFellBack:
		s.what, s.id, s.text = sawModel, d.MessageID, "fallback to "+d.NextModel
	case *client.RawPayloadReceived:
		s.what, s.id, s.text = sawModel, d.MessageID, rawText(d.Status, d.Body)
	case *client.HistoryCompacted:
		s.what, s.text = sawModel, fmt.Sprint(d.Summary, d.ThroughSeq)
	case *client.GoalEvent:
		s.what, s.text = sawGoal, string(d.Kind)+" "
		if d.Kind == client.GoalEventMessage {
			s.text += d.Message
		}
	case *client.MessageRetracted:
		s.what, s.id = sawRetract, d.MessageID
	case *client.End:
		s.what, s.text = sawEnd, endText(d.Completed, d.Reason, d.Usage)
	}
	return s
}

func (s *seen) chunk(message, content string, path []string, thought bool) {
	s.id, s.text, s.what = message, content, sawText
	switch {
	case message == "" && content == "":
		s.what, s.text = sawLast, strings.Join(path, "/")
	case thought:
		s.what = sawThought
	}
}

func callText(name, input string, path []string) string {
	return fmt.Sprint(name, " ", input, " ", strings.Join(path, "/"))
}

func endText(completed bool, reason string, u *client.Usage) string {
	return fmt.Sprint(completed, " ", reason, " ", usedText(u))
}

// usedAtEnd is as much of the usage of an end as is compared.
func usedAtEnd(s *agentdv1.UsageSummary) *client.Usage {
	u := s.GetTotalUsage()
	return &client.Usage{
		ModelCalls: int64(s.GetLlmCalls()), PromptTokens: int64(u.GetPromptTokens()),
		CompletionTokens: int64(u.GetCompletionTokens()), TotalTokens: int64(u.GetTotalTokens()),
	}
}

func usedText(u *client.Usage) string {
	if u == nil {
		u = &client.Usage{}
	}
	return usageText(u.ModelCalls, u.PromptTokens, u.CompletionTokens, u.TotalTokens)
}

func costText(messageID string, path []string, u *client.Usage) string {
	return fmt.Sprint(messageID, " ", strings.Join(path, "/"), " ", usedText(u))
}

func completedText(text, thoughts int64) string {
	return fmt.Sprintf("complete with %d and %d bytes", text, thoughts)
}

func rawText(status int, body []byte) string {
	return fmt.Sprintf("answer of status %d: %x", status, sha256.Sum256(body))
}

func usageText(calls, prompt, completion, total int64) string {
	return fmt.Sprintf("%d calls, %d+%d=%d tokens", calls, prompt, completion, total)
}

func canonical(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// as is what an event says if it is of type T, else nil.
func as[T client.EventData](event *client.Event) T {
	data, _ := event.Data.(T)
	return data
}
