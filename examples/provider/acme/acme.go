// Package acme is a model provider as somebody outside of agentd would write it:
// it speaks the wire of a made-up vendor.
//
// ACME's wire is one POST to /v1/answer with a JSON body and a bearer token,
// with a response of server-sent events, each a JSON object: {"text"}, {"thought"},
// {"call"}, {"error"}, and {"done"} at the end.
package acme

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

const name = "acme"

// Provider serves ACME's models.
type Provider struct {
	url  string
	key  string // never printed: see String
	http *http.Client
}

// New returns the provider at an address, with the server's own key, "" for none.
func New(baseURL, apiKey string) *Provider {
	return &Provider{
		url: cmp.Or(baseURL, "https://api.acme.example") + "/v1/answer", key: apiKey,
		http: adapter.HTTPClient(http.DefaultTransport, 0),
	}
}

// String keeps the key out of whatever prints a provider.
func (p *Provider) String() string { return "acme at " + p.url }

// Describe says what ACME is.
func (p *Provider) Describe() model.Description {
	return model.Description{
		Name: name, KeyVariables: []string{"ACME_API_KEY"}, Secrets: model.Secrets{p.key}, Endpoint: p.url,
		Catalog: prices,
	}
}

// Open returns a model.
func (p *Provider) Open(modelName, caller string) (model.Model, error) {
	k := cmp.Or(caller, p.key)
	if k == "" {
		return model.Model{}, p.Describe().MissingKey()
	}
	return model.Model{LLM: &llm{provider: p, model: modelName, key: k}}, nil
}

// llm is a model with a key. It is immutable.
type llm struct {
	provider *Provider
	model    string
	key      string // never printed: see String
}

// String keeps the key out of whatever prints a model.
func (l *llm) String() string { return name + "/" + l.model }

// Generate makes one call. A schema that ACME refuses is asked for in words.
func (l *llm) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	resp, err := l.generate(ctx, l.body(req, false), emit)
	if e, ok := errors.AsType[*model.Error](err); ok && e.Kind == model.KindInvalid &&
		req.Config.ResponseJsonSchema != nil && strings.Contains(e.Message, "schema") {
		return l.generate(ctx, l.body(req, true), emit)
	}
	return resp, err
}

func (l *llm) generate(ctx context.Context, body any, emit func(model.Delta)) (*model.Response, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, &model.Error{Kind: model.KindInvalid, Provider: name, Message: err.Error()}
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, l.provider.url, bytes.NewReader(data))
	if err != nil {
		return nil, &model.Error{Kind: model.KindInvalid, Provider: name, Message: "ACME_BASE_URL is no address"}
	}
	post.Header.Set("Authorization", "Bearer "+l.key)
	post.Header.Set("Content-Type", "application/json")
	resp, err := l.provider.http.Do(post)
	if err != nil {
		return nil, adapter.TransportError(ctx, name, err, l.key)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, l.refused(resp)
	}
	return l.read(ctx, resp.Body, emit)
}

// maxRefusal bounds what is read of a refusal, in bytes.
const maxRefusal = 16 << 10

// refused is a response with a status that is not 200.
func (l *llm) refused(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // what came of it has to do
	var body struct{ Code, Message string }
	if json.Unmarshal(text, &body) != nil {
		body.Message = string(text)
	}
	return l.failure(adapter.Failure{Status: resp.StatusCode, Header: resp.Header, Code: body.Code,
		Message: body.Message})
}

func (l *llm) failure(f adapter.Failure) error {
	f.Provider, f.Secrets = name, []string{l.key}
	return f.Error()
}

// event is one event of ACME's stream; one of its members is set.
type event struct {
	Text    string
	Thought string
	Call    *struct{ ID, Name, Args string }
	Error   *struct {
		Status        int
		Code, Message string
	}
	Done *struct {
		Reason string
		Usage  model.Usage
	}
}

// read reads the stream to its end, which is Done.
func (l *llm) read(ctx context.Context, body io.Reader, emit func(model.Delta)) (*model.Response, error) {
	b := &adapter.Builder{Provider: name, Emit: emit}
	for sse, err := range adapter.ReadEvents(body, 0) {
		if err != nil {
			return nil, adapter.TransportError(ctx, name, err, l.key)
		}
		var ev event
		if err := json.Unmarshal([]byte(sse.Data), &ev); err != nil {
			return nil, &model.Error{Kind: model.KindUnavailable, Provider: name,
				Message: "the stream holds something that is no event"}
		}
		switch {
		case ev.Error != nil:
			return nil, l.failure(adapter.Failure{Status: ev.Error.Status, Code: ev.Error.Code,
				Message: ev.Error.Message})
		case ev.Call != nil:
			b.Part(adapter.NewCall(ev.Call.ID, ev.Call.Name, ev.Call.Args))
		case ev.Done != nil:
			finish := genai.FinishReasonStop
			if ev.Done.Reason == "length" {
				finish = genai.FinishReasonMaxTokens
			}
			return &model.Response{
				Content: b.Content(), FinishReason: finish, Usage: ev.Done.Usage, Model: l.model,
			}, nil
		case ev.Thought != "":
			b.Thought(ev.Thought)
		default:
			b.Text(ev.Text)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, adapter.Truncated(name)
}

// body is the request in ACME's form. With words, the schema of the response is
// asked for in the instruction. ACME knows neither deferred functions nor references
// to them.
func (l *llm) body(req *model.Request, words bool) any {
	req = req.Load()
	system, schema := adapter.Text(req.Config.SystemInstruction), req.Config.ResponseJsonSchema
	if words && schema != nil {
		text, err := json.Marshal(schema)
		if err == nil {
			system += "\n\nAnswer with nothing but JSON that satisfies this JSON Schema: " + string(text)
		}
		schema = nil
	}
	type tool struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		Schema      any    `json:"schema,omitempty"`
	}
	var tools []tool
	for _, f := range req.Functions() {
		tools = append(tools, tool{f.Name, f.Description, f.ParametersJsonSchema})
	}
	ids := adapter.CallIDs(req.Contents)
	var messages []message
	for _, c := range req.ReferencesInWords(nil, nil) {
		messages = append(messages, messagesOf(c, ids)...)
	}
	return map[string]any{"model": l.model, "system": system, "messages": messages, "tools": tools, "schema": schema}
}

// message is one message of a conversation in ACME's form.
type message struct {
	Role string `json:"role"`
	Text string `json:"text,omitempty"`
	Call string `json:"call,omitempty"` // ACME's id of a call, with its result
	Name string `json:"name,omitempty"` // of the tool
	Args string `json:"args,omitempty"` // of a call
	JSON any    `json:"json,omitempty"` // a result
}

// messagesOf are the messages of a content. ACME wants no thoughts back; what it
// cannot take is named to the model.
func messagesOf(c *genai.Content, ids map[string]string) []message {
	var out []message
	for _, p := range c.Parts {
		switch {
		case p.Thought:
		case p.FunctionCall != nil:
			out = append(out, message{Role: "call", Call: ids[p.FunctionCall.ID], Name: p.FunctionCall.Name,
				Args: adapter.ArgsText(p)})
		case p.FunctionResponse != nil:
			out = append(out, message{Role: "result", Call: ids[p.FunctionResponse.ID], Name: p.FunctionResponse.Name,
				JSON: p.FunctionResponse.Response})
		case p.Text != "":
			out = append(out, message{Role: c.Role, Text: p.Text})
		case p.InlineData != nil:
			out = append(out, message{Role: c.Role,
				Text: fmt.Sprintf("(a file of type %s, which cannot be shown)", p.InlineData.MIMEType)})
		case p.FileData != nil:
			out = append(out, message{Role: c.Role, Text: "(the file " + p.FileData.FileURI + ")"})
		}
	}
	return out
}
