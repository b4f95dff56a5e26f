package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/internal/wiretap"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/internal/sse"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// maxItems bounds the items of one response.
const maxItems = 4096

// responsesEvent is any event of the stream; which fields are set depends on
// Type.
type responsesEvent struct {
	Type         string          `json:"type"`
	OutputIndex  int             `json:"output_index"`
	SummaryIndex int             `json:"summary_index"`
	Delta        string          `json:"delta"`
	Arguments    string          `json:"arguments"`
	Item         json.RawMessage `json:"item"`
	Response     *responseObject `json:"response"`
	Usage        *responsesUsage `json:"usage"` // of an error, from servers that count it
}

// responseObject is the response as a whole, so far or at its end.
type responseObject struct {
	Status     string            `json:"status"`
	Model      string            `json:"model"`
	Output     []json.RawMessage `json:"output"`
	Usage      *responsesUsage   `json:"usage"`
	Error      *apiError         `json:"error"`
	Incomplete struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
}

type responsesUsage struct {
	Input     wire.Tokens `json:"input_tokens"`
	Output    wire.Tokens `json:"output_tokens"`
	Total     wire.Tokens `json:"total_tokens"`
	InputMore struct {
		Cached  wire.Tokens `json:"cached_tokens"`
		Written wire.Tokens `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
	OutputMore struct {
		Reasoning wire.Tokens `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
}

// model is the usage in our terms; zero if none was reported.
func (u *responsesUsage) model() model.Usage {
	if u == nil {
		return model.Usage{}
	}
	return reported{u.Input, u.Output, u.InputMore.Cached, u.InputMore.Written, u.OutputMore.Reasoning, u.Total}.usage()
}

// outItem is an item of the response: a message, reasoning, a function call, or
// something of the provider's own tools.
type outItem struct {
	Type      string        `json:"type"`
	CallID    string        `json:"call_id"`
	Name      string        `json:"name"`
	Namespace string        `json:"namespace"`
	Arguments string        `json:"arguments"`
	Phase     string        `json:"phase"`
	Content   []itemContent `json:"content"`
	Summary   []itemContent `json:"summary"`
}

// readItem reads an item: of those of the provider's own tools, whose fields have
// other types, the type alone.
func readItem(raw json.RawMessage) (*outItem, error) {
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &kind); err != nil {
		return nil, err
	}
	item := &outItem{Type: kind.Type}
	switch kind.Type {
	case "message", "reasoning", "function_call":
		return item, json.Unmarshal(raw, item)
	}
	return item, nil
}

type itemContent struct {
	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal"`

	Annotations json.RawMessage `json:"annotations"`
}

// itemState is what was streamed of an item before it was finished.
type itemState struct {
	text, thought, args strings.Builder
	at                  int // where its text begins in the response's, in bytes
	done                bool
}

// responsesResponse collects one response. Owned by the goroutine in Generate.
type responsesResponse struct {
	llm     *llm
	names   *wire.Names
	builder *adapter.Builder

	items     map[int]*itemState // by output index, at most maxItems
	refusal   strings.Builder
	callBegan bool // whether the last call had any argument text
	model     string
	usage     *responsesUsage // the newest; nil if none was reported
	provided  model.Provided
}

// respond makes one call over the Responses API.
func (l *llm) respond(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	names := wire.NewNames(maxToolName, req)
	defer names.Leave(req)
	body, err := l.responsesBody(req, names)
	if err != nil {
		return nil, err
	}
	resp, err := l.post(ctx, "responses", body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &responsesResponse{llm: l, names: names, builder: &adapter.Builder{Provider: responsesOwner, Emit: emit},
		items: map[int]*itemState{}}
	read := a.readStream
	if wire.IsJSON(wire.ContentType(resp)) {
		read = a.readWhole
	}
	out, err := read(ctx, resp)
	if err != nil {
		return nil, a.usage.model().Spent(err)
	}
	out.Usage = a.usage.model()
	return out, nil
}

// readWhole reads the response of a server that does not stream.
func (a *responsesResponse) readWhole(ctx context.Context, resp *http.Response) (*model.Response, error) {
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, adapter.TransportError(ctx, a.llm.cfg.Name, err, a.llm.key)
	}
	var r responseObject
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, a.llm.broken("the response is not the JSON expected")
	}
	a.usage = r.Usage
	if r.Status == "" {
		return nil, a.llm.failure(parseError(data), 0, nil)
	}
	return a.finish("response."+r.Status, &r)
}

// readStream reads the stream up to the event that ends the response.
func (a *responsesResponse) readStream(ctx context.Context, resp *http.Response) (*model.Response, error) {
	var quick responsesEvent
	for line, err := range sse.Read(resp.Body, maxLine) {
		if err != nil {
			return nil, adapter.TransportError(ctx, a.llm.cfg.Name, err, a.llm.key)
		}
		data := bytes.TrimSpace(line.Data)
		if len(data) == 0 || bytes.HasPrefix(data, []byte("[DONE]")) {
			continue
		}
		ev := &quick
		if !ev.quick(data) {
			ev = &responsesEvent{}
			if err := json.Unmarshal(data, ev); err != nil {
				if isUnknown(data) {
					continue
				}
				return nil, a.llm.broken("an event of the stream is not the JSON expected")
			}
		}
		if ev.Response != nil && ev.Response.Usage != nil {
			a.usage = ev.Response.Usage
		}
		switch ev.Type {
		case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
			if ev.Response == nil {
				return nil, a.llm.broken("the last event of the stream has no response")
			}
			return a.finish(ev.Type, ev.Response)
		case "error", "":
			e := parseError(data)
			if e.Type == "error" {
				e.Type = ""
			}
			a.usage = cmp.Or(ev.Usage, a.usage)
			return nil, a.llm.failure(e, 0, nil)
		}
		if err := a.event(ev); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, adapter.Truncated(a.llm.cfg.Name)
}

// contentEvents are the events that carry the response, save the last one.
// Others tell of progress, or of parts that their items repeat.
var contentEvents = map[string]bool{
	"response.output_item.added":             true,
	"response.output_item.done":              true,
	"response.output_text.delta":             true,
	"response.refusal.delta":                 true,
	"response.reasoning_summary_part.added":  true,
	"response.reasoning_summary_text.delta":  true,
	"response.reasoning_text.delta":          true,
	"response.function_call_arguments.delta": true,
	"response.function_call_arguments.done":  true,
}

// isUnknown reports whether an event is of a type that does not matter here,
// whatever else is in it.
func isUnknown(data []byte) bool {
	var ev struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(data, &ev) != nil {
		return false
	}
	switch ev.Type {
	case "", "error", "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		return false
	default:
		return !contentEvents[ev.Type]
	}
}

// event takes one event in that is not the last.
func (a *responsesResponse) event(ev *responsesEvent) error {
	if ev.Response != nil && ev.Response.Model != "" {
		a.model = ev.Response.Model
	}
	if !contentEvents[ev.Type] {
		return nil
	}
	it, err := a.item(ev.OutputIndex)
	if err != nil {
		return err
	}
	if it.done {
		return a.llm.broken("a piece of the stream belongs to an item that is finished")
	}
	switch ev.Type {
	case "response.output_item.done":
		return a.itemDone(it, ev.Item)
	case "response.output_text.delta":
		a.text(it, ev.Delta)
	case "response.refusal.delta":
		a.refusal.WriteString(ev.Delta)
	case "response.reasoning_summary_part.added":
		if ev.SummaryIndex > 0 && it.thought.Len() > 0 {
			a.thought(it, "\n\n")
		}
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		a.thought(it, ev.Delta)
	case "response.function_call_arguments.delta":
		it.args.WriteString(ev.Delta)
	case "response.function_call_arguments.done":
		return a.setArgs(it, ev.Arguments)
	}
	return nil
}

func (a *responsesResponse) item(index int) (*itemState, error) {
	it := a.items[index]
	if it == nil {
		if len(a.items) >= maxItems {
			return nil, a.llm.tooMuch("the response has more than %d items", maxItems)
		}
		it = &itemState{}
		a.items[index] = it
	}
	return it, nil
}

func (a *responsesResponse) text(it *itemState, text string) {
	if it.text.Len() == 0 {
		it.at = a.builder.Said()
	}
	it.text.WriteString(text)
	a.builder.Text(text)
}

func (a *responsesResponse) thought(it *itemState, text string) {
	it.thought.WriteString(text)
	a.builder.Thought(text)
}

// itemDone takes a finished item. Its text was streamed as a rule; what was not
// is added.
func (a *responsesResponse) itemDone(it *itemState, raw json.RawMessage) error {
	item, err := readItem(raw)
	if err != nil {
		return a.llm.broken("an item of the response is not the JSON expected")
	}
	it.done = true
	switch item.Type {
	case "message":
		return a.message(it, item)
	case "reasoning":
		a.reasoning(it, item, raw)
	case "function_call":
		if err := a.setArgs(it, item.Arguments); err != nil {
			return err
		}
		args := it.args.String()
		a.callBegan = args != ""
		p := adapter.NewCall(item.CallID, a.names.Original(item.Name), args)
		if item.Namespace != "" {
			wire.Mark(p, responsesOwner, rawjson.JSON(namespace{item.Namespace}))
		}
		a.builder.Part(p)
	default:
		a.keep(raw, false)
		a.used(raw)
	}
	return nil
}

func (a *responsesResponse) message(it *itemState, item *outItem) error {
	var whole strings.Builder
	refused := a.refusal.Len() > 0
	for _, c := range item.Content {
		if c.Type == "refusal" && !refused {
			a.refusal.WriteString(c.Refusal)
		}
		if c.Type == "output_text" {
			whole.WriteString(c.Text)
		}
	}
	if rest, ok := strings.CutPrefix(whole.String(), it.text.String()); ok {
		a.text(it, rest)
	} else if whole.Len() > 0 && !sameText(whole.String(), it.text.String()) {
		return a.llm.broken("the text of the response is not what was streamed of it")
	}
	a.cited(item, it.at)
	if item.Phase == "" || it.text.Len() == 0 {
		return nil
	}
	if p := a.last(); p != nil && p.Text != "" && !p.Thought {
		if b, err := rawjson.Marshal(phase{item.Phase}); err == nil {
			wire.Mark(p, responsesOwner, string(b))
		}
	}
	return nil
}

// reasoning keeps the whole item with the thought that was streamed of it.
func (a *responsesResponse) reasoning(it *itemState, item *outItem, raw json.RawMessage) {
	if it.thought.Len() == 0 {
		var texts []string
		for _, c := range append(item.Summary, item.Content...) {
			texts = append(texts, c.Text)
		}
		a.thought(it, strings.Join(texts, "\n\n"))
	}
	if c := a.builder.Content(); c != nil && it.thought.Len() > 0 {
		// Some servers finish reasoning only after what follows it.
		for _, p := range c.Parts {
			if p.Thought && !adapter.Owned(p, responsesOwner) && p.Text == it.thought.String() {
				wire.Mark(p, responsesOwner, string(raw))
				a.sealed(p, raw)
				return
			}
		}
	}
	a.keep(raw, true)
}

// keep adds an item that goes back as it came.
func (a *responsesResponse) keep(raw json.RawMessage, thought bool) {
	a.builder.Opaque(string(raw), thought)
	a.sealed(a.last(), raw)
}

// sealed marks p if its item is encrypted, in part or whole.
func (a *responsesResponse) sealed(p *genai.Part, raw json.RawMessage) {
	if bytes.Contains(raw, []byte(`"encrypted_content"`)) {
		wire.MarkAccount(p, a.llm.account)
	}
}

// last closes the part that takes text and returns the newest part.
func (a *responsesResponse) last() *genai.Part {
	c := a.builder.Content()
	if c == nil {
		return nil
	}
	return c.Parts[len(c.Parts)-1]
}

// unstreamed takes the items that the last event repeats, for servers that
// finish none on the way. Those that do may number them differently here.
func (a *responsesResponse) unstreamed(output []json.RawMessage) error {
	done, openCall := false, false
	for _, it := range a.items {
		done = done || it.done
		openCall = openCall || !it.done && it.args.Len() > 0
	}
	switch {
	case done && openCall:
		return a.llm.broken("a function call of the response was not finished")
	case done:
		return nil
	}
	for i, raw := range output {
		it, err := a.item(i)
		if err != nil {
			return err
		}
		if err := a.itemDone(it, raw); err != nil {
			return err
		}
	}
	return nil
}

// finish takes the event that ends the response.
func (a *responsesResponse) finish(kind string, r *responseObject) (*model.Response, error) {
	l := a.llm
	if kind == "response.failed" || r.Error != nil {
		var e apiError
		if r.Error != nil {
			e = *r.Error
		}
		return nil, l.failure(e, 0, nil)
	}
	if err := a.unstreamed(r.Output); err != nil {
		return nil, err
	}
	if a.refusal.Len() > 0 {
		return nil, l.blocked(refused, a.refusal.String())
	}
	if kind == "response.completed" {
		if err := a.repeated(r.Output); err != nil {
			return nil, err
		}
	}
	resp := &model.Response{Content: a.builder.Content(), Model: a.model, Provided: a.provided.OrNil()}
	if r.Model != "" {
		resp.Model = r.Model
	}
	switch {
	case kind == "response.completed":
		resp.FinishReason = genai.FinishReasonStop
	case kind != "response.incomplete":
		return nil, l.broken("the provider ended the response: %s", strings.TrimPrefix(kind, "response."))
	case r.Incomplete.Reason == "max_output_tokens":
		resp.FinishReason = genai.FinishReasonMaxTokens
		wire.CutCall(resp.Content, a.callBegan)
	case r.Incomplete.Reason == "content_filter":
		return nil, l.blocked(filtered, "")
	default:
		return nil, l.broken("the provider ended the response early: %s", wiretap.Redact(r.Incomplete.Reason, l.key))
	}
	return resp, nil
}
