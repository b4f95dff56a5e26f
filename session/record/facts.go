package record

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/tracecontext"
	"github.com/apzuk3/agentd/session/fault"
)

// ReadSpec returns what the turn runs.
func (f *TurnStarted) ReadSpec() (*Spec, error) {
	spec := &Spec{
		Prompt: f.Prompt, Parts: f.Parts, Before: f.Before, After: f.After, Raw: f.Raw, PlanMode: f.PlanMode,
		Mode: f.Mode, Agent: &agentdv1.Agent{}, Pinned: true,
	}
	if f.Goal != nil {
		spec.Goal = &f.Goal.Tools
	}
	opts := protojson.UnmarshalOptions{DiscardUnknown: true}
	if err := opts.Unmarshal(f.Agent, spec.Agent); err != nil {
		return nil, err
	}
	for _, data := range f.Tools {
		tool := &agentdv1.Tool{}
		if err := opts.Unmarshal(data, tool); err != nil {
			return nil, err
		}
		spec.Tools = append(spec.Tools, tool)
	}
	return spec, nil
}

// Spec is what a turn runs: it is pinned in the log when the turn starts.
type Spec struct {
	// Prompt is what the user says, and Parts are more of it.
	Prompt string
	Parts  Parts
	// Agent is the tree.
	Agent *agentdv1.Agent
	// Tools are what the client offers.
	Tools []*agentdv1.Tool
	// Before and After are texts around the instruction of each agent: the server's and the caller's.
	Before, After string
	// Mode says where After goes; 0 is APPEND.
	Mode agentdv1.InstructionMode
	// Budget is what the turn may spend.
	Budget Budget
	// SessionBudget is what the session may spend; it counts from its beginning. It is that of the turn's
	// start: an update of the session may have changed it since.
	SessionBudget Budget
	// Raw asks for a RawPayload of each try of a model call.
	Raw bool
	// PlanMode keeps tools that change something from being asked for.
	PlanMode bool
	// Goal are the tools of the turn's goal, nil for a turn without one.
	Goal *GoalTools
	// Tenant is whom the session belongs to: its models are those of the turn. It is no part of the log.
	Tenant string
	// Pinned is true for a tree that the log holds: it was accepted once, and goes on where one that is new
	// would be refused for what has only become wrong since.
	Pinned bool
	// Checked is the runner's own: what Check has made of the spec, for the run that follows, which takes
	// it away. It is nil in a spec that was read from the log.
	Checked any
}

// Budget bounds what a turn or a session may spend; 0 is no bound.
type Budget struct {
	// ModelCalls counts the calls that were begun.
	ModelCalls int64 `json:"model_calls,omitempty"`
	// Tokens are all tokens, as the providers count them.
	Tokens int64 `json:"tokens,omitempty"`
	// Cost is what calls of known price cost.
	Cost NanoUSD `json:"cost_usd,omitempty"`
	// Wall is the time since the turn's start, in nanoseconds; of a session the sum over its turns.
	Wall time.Duration `json:"wall,omitempty"`
}

// TurnStarted is the first record of a turn.
type TurnStarted struct {
	// Prompt is what the user says, and Parts are more of it.
	Prompt string `json:"prompt"`
	Parts  Parts  `json:"parts,omitempty"`
	// Agent is the tree, protobuf JSON.
	Agent json.RawMessage `json:"agent"`
	// Tools are protobuf JSON, one each.
	Tools []json.RawMessage `json:"tools,omitempty"`
	// Before, After and Mode are those of the Spec.
	Before string                   `json:"before,omitempty"`
	After  string                   `json:"after,omitempty"`
	Mode   agentdv1.InstructionMode `json:"instruction_mode,omitempty"`
	// Seed is the history that the session begins with, oldest first.
	Seed []*agentdv1.SeedMessage `json:"seed,omitempty"`
	// Author is who the turn is for, as the caller says.
	Author string `json:"author,omitempty"`
	// Metadata are for the tools of the turn; models do not see them.
	Metadata map[string]string `json:"metadata,omitempty"`
	// State are the keys the client set, without those of scope temp.
	State map[string]any `json:"state,omitempty"`
	// Temp are the keys of scope temp that the client set: a turn that goes on after a restart needs them
	// again.
	Temp map[string]any `json:"temp,omitempty"`
	// OnDisconnect is what becomes of the turn when its last client is gone.
	OnDisconnect OnDisconnect `json:"on_disconnect,omitzero"`
	// OwnKeys names the providers whose keys the caller brought. The keys themselves are nowhere in the
	// log.
	OwnKeys []string `json:"own_keys,omitempty"`
	// Budget is what the request allows the turn.
	Budget Budget `json:"budget,omitzero"`
	// SessionBudget, if set, is what the request allows the session: for this turn alone in a session that
	// has a budget of its own, which it only tightens, else from now on.
	SessionBudget *Budget `json:"session_budget,omitempty"`
	// ToolTimeout is for tools that have no timeout of their own; 0 is the server's default. In
	// nanoseconds.
	ToolTimeout time.Duration `json:"tool_timeout,omitempty"`
	// Raw is that of the Spec.
	Raw bool `json:"raw,omitempty"`
	// PlanMode is that of the Spec.
	PlanMode bool `json:"plan_mode,omitempty"`
	// By is the id of the principal whose prompt it is; "" in logs of before there were principals.
	By string `json:"by,omitempty"`
	// Goal is set in the turns of a goal.
	Goal *GoalTurn `json:"goal,omitempty"`
	// Reports is set if Prompt begins with reports of children.
	Reports *Reports `json:"reports,omitempty"`
	// Trace is the trace that the turn is part of, also after a restart; zero for none.
	Trace tracecontext.Context `json:"trace,omitzero"`
	// Warnings are about what of the request was left out.
	Warnings []Warning `json:"warnings,omitempty"`
	// Alone is the start of the tree's agent if it is an LLM agent without others: it starts with the turn,
	// and no record says so again.
	Alone *AgentChange `json:"agent_started,omitempty"`
}

// TurnQueued is a prompt that came while the session ran a turn. Its turn starts when that one, and those
// queued before, are over.
type TurnQueued struct {
	TurnStarted
	// Inject has the running turn take the prompt up as a message, if it calls a model again; then the
	// prompt has no turn of its own.
	Inject bool `json:"inject,omitempty"`
	// Front puts it before those that wait already.
	Front bool `json:"front,omitempty"`
	// Patient keeps a turn that only waits for a client from giving way to it.
	Patient bool `json:"patient,omitempty"`
	// Into is the turn that ran.
	Into string `json:"into"`
	// Ahead is how many turns waited before it.
	Ahead int `json:"ahead,omitempty"`
}

// TurnDropped says that a queued turn will not start.
type TurnDropped struct {
	// Reason says why.
	Reason string `json:"reason"`
	// Code and Message are the error for which it cannot start, if there is one.
	Code    agentdv1.ErrorCode `json:"code,omitempty"`
	Message string             `json:"message,omitempty"`
}

// End is the end of the turn: it has failed, or was stopped and nothing of it was under way.
func (f *TurnDropped) End() *TurnEnded {
	if f.Code != 0 {
		return &TurnEnded{Reason: f.Reason, Code: f.Code, Message: f.Message}
	}
	return &TurnEnded{Reason: f.Reason, Receipt: &Receipt{}}
}

// ModelRetry says that a model call failed before any of its response was shown, and that the server
// retries it.
type ModelRetry struct {
	// MessageID is the id of the response to come.
	MessageID string `json:"message_id"`
	// Path runs from the root to the agent whose call it is.
	Path []string `json:"path"`
	// Attempt is how many tries have failed, from 1.
	Attempt int `json:"attempt"`
	// Wait is until the next one. In nanoseconds.
	Wait time.Duration `json:"wait"`
	// Code and Message are what the last one failed with; the client sees them.
	Code    agentdv1.ErrorCode `json:"code"`
	Message string             `json:"message"`
	// Usage is what that one took; nil where its provider did not say.
	Usage *Usage `json:"usage,omitempty"`
}

// OnDisconnect is what the server does with a turn whose last client is gone: the turn continues, or with
// Cancel set it is canceled after Grace.
type OnDisconnect struct {
	Cancel bool          `json:"cancel,omitempty"`
	Grace  time.Duration `json:"grace,omitempty"` // nanoseconds
}

// ClientsLeft says when the turn is canceled because its last client has left, if none comes back; CancelAt
// is zero when one is back.
type ClientsLeft struct {
	CancelAt time.Time `json:"cancel_at,omitzero"`
}

// TurnResumed says that a turn resumes after its server died, or after it was suspended. The model calls of
// incomplete messages are made again.
type TurnResumed struct{}

// ToolCall is a call that the client must run.
type ToolCall struct {
	// ID is unique within the session.
	ID string `json:"id"`
	// Name is one of the tools of the turn.
	Name string `json:"name"`
	// Input is a JSON object in the model's own text.
	Input json.RawMessage `json:"input"`
	// Path runs from the root to the agent that called.
	Path []string `json:"path"`
	// Asks is set where a person is asked before any client is, or in place of one.
	Asks *Question `json:"asks,omitempty"`
	// Branch is that of the agent, where it is below a call of an agent; else "".
	Branch string `json:"branch,omitempty"`
}

// Outcome says how a tool call was settled.
type Outcome string

// The outcomes of a tool call.
const (
	Returned  Outcome = "answered"  // the client returned output or an error
	Cancelled Outcome = "cancelled" // a client canceled the call
	TimedOut  Outcome = "timed_out" // no result in time
	Abandoned Outcome = "abandoned" // no client is left that could run it
	Denied    Outcome = "denied"    // a person has said no
)

// ToolResult settles one tool call; the first one stands.
type ToolResult struct {
	// CallID is the call.
	CallID string `json:"call_id"`
	// Outcome says how the call was settled.
	Outcome Outcome `json:"outcome"`
	// Output is the client's text, if the result is output.
	Output *string `json:"output,omitempty"`
	// Parts are more of the output.
	Parts Parts `json:"parts,omitempty"`
	// Error is what the model sees otherwise.
	Error string `json:"error,omitempty"`
	// State are keys to write with the result; temp keys are kept here too, the engine decides their scope.
	State map[string]any `json:"state,omitempty"`
	// By is the id of the principal whose client returned the result, "" if none did.
	By string `json:"by,omitempty"`
	// Warnings are about what of the result was left out.
	Warnings []Warning `json:"warnings,omitempty"`
}

// TurnEnded is the last record of a turn.
type TurnEnded struct {
	// Completed is true only when the tree finished naturally.
	Completed bool `json:"completed"`
	// Reason says why the turn ended otherwise.
	Reason string `json:"reason,omitempty"`
	// Code and Message are the error that ended the turn, if one did.
	Code    agentdv1.ErrorCode `json:"code,omitempty"`
	Message string             `json:"message,omitempty"`
	// RetryAfter and Limit are what that error knows besides.
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	Limit      *fault.Limit  `json:"limit,omitempty"`
	// Spoke are the agents of which a part of a message was shown that was never completed: their paths, in
	// order.
	Spoke [][]string `json:"spoke,omitempty"`
	// Receipt is set when the turn was stopped: by a client, by another prompt, or because no client came.
	Receipt *Receipt `json:"receipt,omitempty"`
}

// Fail makes f the end of a turn by an error, and returns it.
func (f *TurnEnded) Fail(e *fault.Error) *TurnEnded {
	*f = TurnEnded{Code: e.Code, Message: e.Message, Reason: e.Message, RetryAfter: e.RetryAfter, Limit: e.Limit}
	return f
}

// Failure is the error that ended a turn.
func (f *TurnEnded) Failure(turnID string) *fault.Error {
	return &fault.Error{Code: f.Code, Message: f.Message, TurnID: turnID, RetryAfter: f.RetryAfter, Limit: f.Limit}
}

// Receipt says what was under way when a turn was stopped.
type Receipt struct {
	// Aborted are the model calls.
	Aborted []AbortedCall `json:"aborted,omitempty"`
	// Canceled are tool calls without a result, and Settled those that were asked together with them and
	// had one.
	Cancelled []CallName `json:"cancelled,omitempty"`
	Settled   []CallName `json:"answered,omitempty"`
	// Took is from the request to stop to the end, in nanoseconds.
	Took time.Duration `json:"took"`
}

// Add adds the tool calls of a response, as those with results say how they are.
func (r *Receipt) Add(calls []ToolCall, results map[string]ToolResult) {
	for _, call := range calls {
		name := CallName{ID: call.ID, Name: call.Name}
		if _, ok := results[call.ID]; ok {
			r.Settled = append(r.Settled, name)
		} else {
			r.Cancelled = append(r.Cancelled, name)
		}
	}
}

// AddNew adds the tool calls of a later receipt that r does not name.
func (r *Receipt) AddNew(now Receipt) {
	named := map[string]bool{}
	for _, call := range slices.Concat(r.Settled, r.Cancelled) {
		named[call.ID] = true
	}
	isNamed := func(call CallName) bool { return named[call.ID] }
	r.Settled = append(r.Settled, slices.DeleteFunc(now.Settled, isNamed)...)
	r.Cancelled = append(r.Cancelled, slices.DeleteFunc(now.Cancelled, isNamed)...)
}

// AbortedCall is a model call that was under way.
type AbortedCall struct {
	ModelCall
	// Ran is how long it had been under way, in nanoseconds.
	Ran time.Duration `json:"ran"`
}

// ModelCall names a model call.
type ModelCall struct {
	// Path runs from the root to the agent that calls.
	Path []string `json:"path"`
	// Model is the model's name.
	Model string `json:"model"`
	// MessageID is the id of the response to come.
	MessageID string `json:"message_id"`
}

// CallName names a tool call.
type CallName struct {
	// ID is the call's id.
	ID string `json:"id"`
	// Name is the tool's.
	Name string `json:"name"`
}

// Event is what an engine event means to a session; see Runner.Decode.
type Event struct {
	// MessageID ties the event to the deltas that came before it. Empty for an event that is not a
	// response.
	MessageID string
	// Path runs from the root to the agent the event is of.
	Path []string
	// Text and Thoughts are the whole of what the model said: the joined deltas of the message are a prefix
	// of them.
	Text, Thoughts string
	// Last is true when this agent will not speak again in this turn.
	Last bool
	// Calls are the tool calls for the client, in the model's order.
	Calls []ToolCall
	// State are the keys that changed. Keys of scope temp are not among them.
	State map[string]any
	// Usage is what the model call took that the event is the end of, but for what records before it hold;
	// nil for an event that is the end of none.
	Usage *Usage
	// Before is what tries of the call took that failed before its last one, as the records of the retries
	// and changes of its model hold it. Not part of Usage.
	Before *Usage `json:",omitempty"`
	// Marks are the places of the message's deltas, as Run.Marks has given them.
	Marks Marks `json:",omitempty"`
	// Goal is what agents say of their goal with the event, nil for nothing.
	Goal *GoalSaid `json:",omitempty"`
	// To runs from the root to the agent to which this one has handed the conversation over with the event;
	// nil where it has not.
	To []string `json:",omitempty"`
	// Model is the model of the response, as its provider names it. Stop is why it stopped: a
	// genai.FinishReason. Both are "" for an event that is no response.
	Model, Stop string `json:",omitempty"`
	// Structured is true when Text, or Output, is JSON that satisfies the output schema of the agent, which
	// has finished with it.
	Structured bool `json:",omitempty"`
	// Output is the part of Text that is the agent's output; "" is all of it.
	Output string `json:",omitempty"`
	// Call says more of the model call; nil where nothing is known.
	Call *CallInfo `json:",omitempty"`
	// Provided is what the model's provider has run; nil for nothing.
	Provided *Provided `json:",omitempty"`
	// Remote says where the session of a backend has come to with the response; nil for a model's.
	Remote *agentdv1.RemoteSession `json:",omitempty"`
	// Compacted is set on an event that is a summary, not a response.
	Compacted *Compacted `json:",omitempty"`
	// Injected is the id of the queued turn whose prompt, in Text and Parts, has become a message of this
	// turn; such an event is no response.
	Injected string `json:",omitempty"`
	Parts    Parts  `json:",omitempty"`
	// InjectedBy is the id of the principal whose prompt it is.
	InjectedBy string `json:",omitempty"`
	// Branch is that of the event, where it is below a call of an agent; else "".
	Branch string `json:",omitempty"`
	// Request is what an agent is told that is called as a tool, with which its branch begins; such an event is no
	// response.
	Request string `json:",omitempty"`
}

// Delta is a piece of a message on its way.
type Delta struct {
	// MessageID is the one of the event that will complete the message.
	MessageID string
	// Path runs from the root to the agent that speaks.
	Path []string
	// Text is never empty.
	Text string
	// Thought is true for thinking.
	Thought bool
}

// Equal reports whether two results say the same.
func (r ToolResult) Equal(o ToolResult) bool {
	r.By, r.Warnings, o.By, o.Warnings = "", nil, "", nil
	a, errA := json.Marshal(r)
	b, errB := json.Marshal(o)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// Size is about how many bytes of a message the receipt takes.
func (r *Receipt) Size() int {
	n := 0
	if r == nil {
		return n
	}
	for _, c := range r.Aborted {
		n += bytesOf(c.Path...) + bytesOf(c.Model, c.MessageID)
	}
	for _, c := range slices.Concat(r.Cancelled, r.Settled) {
		n += bytesOf(c.ID, c.Name)
	}
	return n
}

// Size is about how many bytes of a message the call takes.
func (c *ToolCall) Size() int {
	n := len(c.Input) + bytesOf(c.Path...) + bytesOf(c.ID, c.Name)
	if c.Asks != nil {
		n += len(c.Asks.Text) + bytesOf(c.Asks.Choices...)
	}
	return n
}

// bytesOf is how many bytes texts take.
func bytesOf(texts ...string) int {
	n := 0
	for _, text := range texts {
		n += len(text)
	}
	return n
}

// Proto is the protocol's form.
func (r *Receipt) Proto() *agentdv1.CancelReceipt {
	names := func(calls []CallName) []*agentdv1.ToolCallRef {
		var out []*agentdv1.ToolCallRef
		for _, c := range calls {
			out = append(out, &agentdv1.ToolCallRef{ToolCallId: c.ID, ToolName: c.Name})
		}
		return out
	}
	out := &agentdv1.CancelReceipt{
		CanceledToolCalls: names(r.Cancelled),
		AnsweredToolCalls: names(r.Settled),
		Took:              durationpb.New(r.Took),
	}
	for _, c := range r.Aborted {
		out.AbortedModelCalls = append(out.AbortedModelCalls, &agentdv1.AbortedModelCall{
			AgentPath: c.Path, Model: c.Model, MessageId: c.MessageID, Ran: durationpb.New(c.Ran),
		})
	}
	return out
}

// Warning is about a part of a request that was left out.
type Warning struct {
	// Code is what kind of warning it is.
	Code string `json:"code"`
	// Field is the path of the part, within the message that holds it.
	Field string `json:"field"`
	// Message is for people.
	Message string `json:"message"`
}

// Proto returns the protocol's form of the warning; in is put before the field.
func (w Warning) Proto(in string) *agentdv1.Warning {
	return &agentdv1.Warning{Code: w.Code, Field: in + w.Field, Message: w.Message}
}

// CallsOf are the calls that a fact holds.
func CallsOf(fact any) []ToolCall {
	switch f := fact.(type) {
	case *Event:
		return f.Calls
	case *ToolCall:
		return []ToolCall{*f}
	default:
		return nil
	}
}
