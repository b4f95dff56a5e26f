package mcpserve

import (
	"context"
	"errors"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/apzuk3/agentd/client"
)

// input is what a tool takes.
type input struct {
	Prompt    string `json:"prompt" jsonschema:"what the user says to the agent"`
	SessionID string `json:"session_id,omitempty" jsonschema:"of an earlier result, to go on with its conversation"`
}

// output is the structured content of a result.
type output struct {
	Text       string   `json:"text" jsonschema:"the agent's last text"`
	SessionID  string   `json:"session_id,omitempty" jsonschema:"the conversation, for another call"`
	TurnID     string   `json:"turn_id,omitempty"`
	Structured any      `json:"structured,omitempty" jsonschema:"the last text as JSON, if it is JSON"`
	Usage      *usage   `json:"usage,omitempty" jsonschema:"what the models took"`
	Error      *failure `json:"error,omitempty" jsonschema:"why the turn has failed"`
}

type usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CachedTokens     int64 `json:"cached_tokens,omitempty"`
	CompletionTokens int64 `json:"completion_tokens"`
	ThoughtsTokens   int64 `json:"thoughts_tokens,omitempty"`
	TotalTokens      int64 `json:"total_tokens"`
	ModelCalls       int64 `json:"model_calls"`
	// CostUSD is of the calls whose price is known; UnpricedCalls counts the others.
	CostUSD       *float64 `json:"cost_usd,omitempty" jsonschema:"US dollars, of the calls whose price is known"`
	UnpricedCalls int64    `json:"unpriced_calls,omitempty"`
}

type failure struct {
	Code      string `json:"code,omitempty" jsonschema:"a code of agentd, such as MODEL_UNAVAILABLE"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable,omitempty"`
}

// call is one call of a tool.
type call struct {
	s        *Server
	host     *sdk.ServerSession
	ctx      context.Context //nolint:containedctx // what is sent within it goes to the stream of the call's request
	progress *progress       // nil: the host has not asked
}

type callKey struct{}

// callOf is the call in whose turn a tool runs; nil for none.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// call runs a turn.
func (s *Server) call(
	ctx context.Context, r *sdk.CallToolRequest, t *Tool, in input,
) (*sdk.CallToolResult, output, error) {
	c := &call{s: s, host: r.Session, ctx: context.WithoutCancel(ctx)}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	forget := s.presence.watch(c, end)
	defer forget()
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, output{}, err
	}
	defer leave()
	if token := r.Params.GetProgressToken(); token != nil {
		c.progress = newProgress(c, token)
		defer c.progress.stop()
	}
	out := c.run(ctx, t, in)
	result := &sdk.CallToolResult{IsError: out.Error != nil, Content: []sdk.Content{&sdk.TextContent{Text: out.Text}}}
	if out.Error != nil {
		result.Content = append(result.Content, &sdk.TextContent{Text: out.Error.String()})
	}
	if out.SessionID != "" { // for models of hosts that show them no structured content
		result.Content = append(result.Content, &sdk.TextContent{
			Text:        "session_id: " + out.SessionID,
			Annotations: &sdk.Annotations{Audience: []sdk.Role{"assistant"}},
		})
	}
	if out.Text == "" && len(result.Content) > 1 {
		result.Content = result.Content[1:]
	}
	return result, out, nil
}

// run runs the turn of a call to its end. ctx is that of the call.
func (c *call) run(ctx context.Context, t *Tool, in input) output {
	life, stop := context.WithCancelCause(context.WithValue(c.ctx, callKey{}, c))
	defer stop(nil)
	session := t.Client.NewSession(t.Agent)
	if in.SessionID != "" {
		session = t.Client.Session(in.SessionID, client.WithAgent(t.Agent))
	}
	out := output{SessionID: in.SessionID}
	started, over := make(chan string, 1), make(chan struct{})
	canceler := make(chan struct{})
	go func() { // ends with the turn
		defer close(canceler)
		c.cancel(ctx, session, started, over, stop)
	}()
	opts := append([]client.SendOption{
		client.WithOnDisconnect(client.OnDisconnectCancel, c.s.cfg.Grace), client.WithPrompter(c),
	}, t.Options...)
	result, err := client.Collect(func(yield func(*client.Event, error) bool) {
		for event, err := range session.Stream(life, in.Prompt, opts...) {
			if event != nil {
				if out.TurnID == "" && event.TurnID != "" {
					out.SessionID, out.TurnID = session.ID(), event.TurnID
					started <- event.TurnID
				}
				c.progress.event(event)
			}
			if !yield(event, err) {
				return
			}
		}
	})
	close(over)
	<-canceler
	out.Text, out.Usage = result.Text, usageOf(result.Usage)
	if result.Structured != nil {
		out.Structured = result.Structured
	}
	out.Error = failureOf(result, err, context.Cause(life))
	if out.TurnID == "" {
		return out // the session has not changed
	}
	c.last(session, &out)
	return out
}

// last puts the last text of the turn in place of all that its agents said.
func (c *call) last(session *client.Session, out *output) {
	ctx, stop := context.WithTimeout(c.ctx, cancelTime)
	defer stop()
	turn, err := session.Turn(ctx, out.TurnID)
	if err != nil {
		c.s.cfg.Note("the last text of turn %s of session %s is not known: %v", out.TurnID, out.SessionID, err)
		return
	}
	out.Text = turn.Text
	if u := usageOf(turn.Usage); u != nil {
		out.Usage = u
	}
}

// cancel cancels the turn when its call ends before it. stop leaves a turn that cannot be canceled, or of which nobody
// hears.
func (c *call) cancel(
	ctx context.Context, session *client.Session,
	started <-chan string, over <-chan struct{}, stop context.CancelCauseFunc,
) {
	reason := "canceled by the MCP host"
	select {
	case <-over:
		return
	case <-c.s.ended:
		reason = errEnding.Error()
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), errGone) {
			reason = errGone.Error()
		}
	}
	late := time.AfterFunc(cancelTime, func() { stop(errors.New(reason)) })
	defer late.Stop()
	var turn string
	select {
	case <-over:
		return
	case turn = <-started:
	}
	limited, done := context.WithTimeout(c.ctx, cancelTime)
	defer done()
	if _, err := session.CancelTurn(limited, turn, reason); err != nil {
		c.s.cfg.Note("turn %s of session %s was not canceled: %v", turn, session.ID(), err)
		stop(errors.New(reason))
	}
	<-over
}

// failureOf is why a turn has not completed; nil if it has.
func failureOf(result *client.Result, err, left error) *failure {
	switch e, ok := errors.AsType[*client.Error](err); {
	case left != nil:
		return &failure{Code: "CANCELED", Message: left.Error()}
	case ok && e.Code != 0:
		return &failure{Code: e.Code.Error(), Message: e.Message, Retryable: e.Retryable}
	case err != nil:
		return &failure{Message: err.Error()}
	case !result.Completed:
		return &failure{Code: "CANCELED", Message: "the turn was canceled: " + result.Reason}
	}
	return nil
}

// String is the failure for a model.
func (f *failure) String() string {
	if f.Code == "" {
		return f.Message
	}
	return f.Code + ": " + f.Message
}

func usageOf(u *client.Usage) *usage {
	if u == nil {
		return nil
	}
	return &usage{
		PromptTokens: u.PromptTokens, CachedTokens: u.CachedTokens,
		CompletionTokens: u.CompletionTokens, ThoughtsTokens: u.ThoughtsTokens, TotalTokens: u.TotalTokens,
		ModelCalls: u.ModelCalls, CostUSD: u.CostUSD, UnpricedCalls: u.UnpricedCalls,
	}
}
