package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/internal/sse"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// maxCalls bounds the function calls of one response while it is read.
const maxCalls = 1024

// chunk is one event of a chat completions stream, or the whole response of a
// server that does not stream.
type chunk struct {
	Model   string          `json:"model"`
	Choices []chatChoice    `json:"choices"`
	Usage   json.RawMessage `json:"usage"` // null before the last chunk if the server counts
	XGroq   *struct {
		Usage *chatUsage `json:"usage"`
	} `json:"x_groq"`
	Error json.RawMessage `json:"error"`

	SearchResults json.RawMessage `json:"search_results"` // Perplexity
}

type chatChoice struct {
	Index        int        `json:"index"`
	Delta        *chatDelta `json:"delta"`
	Message      *chatDelta `json:"message"`
	FinishReason string     `json:"finish_reason"`

	Filter json.RawMessage `json:"content_filter_results"` // Azure
}

type chatDelta struct {
	Content          json.RawMessage `json:"content"` // a text, or a list of contentPart
	ReasoningContent string          `json:"reasoning_content"`
	Reasoning        string          `json:"reasoning"`
	ReasoningDetails json.RawMessage `json:"reasoning_details"`
	Refusal          string          `json:"refusal"`
	ToolCalls        []callDelta     `json:"tool_calls"`
	Annotations      json.RawMessage `json:"annotations"`
	Executed         json.RawMessage `json:"executed_tools"` // Groq

	text string // the content, if quick has read it
}

// contentPart is how Mistral sends text next to thinking.
type contentPart struct {
	Type     string        `json:"type"`
	Text     string        `json:"text"`
	Thinking []contentPart `json:"thinking"`
}

type callDelta struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"` // a text, from some servers an object
	} `json:"function"`
	ExtraContent json.RawMessage `json:"extra_content"`
}

// chatCallState is one function call while it is collected.
type chatCallState struct {
	index    int
	id, name string
	args     strings.Builder
	extra    json.RawMessage
}

// chatResponse collects one response. Owned by the goroutine in Generate.
type chatResponse struct {
	llm     *llm
	names   *wire.Names
	builder *adapter.Builder

	calls    []*chatCallState
	thought  string // the field that thinking came in; "" if it cannot go back
	details  []*streamedDetail
	refusal  strings.Builder
	filtered string // the categories of a content filter
	finish   string
	model    string
	usage    model.Usage

	counted  bool // whether usage was reported
	usageDue bool // whether the server announced usage and has not sent it

	seen  seenInChat
	quick quickChunk
}

// chat makes one call over chat completions.
func (l *llm) chat(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	names := wire.NewNames(maxToolName, req)
	defer names.Leave(req)
	body, err := l.chatBody(req, names)
	if err != nil {
		return nil, err
	}
	resp, err := l.post(ctx, "chat/completions", body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &chatResponse{llm: l, names: names, builder: &adapter.Builder{Provider: l.owner, Emit: emit}}
	if wire.IsJSON(wire.ContentType(resp)) {
		err = a.readWhole(ctx, resp)
	} else {
		err = a.readStream(ctx, resp)
	}
	if err != nil {
		return nil, a.usage.Spent(err)
	}
	out, err := a.response()
	return out, a.usage.Spent(err)
}

// readWhole reads the response of a server that does not stream.
func (a *chatResponse) readWhole(ctx context.Context, resp *http.Response) error {
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return adapter.TransportError(ctx, a.llm.cfg.Name, err, a.llm.key)
	}
	return a.event(data)
}

// readStream reads the stream up to [DONE] or, for servers that do not send
// it, to its end. What makes a response complete is its finish reason, and the
// usage behind it where the server has announced one.
func (a *chatResponse) readStream(ctx context.Context, resp *http.Response) error {
	for line, err := range sse.Read(resp.Body, maxLine) {
		if err != nil {
			return adapter.TransportError(ctx, a.llm.cfg.Name, err, a.llm.key)
		}
		data := bytes.TrimSpace(line.Data)
		if bytes.HasPrefix(data, []byte("[DONE]")) {
			return nil
		}
		if len(data) == 0 {
			continue
		}
		if err := a.event(data); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if a.usageDue {
		return adapter.Truncated(a.llm.cfg.Name)
	}
	return nil
}

// event takes one event in.
func (a *chatResponse) event(data []byte) error {
	c := a.quick.read(data, a.model)
	if c == nil {
		c = &chunk{}
		if err := json.Unmarshal(data, c); err != nil {
			return a.llm.broken("an event of the stream is not the JSON expected")
		}
	}
	return a.chunk(c, data)
}

// chunk takes in what an event says.
func (a *chatResponse) chunk(c *chunk, data []byte) error {
	if c.XGroq != nil && c.XGroq.Usage != nil {
		a.count(c.XGroq.Usage)
	}
	switch {
	case string(c.Usage) == "null":
		a.usageDue = !a.counted
	case len(c.Usage) > 0:
		var u *chatUsage
		// What cannot be read is not counted: the response is what was paid for.
		unreadable := json.Unmarshal(c.Usage, &u) != nil
		a.usageDue = u == nil && !unreadable && !a.counted
		if u != nil && !unreadable {
			a.count(u)
		}
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return a.llm.failure(parseError(data), 0, nil) // It may have said before what it took.
	}
	if c.Model != "" {
		a.model = c.Model
	}
	if len(c.SearchResults) > 0 {
		a.seen.chunk(c)
	}
	for i := range c.Choices {
		choice := &c.Choices[i]
		if choice.Index != 0 {
			continue
		}
		d := choice.Delta
		if d == nil {
			d = choice.Message
		}
		if d != nil {
			if err := a.delta(d); err != nil {
				return err
			}
		}
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
		if len(choice.Filter) > 0 {
			a.filtered = cmp.Or(categories(choice.Filter), a.filtered)
		}
	}
	return nil
}

// count takes over a usage report; the last one holds.
func (a *chatResponse) count(u *chatUsage) {
	a.usageDue, a.counted = false, true
	a.usage = u.model()
}

func (a *chatResponse) delta(d *chatDelta) error {
	switch {
	case d.ReasoningContent != "": // Some servers send both, with one text.
		a.thought = "reasoning_content"
		a.builder.Thought(d.ReasoningContent)
	case d.Reasoning != "":
		a.thought = "reasoning"
		a.builder.Thought(d.Reasoning)
	}
	if err := a.addDetails(d.ReasoningDetails); err != nil {
		return err
	}
	a.builder.Text(d.text)
	if err := a.content(d.Content); err != nil {
		return err
	}
	a.refusal.WriteString(d.Refusal)
	if len(d.Executed)+len(d.Annotations) > 0 {
		a.seen.delta(d)
	}
	for i := range d.ToolCalls {
		if err := a.call(&d.ToolCalls[i]); err != nil {
			return err
		}
	}
	return nil
}

// content takes a text, or Mistral's list of parts.
func (a *chatResponse) content(raw json.RawMessage) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if raw[0] == '"' {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return a.llm.broken("text of the stream is not the JSON expected")
		}
		a.builder.Text(text)
		return nil
	}
	var parts []contentPart
	if err := json.Unmarshal(raw, &parts); err != nil {
		return a.llm.broken("text of the stream is not the JSON expected")
	}
	for _, p := range parts {
		for _, t := range p.Thinking {
			a.builder.Thought(t.Text)
		}
		if p.Type == "text" {
			a.builder.Text(p.Text)
		}
	}
	return nil
}

// call adds a piece of a function call to the call it belongs to.
func (a *chatResponse) call(d *callDelta) error {
	args, err := argsPiece(d.Function.Arguments)
	if err != nil {
		return a.llm.broken("arguments of the stream are not the JSON expected")
	}
	c := a.find(d)
	if c == nil {
		if len(a.calls) >= maxCalls {
			return a.llm.tooMuch("the response has more than %d function calls", maxCalls)
		}
		c = &chatCallState{index: len(a.calls)}
		if d.Index != nil {
			c.index = *d.Index
		}
		a.calls = append(a.calls, c)
	}
	if c.id == "" {
		c.id = d.ID
	}
	if c.name == "" {
		c.name = d.Function.Name
	}
	c.args.WriteString(args)
	if len(d.ExtraContent) > 0 && string(d.ExtraContent) != "null" {
		c.extra = d.ExtraContent
	}
	return nil
}

// find returns the call that a piece continues, nil when it begins a new one.
// The index says so, but not every server sends it, and some send 0 for all:
// another id, or a name after complete arguments, begins a new call too.
func (a *chatResponse) find(d *callDelta) *chatCallState {
	var c *chatCallState
	for _, candidate := range slices.Backward(a.calls) {
		if d.Index == nil || candidate.index == *d.Index {
			c = candidate
			break
		}
	}
	switch {
	case c == nil:
		return nil
	case d.ID != "" && c.id != "" && d.ID != c.id:
		return nil
	case d.ID == "" && d.Function.Name != "" && c.name != "" && json.Valid([]byte(c.args.String())):
		return nil
	default:
		return c
	}
}

// argsPiece is a piece of arguments as text.
func argsPiece(raw json.RawMessage) (string, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	if raw[0] != '"' {
		return string(raw), nil
	}
	var text string
	err := json.Unmarshal(raw, &text)
	return text, err
}

// response returns the finished response.
func (a *chatResponse) response() (*model.Response, error) {
	l := a.llm
	if a.refusal.Len() > 0 {
		return nil, l.blocked(refused, a.refusal.String())
	}
	resp := &model.Response{Usage: a.usage, Model: a.model}
	switch a.finish {
	case "":
		return nil, adapter.Truncated(l.cfg.Name)
	case "length", "max_tokens", "model_length":
		resp.FinishReason = genai.FinishReasonMaxTokens
	case "content_filter":
		return nil, l.blocked(filtered, a.filtered)
	case "error", "abort", "insufficient_system_resource":
		return nil, l.broken("the server stopped the response: %s", a.finish)
	case "tool_calls", "function_call":
		if len(a.calls) == 0 {
			return nil, l.broken("the response ended with function calls and has none")
		}
		resp.FinishReason = genai.FinishReasonStop
	case "stop", "eos", "eos_token", "stop_sequence":
		resp.FinishReason = genai.FinishReasonStop
	default:
		resp.FinishReason = genai.FinishReasonOther
		if len(a.calls) > 0 {
			resp.FinishReason = genai.FinishReasonStop
		}
	}
	a.markThoughts()
	a.keepDetails()
	for _, c := range a.calls {
		p := adapter.NewCall(c.id, a.names.Original(c.name), c.args.String())
		if c.extra != nil {
			wire.Mark(p, a.llm.owner, string(c.extra))
		}
		a.builder.Part(p)
	}
	resp.Content = a.builder.Content()
	resp.Provided = a.seen.result(resp.Content)
	if resp.FinishReason == genai.FinishReasonMaxTokens && len(a.calls) > 0 {
		wire.CutCall(resp.Content, a.calls[len(a.calls)-1].args.Len() > 0)
	}
	return resp, nil
}

// markThoughts notes in which field the thinking came, unless it has details: then
// those go back in its place.
func (a *chatResponse) markThoughts() {
	c := a.builder.Content()
	if c == nil || a.thought == "" || len(a.details) > 0 {
		return
	}
	for _, p := range c.Parts {
		if p.Thought {
			wire.Mark(p, a.llm.owner, a.thought)
		}
	}
}
