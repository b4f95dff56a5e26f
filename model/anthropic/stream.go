package anthropic

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/encoded"
	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/internal/sse"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// event is any event of the stream; which fields are set depends on Type.
type event struct {
	Type         string          `json:"type"`
	Index        int             `json:"index"`
	Message      *startedMessage `json:"message"`
	ContentBlock json.RawMessage `json:"content_block"`
	Delta        delta           `json:"delta"`
	Usage        usage           `json:"usage"`
	Error        apiError        `json:"error"`
}

// container is where code has run.
type container struct {
	ID string `json:"id"`
}

type startedMessage struct {
	Model     string    `json:"model"`
	Container container `json:"container"`
	Usage     usage     `json:"usage"`
}

type delta struct {
	Type        string          `json:"type"`
	Text        string          `json:"text"`
	Thinking    string          `json:"thinking"`
	Signature   string          `json:"signature"`
	PartialJSON string          `json:"partial_json"`
	Citation    json.RawMessage `json:"citation"`
	StopReason  string          `json:"stop_reason"`
	Container   container       `json:"container"`
	StopDetails struct {
		Category    string `json:"category"`
		Explanation string `json:"explanation"`
	} `json:"stop_details"`
}

// usage counts tokens; a field that an event does not have is nil.
type usage struct {
	Input         *wire.Tokens `json:"input_tokens"`
	Output        *wire.Tokens `json:"output_tokens"`
	CacheRead     *wire.Tokens `json:"cache_read_input_tokens"`
	CacheCreation *wire.Tokens `json:"cache_creation_input_tokens"`
	// Creation is how much of CacheCreation is kept for how long.
	Creation struct {
		Hour *wire.Tokens `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
	Details struct {
		Thinking wire.Tokens `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// merge takes over what u says: counts are cumulative, the last one holds.
func (c *counts) merge(u usage) {
	for dst, src := range map[*int64]*wire.Tokens{&c.input: u.Input, &c.output: u.Output, &c.read: u.CacheRead,
		&c.created: u.CacheCreation, &c.hour: u.Creation.Hour} {
		if src != nil {
			*dst = int64(*src)
		}
	}
	c.thinking = max(c.thinking, int64(u.Details.Thinking))
}

// counts is the usage of one request.
type counts struct{ input, output, read, created, hour, thinking int64 }

// openBlock is the content block that is being streamed.
type openBlock struct {
	index     int
	start     startedBlock
	raw       json.RawMessage // the block as it started
	args      strings.Builder // its input, as text
	signature strings.Builder
	citations []json.RawMessage
	hasText   bool
	at        int // where its text begins in the response's, in bytes
}

type startedBlock struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Input     json.RawMessage `json:"input"`
	Citations json.RawMessage `json:"citations"`
}

// collector collects one response, over several requests if it is paused. Owned by
// the goroutine in Generate.
type collector struct {
	llm     *llm
	names   *wire.Names
	builder *adapter.Builder

	block     *openBlock // nil between blocks
	started   bool       // whether the response has begun
	called    bool       // whether there was a call
	callBegan bool       // whether the last call had any argument text
	stop      string     // the stop reason of the last request
	refusal   string
	model     string
	total     model.Usage
	provided  model.Provided
	container string // of the code that ran, "" for none
}

// read sends one request and reads its stream to the end. What was counted until
// an error is counted too.
func (a *collector) read(ctx context.Context, of *prompt, paused []block) error {
	body, err := of.body(paused, a.container)
	if err != nil {
		return err
	}
	resp, err := a.llm.send(ctx, body, of.binds)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var n counts
	defer func() { a.count(n) }()
	a.stop, a.block, a.started = "", nil, false
	var quick event
	for line, err := range sse.Read(resp.Body, wire.MaxLine) {
		if err != nil {
			return adapter.TransportError(ctx, name, err, a.llm.key)
		}
		if len(bytes.TrimSpace(line.Data)) == 0 {
			continue
		}
		ev := &quick
		if !ev.quick(line.Data) {
			ev = &event{}
			if err := json.Unmarshal(line.Data, ev); err != nil {
				return broken("an event of the stream is not the JSON expected")
			}
		}
		done, err := a.event(ev, &n)
		if err != nil {
			return err
		}
		if done {
			return nil
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return adapter.Truncated(name)
}

// event takes one event in; done is true after the last one.
func (a *collector) event(ev *event, n *counts) (done bool, err error) {
	switch ev.Type {
	case "message_start":
		if a.started || ev.Message == nil {
			return false, broken("the stream does not begin once")
		}
		a.started = true
		a.model = ev.Message.Model
		a.container = cmp.Or(ev.Message.Container.ID, a.container)
		n.merge(ev.Message.Usage)
	case "content_block_start":
		return false, a.startBlock(ev)
	case "content_block_delta":
		if a.block == nil || a.block.index != ev.Index {
			return false, broken("a piece of the stream belongs to no content block")
		}
		return false, a.blockDelta(&ev.Delta)
	case "content_block_stop":
		if a.block == nil || a.block.index != ev.Index {
			return false, broken("the stream ends a content block that is not open")
		}
		return false, a.stopBlock(true)
	case "message_delta":
		n.merge(ev.Usage)
		a.container = cmp.Or(ev.Delta.Container.ID, a.container)
		if ev.Delta.StopReason != "" {
			d := ev.Delta.StopDetails
			a.stop, a.refusal = ev.Delta.StopReason, strings.Trim(d.Category+": "+d.Explanation, ": ")
		}
	case "message_stop":
		if a.stop == "" {
			return false, adapter.Truncated(name)
		}
		if !a.started {
			return false, broken("the stream has no beginning")
		}
		return true, a.stopBlock(false)
	case "error":
		n.merge(ev.Usage)
		return false, a.llm.failure(ev.Error, 0, nil)
	}
	return false, nil // "ping", and what the future brings.
}

func (a *collector) startBlock(ev *event) error {
	if err := a.stopBlock(false); err != nil {
		return err
	}
	b := &openBlock{index: ev.Index, raw: ev.ContentBlock, at: a.builder.Said()}
	if err := json.Unmarshal(ev.ContentBlock, &b.start); err != nil || b.start.Type == "" {
		return broken("a content block of the stream is not the JSON expected")
	}
	a.block = b
	switch b.start.Type {
	case "text":
		if len(b.start.Citations) > 0 && string(b.start.Citations) != "null" {
			a.builder.Close() // Its citations belong to this block's text alone.
			_ = json.Unmarshal(b.start.Citations, &b.citations)
		}
		a.builder.Text(b.start.Text)
	case "thinking":
		a.builder.Close()
		b.signature.WriteString(b.start.Signature)
		a.think(b.start.Thinking)
	}
	return nil
}

func (a *collector) think(text string) {
	a.block.hasText = a.block.hasText || text != ""
	a.builder.Thought(text)
}

// deltaOf is the type of block that a type of delta belongs to. Others belong to
// blocks that have input, or are what the future brings.
var deltaOf = map[string]string{
	"text_delta": "text", "citations_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking",
}

func (a *collector) blockDelta(d *delta) error {
	of, kind := deltaOf[d.Type], a.block.start.Type
	if of != "" && of != kind || d.Type == "input_json_delta" && (kind == "text" || kind == "thinking") {
		return broken("a piece of the stream belongs to another kind of content block")
	}
	switch d.Type {
	case "text_delta":
		a.builder.Text(d.Text)
	case "thinking_delta":
		a.think(d.Thinking)
	case "signature_delta":
		a.block.signature.WriteString(d.Signature)
	case "input_json_delta":
		a.block.args.WriteString(d.PartialJSON)
	case "citations_delta":
		a.block.citations = append(a.block.citations, d.Citation)
	}
	return nil
}

// stopBlock finishes the open block, if there is one. Of a call that the stream
// does not end, the rest of the input may have been lost; text is what it is.
func (a *collector) stopBlock(ended bool) error {
	b := a.block
	if b == nil {
		return nil
	}
	a.block = nil
	switch b.start.Type {
	case "text":
		return a.cite(b)
	case "thinking":
		if b.signature.Len() > 0 {
			if !b.hasText {
				a.builder.Part(&genai.Part{Thought: true})
			}
			a.builder.Sign([]byte(b.signature.String()), true)
			a.bind()
		}
		a.builder.Close()
	case "redacted_thinking":
		a.builder.Opaque(string(b.raw), true)
		a.bind()
	case "tool_use":
		if !ended {
			return broken("a function call of the response was not finished")
		}
		args := b.input()
		a.called, a.callBegan = true, args != ""
		a.builder.Part(adapter.NewCall(b.start.ID, a.names.Original(b.start.Name), args))
	default:
		return a.providerBlock(b)
	}
	return nil
}

// bind notes in the thinking that was added last which model it is of.
func (a *collector) bind() {
	if c := a.builder.Content(); c != nil {
		c.Parts[len(c.Parts)-1].PartMetadata[seam.MetaModel] = a.llm.model
	}
}

// input is the text of the block's input: the pieces that were streamed, or
// what the block started with if there were none.
func (b *openBlock) input() string {
	if b.args.Len() > 0 {
		return b.args.String()
	}
	if text := string(bytes.TrimSpace(b.start.Input)); text != "{}" && text != "null" {
		return text
	}
	return ""
}

// cite keeps the citations of a text block, which go back with it.
func (a *collector) cite(b *openBlock) error {
	if len(b.citations) == 0 {
		return nil
	}
	raw, err := json.Marshal(b.citations)
	if err != nil {
		return broken("a citation of the stream is not JSON")
	}
	if c := a.builder.Content(); c != nil {
		if p := c.Parts[len(c.Parts)-1]; p.Text != "" && !p.Thought {
			wire.Mark(p, name, string(raw))
		}
	}
	a.cited(b)
	return nil
}

// providerBlock keeps a block of the provider's own tools as it is.
func (a *collector) providerBlock(b *openBlock) error {
	raw := b.raw
	if args := b.args.String(); args != "" {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(raw, &fields); err != nil || !json.Valid([]byte(args)) {
			return broken("a content block of the stream is not the JSON expected")
		}
		fields["input"] = json.RawMessage(args)
		var err error
		if raw, err = rawjson.Marshal(fields); err != nil {
			return broken("a content block of the stream is not the JSON expected")
		}
	}
	a.builder.Opaque(string(raw), false)
	a.used(raw)
	return nil
}

// count adds the usage of one request to the response's.
func (a *collector) count(n counts) {
	a.total.Prompt += n.input + n.read + n.created
	a.total.Cached += n.read
	a.total.CacheWrite += n.created
	a.total = seam.WithCacheWriteHour(a.total, seam.CacheWriteHour(a.total)+n.hour)
	a.total.Completion += n.output
	a.total.Thoughts += n.thinking
	a.total = a.total.Normal()
}

// response returns the finished response.
func (a *collector) response() (*model.Response, error) {
	resp := &model.Response{Content: a.builder.Content(), Usage: a.total, Model: a.model, Provided: a.provided.OrNil()}
	switch a.stop {
	case "tool_use":
		if !a.called {
			return nil, broken("the response ended with function calls and has none")
		}
		resp.FinishReason = genai.FinishReasonStop
	case "end_turn", "stop_sequence":
		resp.FinishReason = genai.FinishReasonStop
	case "max_tokens", "model_context_window_exceeded":
		resp.FinishReason = genai.FinishReasonMaxTokens
		wire.CutCall(resp.Content, a.callBegan)
	case "refusal":
		return nil, a.total.Spent(adapter.Blocked(name, "the model refused to respond", a.refusal, a.llm.key))
	default:
		resp.FinishReason = genai.FinishReasonOther
	}
	return resp, nil
}

func broken(msg string) *model.Error {
	return &model.Error{Kind: model.KindUnavailable, Provider: name, Message: msg}
}

// send makes the request and returns a response that is an event stream.
func (l *llm) send(ctx context.Context, body *encoded.Body, binds bool) (*http.Response, error) {
	header := http.Header{}
	if binds {
		header.Set("Anthropic-Beta", bindingBeta)
	}
	resp, err := l.endpoint.Post(ctx, "v1/messages", body, header)
	if err != nil {
		return nil, adapter.TransportError(ctx, name, err, l.key)
	}
	return resp, l.checkResponse(ctx, resp)
}
