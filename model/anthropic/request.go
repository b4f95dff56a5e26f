package anthropic

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// maxToolName is the length Anthropic allows for a tool's name.
const maxToolName = 128

// request is the body of POST /v1/messages.
type request struct {
	Model         string        `json:"model"`
	MaxTokens     int64         `json:"max_tokens"`
	System        []block       `json:"system,omitempty"`
	Messages      [0]any        `json:"messages"`        // see prompt
	Tools         []any         `json:"tools,omitempty"` // tool or serverTool
	ToolChoice    *toolChoice   `json:"tool_choice,omitempty"`
	Thinking      *thinking     `json:"thinking,omitempty"`
	OutputConfig  *outputConfig `json:"output_config,omitempty"`
	Temperature   *float64      `json:"temperature,omitempty"`
	TopP          *float64      `json:"top_p,omitempty"`
	TopK          *int64        `json:"top_k,omitempty"`
	StopSequences []string      `json:"stop_sequences,omitempty"`
	Stream        bool          `json:"stream"`
}

// block is a content block of any type; raw, when set, is the whole block.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Citations json.RawMessage `json:"citations,omitempty"`
	Thinking  *string         `json:"thinking,omitempty"`
	Signature string          `json:"signature,omitempty"`
	Source    *source         `json:"source,omitempty"`
	Title     string          `json:"title,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	ToolName  string          `json:"tool_name,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
	Content   []block         `json:"content,omitempty"`

	CacheControl *cacheControl `json:"cache_control,omitempty"`

	raw json.RawMessage
}

// MarshalJSON implements json.Marshaler.
func (b block) MarshalJSON() ([]byte, error) {
	if b.raw != nil {
		return b.raw, nil
	}
	return rawjson.Marshal(plain(b))
}

// plain is a block that is not raw.
type plain block

// source is where an image or a document comes from.
type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
	FileID    string `json:"file_id,omitempty"`
}

type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`

	CacheControl *cacheControl `json:"cache_control,omitempty"`
	Deferred     bool          `json:"defer_loading,omitempty"`
}

// serverTool is a tool that Anthropic runs.
type serverTool struct {
	Type           string   `json:"type"`
	Name           string   `json:"name"`
	BlockedDomains []string `json:"blocked_domains,omitempty"`

	CacheControl *cacheControl `json:"cache_control,omitempty"`
}

type toolChoice struct {
	Type string `json:"type"`
	Name string `json:"name,omitempty"`
}

type outputConfig struct {
	Effort string        `json:"effort,omitempty"`
	Format *outputFormat `json:"format,omitempty"`
}

type outputFormat struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}

// newRequest translates req, but for the conversation.
func newRequest(modelName string, req *model.Request, names *wire.Names) (*request, error) {
	cfg := req.Config
	if names := wire.Unsupported(cfg, "StopSequences", "TopK"); len(names) > 0 {
		return nil, invalid("settings that Anthropic does not know: %s", strings.Join(names, ", "))
	}
	r := &request{Model: modelName, Stream: true, StopSequences: cfg.StopSequences}
	for _, text := range wire.System(cfg) {
		r.System = append(r.System, block{Type: "text", Text: text})
	}
	if err := r.setTools(req, names); err != nil {
		return nil, err
	}
	if schema := nativeSchema(modelName, cfg); schema != nil {
		r.OutputConfig = &outputConfig{Format: &outputFormat{Type: "json_schema", Schema: schema}}
	} else if cfg.ResponseMIMEType == "application/json" {
		return nil, invalid("JSON responses need a response schema that Anthropic takes")
	}
	if err := r.setSampling(cfg); err != nil {
		return nil, err
	}
	mark, err := newMark(req.Cache)
	if err != nil {
		return nil, err
	}
	r.setCache(mark)
	return r, nil
}

// setSampling sets token limit, thinking and sampling. Thinking excludes
// top_k and any temperature but 1.
func (r *request) setSampling(cfg *genai.GenerateContentConfig) error {
	family := familyOf(r.Model)
	r.MaxTokens = int64(cfg.MaxOutputTokens)
	if r.MaxTokens <= 0 {
		r.MaxTokens = family.defaultMaxTokens()
	}
	var effort string
	r.Thinking, effort = family.thinking(cfg.ThinkingConfig)
	if r.Thinking != nil && r.Thinking.Type == "disabled" && family.alwaysThinks() {
		return invalid("%s cannot do without thinking: leave out the budget of 0, or ask for an effort", r.Model)
	}
	if family.preserves() {
		// What stands before a thought changes here: instructions with keys of the state,
		// tools, summaries. Such a thought is to be left out, not to end the session.
		if r.Thinking == nil {
			r.Thinking = &thinking{Type: "adaptive"}
		}
		if family.binds(cfg.ThinkingConfig) {
			r.Thinking.BlockBinding = &blockBinding{OnMismatch: "drop_block"}
		}
	}
	if effort != "" {
		if r.OutputConfig == nil {
			r.OutputConfig = &outputConfig{}
		}
		r.OutputConfig.Effort = effort
	}
	if r.Thinking != nil && r.Thinking.BudgetTokens >= r.MaxTokens {
		// The budget counts towards max_tokens: the response gets what was asked for.
		r.MaxTokens += r.Thinking.BudgetTokens
	}
	if cfg.TopP != nil {
		r.TopP = new(wire.Float(*cfg.TopP))
	}
	if r.Thinking != nil && r.Thinking.Type != "disabled" {
		if cfg.TopK != nil || cfg.Temperature != nil && *cfg.Temperature != 1 {
			return invalid("Anthropic takes neither TopK nor a Temperature other than 1 together with thinking")
		}
	}
	if !family.samples() {
		if cfg.TopK != nil || cfg.TopP != nil && *cfg.TopP != 1 || cfg.Temperature != nil && *cfg.Temperature != 1 {
			return invalid("%s takes no Temperature, TopP and TopK", r.Model)
		}
		r.TopP = nil
		return nil
	}
	if cfg.Temperature != nil {
		r.Temperature = new(wire.Float(*cfg.Temperature))
	}
	if cfg.TopK != nil {
		r.TopK = new(int64(*cfg.TopK))
	}
	return nil
}

// setTools sets the tools and which of them the model has to use.
func (r *request) setTools(req *model.Request, names *wire.Names) error {
	choice, err := wire.Choose(req.Config, req.Functions())
	if err != nil {
		return invalid("Anthropic cannot choose tools so: %v", err)
	}
	for _, d := range choice.Functions {
		r.Tools = append(r.Tools, tool{
			Name: names.Wire(d.Name), Description: d.Description, InputSchema: inputSchema(adapter.Parameters(d)),
			Deferred: slices.Contains(req.Deferred, d.Name),
		})
	}
	asked, other := wire.ProviderTools(req.Config, builtins...)
	if len(other) > 0 {
		return invalid("tools that Anthropic does not run: %s; it runs %s", strings.Join(other, ", "),
			strings.Join(builtins, ", "))
	}
	if asked.Search != nil {
		r.Tools = append(r.Tools, serverTool{Type: "web_search_20250305", Name: "web_search",
			BlockedDomains: asked.Search.Excluded})
	}
	if asked.URLs {
		r.Tools = append(r.Tools, serverTool{Type: "web_fetch_20250910", Name: "web_fetch"})
	}
	if asked.Code {
		r.Tools = append(r.Tools, serverTool{Type: "code_execution_20250825", Name: "code_execution"})
	}
	if req.ToolSearch {
		r.Tools = append(r.Tools, serverTool{Type: "tool_search_tool_bm25_20251119", Name: "tool_search_tool_bm25"})
	}
	switch {
	case len(r.Tools) == 0:
	case (choice.Any || choice.Only != "") && familyOf(r.Model).choosesTools():
		return invalid("%s takes no tool choice that requires a call: leave out the tool choice", r.Model)
	case choice.None:
		r.ToolChoice = &toolChoice{Type: "none"}
	case choice.Only != "":
		r.ToolChoice = &toolChoice{Type: "tool", Name: names.Wire(choice.Only)}
	case choice.Any:
		r.ToolChoice = &toolChoice{Type: "any"}
	}
	return nil
}

// assistantBlocks translates what the model said. Thinking goes back only to
// where it came from, and only signed.
func assistantBlocks(c *genai.Content, names *wire.Names, to family) []block {
	if c == nil {
		return nil
	}
	var blocks []block
	for _, p := range c.Parts {
		if p == nil {
			continue
		}
		opaque := adapter.Opaque(p, name)
		if origin, _ := p.PartMetadata[seam.MetaModel].(string); p.Thought && !to.reads(origin) {
			continue
		}
		switch media := wire.MediaOf(p); {
		case p.FunctionCall != nil:
			blocks = append(blocks, block{
				Type: "tool_use", ID: names.ID(p.FunctionCall.ID), Name: names.Wire(p.FunctionCall.Name),
				Input: json.RawMessage(adapter.ArgsText(p)),
			})
		case p.Thought && opaque == "":
			if len(p.ThoughtSignature) > 0 && adapter.Owned(p, name) {
				blocks = append(blocks, block{Type: "thinking", Thinking: &p.Text,
					Signature: string(p.ThoughtSignature)})
			}
		case p.Text != "" && !p.Thought:
			if strings.TrimSpace(p.Text) == "" {
				continue // Anthropic refuses text that is only white space.
			}
			b := block{Type: "text", Text: p.Text}
			if json.Valid([]byte(opaque)) {
				b.Citations = json.RawMessage(opaque)
			}
			blocks = append(blocks, b)
		case opaque != "":
			if json.Valid([]byte(opaque)) {
				blocks = append(blocks, block{raw: json.RawMessage(opaque)})
			}
		case media != nil:
			blocks = append(blocks, block{Type: "text", Text: media.Placeholder()})
		}
	}
	return blocks
}

// toolResult translates a result, and what of it has to stand behind all results as
// the user's: the files of one that is an error, which may hold text alone.
func toolResult(fr *genai.FunctionResponse, names *wire.Names) (b block, behind []block, err error) {
	b = block{Type: "tool_result", ToolUseID: names.ID(fr.ID)}
	text, isError := adapter.Result(fr)
	b.IsError = isError
	if strings.TrimSpace(text) != "" {
		b.Content = append(b.Content, block{Type: "text", Text: text})
	}
	for _, m := range wire.ResultMedia(fr) {
		mb, err := mediaBlock(m)
		switch {
		case err != nil:
			return block{}, nil, err
		case !isError:
			b.Content = append(b.Content, mb)
			continue
		case len(behind) == 0:
			behind = []block{{Type: "text", Text: "Files of the failed call of " + names.Wire(fr.Name) + ":"}}
		}
		behind = append(behind, mb)
	}
	if isError && len(b.Content) == 0 {
		b.Content = []block{{Type: "text", Text: "error"}} // An error must have content.
	}
	return b, behind, nil
}

// refer has a result hold references to tools. It may hold nothing else then, and be
// no error: what it held is returned, and has to stand behind all results.
func (b *block) refer(tools []string, fr *genai.FunctionResponse, names *wire.Names) []block {
	held, head := b.Content, "More of the result of "+names.Wire(fr.Name)+":"
	if b.IsError {
		head = "The call of " + names.Wire(fr.Name) + " has found tools and failed:"
	}
	b.Content, b.IsError = nil, false
	for _, name := range tools {
		b.Content = append(b.Content, block{Type: "tool_reference", ToolName: names.Wire(name)})
	}
	if len(held) == 0 || len(fr.Response) == 0 && len(fr.Parts) == 0 {
		return nil
	}
	if held[0].Type == "text" {
		return append([]block{{Type: "text", Text: head + "\n\n" + held[0].Text}}, held[1:]...)
	}
	return append([]block{{Type: "text", Text: head}}, held...)
}

// takes is the Takes of all models.
func takes(f model.File) error {
	_, err := mediaBlock(wire.Of(f))
	return err
}

// mediaBlock translates images, PDF and plain text: what Anthropic documents for
// messages and tool results alike.
func mediaBlock(m *wire.Media) (block, error) {
	out := block{Type: "document", Title: m.Name}
	switch {
	case m.IsCommonImage():
		out = block{Type: "image"}
	case m.MIMEType == "application/pdf", m.MIMEType == "text/plain":
	default:
		return block{}, invalid(
			"media of type %q cannot be sent, only images (JPEG, PNG, GIF, WebP), PDF and plain text", m.MIMEType)
	}
	switch {
	case m.IsID():
		out.Source = &source{Type: "file", FileID: m.URL}
	case m.URL != "" && !m.IsWeb():
		return block{}, invalid("media of type %q cannot be sent from %q, only from http and https URLs, "+
			"or as the id of an uploaded file", m.MIMEType, m.URL)
	case m.URL != "" && m.MIMEType == "text/plain":
		return block{}, invalid(
			"media of type %q cannot be sent from a URL, only inline, or as the id of an uploaded file", m.MIMEType)
	case m.URL != "":
		out.Source = &source{Type: "url", URL: m.URL}
	case m.MIMEType == "text/plain":
		out.Source = &source{Type: "text", MediaType: m.MIMEType, Data: string(m.Data)}
	default:
		out.Source = &source{Type: "base64", MediaType: m.MIMEType, Data: m.Base64()}
	}
	return out, nil
}

func invalid(format string, args ...any) *model.Error {
	return &model.Error{Kind: model.KindInvalid, Provider: name, Message: fmt.Sprintf(format, args...)}
}
