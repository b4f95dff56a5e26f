package openai

import (
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/internal/toolschema"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// responsesOwner marks opaque data of the Responses API.
const responsesOwner = "openai"

// responsesRequest is the body of POST /responses. Nothing is stored at the
// provider: the conversation goes along whole, reasoning in encrypted form.
type responsesRequest struct {
	Model           string      `json:"model"`
	Instructions    string      `json:"instructions,omitempty"`
	Input           [0]any      `json:"input"` // see responsesBody
	Tools           []any       `json:"tools,omitempty"`
	ToolChoice      any         `json:"tool_choice,omitempty"`
	Text            *textConfig `json:"text,omitempty"`
	Reasoning       *reasoning  `json:"reasoning,omitempty"`
	MaxOutputTokens int64       `json:"max_output_tokens,omitempty"`
	Temperature     *float64    `json:"temperature,omitempty"`
	TopP            *float64    `json:"top_p,omitempty"`
	Include         []string    `json:"include,omitempty"`
	Store           bool        `json:"store"`
	Stream          bool        `json:"stream"`

	promptCache
}

type reasoning struct {
	Effort  string `json:"effort,omitempty"`
	Summary string `json:"summary,omitempty"`
}

type textConfig struct {
	Format any `json:"format"`
}

type schemaFormat struct {
	Type   string          `json:"type"`
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
	Strict bool            `json:"strict"`
}

type responsesTool struct {
	Type string `json:"type"`
	functionTool
	Strict   bool `json:"strict"` // On by default on this wire, so always sent.
	Deferred bool `json:"defer_loading,omitempty"`
}

type inputMessage struct {
	Type    string      `json:"type"`
	Role    string      `json:"role"`
	Phase   string      `json:"phase,omitempty"`
	Content []inputPart `json:"content"`
}

type inputPart struct {
	Type     string `json:"type"`
	Text     string `json:"text,omitempty"`
	ImageURL string `json:"image_url,omitempty"`
	FileID   string `json:"file_id,omitempty"`
	FileURL  string `json:"file_url,omitempty"`
	FileData string `json:"file_data,omitempty"`
	Filename string `json:"filename,omitempty"`
}

type callItem struct {
	Type      string `json:"type"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Arguments string `json:"arguments"`
}

// outputItem is a tool's result; Output is a text or a list of inputPart.
type outputItem struct {
	Type   string `json:"type"`
	CallID string `json:"call_id"`
	Output any    `json:"output"`
}

// namespace is the opaque data of a function call: where a search for tools has
// found the function.
type namespace struct {
	Namespace string `json:"namespace"`
}

// phase is the opaque data of a text part.
type phase struct {
	Phase string `json:"phase"`
}

// newResponsesRequest translates req, but for the conversation. Stop sequences, seed and penalties do not
// exist on this wire.
func (l *llm) newResponsesRequest(req *model.Request, names *wire.Names) (*responsesRequest, error) {
	cfg := req.Config
	if names := wire.Unsupported(cfg); len(names) > 0 {
		return nil, l.invalid("settings that the Responses API does not know: %s", strings.Join(names, ", "))
	}
	schema, err := toolschema.Response(cfg)
	if err != nil {
		return nil, l.invalid("the response schema is no JSON: %v", err)
	}
	r := &responsesRequest{
		Model: l.model, Stream: true,
		Instructions:    strings.Join(wire.System(cfg), "\n\n"),
		MaxOutputTokens: int64(cfg.MaxOutputTokens),
	}
	effort, err := l.effort(cfg.ThinkingConfig)
	if err != nil {
		return nil, err
	}
	if r.Temperature, r.TopP, err = l.sampling(cfg, effort); err != nil {
		return nil, err
	}
	if r.promptCache, err = l.cache(req.Cache); err != nil {
		return nil, err
	}
	if reasons(l.model) {
		r.Include = []string{"reasoning.encrypted_content"}
	}
	if t := cfg.ThinkingConfig; t != nil {
		r.Reasoning = &reasoning{Effort: effort}
		if t.IncludeThoughts {
			r.Reasoning.Summary = "auto"
		}
	}
	if err := l.responsesTools(r, req, names); err != nil {
		return nil, err
	}
	switch {
	case schema != nil:
		r.Text = &textConfig{Format: schemaFormat{Type: "json_schema", Name: "answer", Schema: schema,
			Strict: strict(schema)}}
	case cfg.ResponseMIMEType == "application/json":
		r.Text = &textConfig{Format: map[string]any{"type": "json_object"}}
	}
	return r, nil
}

// reasons reports whether a model may reason. Those that cannot refuse a request
// for encrypted reasoning; names that are not known to be such may.
func reasons(modelName string) bool {
	modelName = baseModel(modelName)
	for _, prefix := range []string{"gpt-3", "gpt-4", "chatgpt-"} {
		if strings.HasPrefix(modelName, prefix) {
			return false
		}
	}
	return !(strings.HasPrefix(modelName, "gpt-5") && strings.Contains(modelName, "-chat"))
}

func (l *llm) responsesTools(r *responsesRequest, req *model.Request, names *wire.Names) error {
	choice, err := wire.Choose(req.Config, req.Functions())
	if err != nil {
		return l.invalid("the Responses API cannot choose tools so: %v", err)
	}
	for _, d := range choice.Functions {
		r.Tools = append(r.Tools, responsesTool{Type: "function", functionTool: functionTool{
			Name: names.Wire(d.Name), Description: d.Description, Parameters: adapter.Parameters(d),
		}, Deferred: slices.Contains(req.Deferred, d.Name)})
	}
	asked, other := wire.ProviderTools(req.Config, builtins...)
	if len(other) > 0 {
		return l.invalid("tools that OpenAI does not run: %s; it runs %s", strings.Join(other, ", "),
			strings.Join(builtins, ", "))
	}
	if asked.Search != nil {
		if len(asked.Search.Excluded) > 0 {
			return l.invalid("OpenAI's web search cannot leave out domains")
		}
		r.Tools = append(r.Tools, map[string]any{"type": "web_search"})
	}
	if asked.Code {
		r.Tools = append(r.Tools, map[string]any{"type": "code_interpreter",
			"container": map[string]any{"type": "auto"}})
		r.Include = append(r.Include, "code_interpreter_call.outputs")
	}
	if req.ToolSearch {
		r.Tools = append(r.Tools, map[string]any{"type": toolSearch})
	}
	if len(r.Tools) > 0 {
		r.ToolChoice = toolChoice(choice, map[string]any{"type": "function", "name": names.Wire(choice.Only)})
	}
	return nil
}

// assistantItems translates what the model said. Items of the provider's own
// go back as they came, without the ids, since the provider has not stored what
// they name; reasoning goes back only before what it led to, searches for tools only
// where the model can search, and what is encrypted only to the account that it was
// encrypted for.
func (l *llm) assistantItems(
	parts []*genai.Part, names *wire.Names, searches bool, put func(kind int, item any),
) {
	for _, p := range parts {
		if p == nil {
			continue
		}
		opaque := adapter.Opaque(p, responsesOwner)
		switch media := wire.MediaOf(p); {
		case p.FunctionCall != nil:
			var ns namespace
			if searches {
				_ = json.Unmarshal([]byte(opaque), &ns) // Not every call has one.
			}
			put(kindItem, callItem{
				Type: "function_call", CallID: names.ID(p.FunctionCall.ID),
				Name: names.Wire(p.FunctionCall.Name), Namespace: ns.Namespace, Arguments: wire.ArgsText(p),
			})
		case p.Thought:
			if item := storeless(opaque, "encrypted_content"); item != nil && !wire.Foreign(p, l.account) {
				put(kindReasoning, item)
			}
		case p.Text != "":
			var ph phase
			_ = json.Unmarshal([]byte(opaque), &ph) // Not every text has one.
			put(kindItem, said(p.Text, ph.Phase))
		case opaque != "":
			item := storeless(opaque, "type")
			if item == nil {
				continue
			}
			switch kind := string(item["type"]); {
			case kind == `"code_interpreter_call"`:
				continue // It is named by the container that it ran in, which may be gone.
			case strings.HasPrefix(kind, `"tool_search_`) && !searches:
				continue
			case item["encrypted_content"] != nil && wire.Foreign(p, l.account):
				continue
			}
			put(kindItem, item)
		case media != nil:
			put(kindItem, said(media.Placeholder(), ""))
		}
	}
}

// said is a message of the model.
func said(text, ph string) inputMessage {
	return inputMessage{Type: "message", Role: "assistant", Phase: ph,
		Content: []inputPart{{Type: "output_text", Text: text}}}
}

// storeless returns an output item fit for input: without its id and without
// empty fields. It is nil when the item lacks the named field.
func storeless(opaque, need string) map[string]json.RawMessage {
	var item map[string]json.RawMessage
	if json.Unmarshal([]byte(opaque), &item) != nil {
		return nil
	}
	for key, v := range item {
		if string(v) == "null" {
			delete(item, key)
		}
	}
	if item[need] == nil {
		return nil
	}
	delete(item, "id")
	if string(item["type"]) == `"reasoning"` {
		delete(item, "status")
	}
	return item
}

// userItems translates what the user says, and what tools have returned.
func (l *llm) userItems(parts []*genai.Part, names *wire.Names, put func(kind int, item any)) error {
	for _, p := range parts {
		if p == nil {
			continue
		}
		switch media := wire.MediaOf(p); {
		case p.FunctionResponse != nil:
			out, err := l.toolOutput(p.FunctionResponse, names)
			if err != nil {
				return err
			}
			put(kindOutput, out)
		case media != nil:
			part, err := l.filePart(media)
			if err != nil {
				return err
			}
			put(kindPart, part)
		case p.Text != "":
			put(kindPart, inputPart{Type: "input_text", Text: p.Text})
		}
	}
	return nil
}

func (l *llm) toolOutput(fr *genai.FunctionResponse, names *wire.Names) (outputItem, error) {
	out := outputItem{Type: "function_call_output", CallID: names.ID(fr.ID), Output: resultText(fr)}
	media := wire.ResultMedia(fr)
	if len(media) == 0 {
		return out, nil
	}
	var parts []inputPart
	if text := resultText(fr); text != "" {
		parts = append(parts, inputPart{Type: "input_text", Text: text})
	}
	for _, m := range media {
		part, err := l.filePart(m)
		if err != nil {
			return out, err
		}
		parts = append(parts, part)
	}
	out.Output = parts
	return out, nil
}

// filePart translates images, and documents of any kind: which ones it reads is
// for OpenAI to say. Sound and video have no place on this wire.
func (l *llm) filePart(m *wire.Media) (inputPart, error) {
	web := m.URL == "" || m.IsWeb()
	switch {
	case !web && !m.IsID():
		return inputPart{}, l.elsewhere(m)
	case m.IsCommonImage() && web:
		return inputPart{Type: "input_image", ImageURL: m.Link()}, nil
	case m.IsCommonImage():
		return inputPart{Type: "input_image", FileID: m.URL}, nil
	case !m.IsDocument():
		return inputPart{}, l.invalid(
			"media of type %q cannot be sent, only images (JPEG, PNG, GIF, WebP) and documents", m.MIMEType)
	case m.IsID():
		return inputPart{Type: "input_file", FileID: m.URL}, nil
	case m.URL != "":
		return inputPart{Type: "input_file", FileURL: m.URL}, nil
	default:
		return inputPart{Type: "input_file", FileData: m.Link(), Filename: m.FileName()}, nil
	}
}

// elsewhere refuses a file that is where OpenAI cannot get it.
func (l *llm) elsewhere(m *wire.Media) error {
	return l.invalid("media of type %q cannot be sent from %q, only from http and https URLs, "+
		"or as the id of an uploaded file", m.MIMEType, m.URL)
}
