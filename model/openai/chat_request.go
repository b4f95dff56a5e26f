package openai

import (
	"encoding/json"
	"net/url"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/internal/toolschema"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// maxToolName is the length OpenAI allows for a tool's name.
const maxToolName = 64

// mistralID is the length of the ids of calls that Mistral takes.
const mistralID = 9

// chatOwner begins the mark of opaque data of the chat wire. The two wires keep
// different things, so neither may send back the other's.
const chatOwner = "openai-chat"

// ownerOf marks opaque data by the server that wants it back and, where a model is
// named with its maker's name ("google/gemini-3-pro"), by the maker: others do not
// understand it, and some refuse it.
func ownerOf(baseURL, modelName string) string {
	owner := chatOwner
	if u, err := url.Parse(baseURL); err == nil {
		owner += "@" + u.Host
	}
	if i := strings.LastIndex(modelName, "/"); i > 0 {
		owner += "/" + modelName[:i]
	}
	return owner
}

// chatRequest is the body of POST /chat/completions.
type chatRequest struct {
	Model               string         `json:"model"`
	Messages            [0]any         `json:"messages"` // see chatBody
	Tools               []chatTool     `json:"tools,omitempty"`
	ToolChoice          any            `json:"tool_choice,omitempty"`
	ResponseFormat      any            `json:"response_format,omitempty"`
	MaxTokens           int64          `json:"max_tokens,omitempty"`
	MaxCompletionTokens int64          `json:"max_completion_tokens,omitempty"`
	Temperature         *float64       `json:"temperature,omitempty"`
	TopP                *float64       `json:"top_p,omitempty"`
	PresencePenalty     *float64       `json:"presence_penalty,omitempty"`
	FrequencyPenalty    *float64       `json:"frequency_penalty,omitempty"`
	Stop                []string       `json:"stop,omitempty"`
	Seed                *int32         `json:"seed,omitempty"`
	ReasoningEffort     string         `json:"reasoning_effort,omitempty"`
	Stream              bool           `json:"stream"`
	StreamOptions       *streamOptions `json:"stream_options,omitempty"`

	promptCache
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// chatMessage is a message of the system, or of a tool. Those of others are put together from their pieces.
type chatMessage struct {
	Role       string `json:"role"`
	Content    string `json:"content"`
	ToolCallID string `json:"tool_call_id,omitempty"`
}

type chatPart struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	ImageURL *imageURL `json:"image_url,omitempty"`
	VideoURL *imageURL `json:"video_url,omitempty"`
	// DocumentURL is Mistral's.
	DocumentURL string      `json:"document_url,omitempty"`
	InputAudio  *inputAudio `json:"input_audio,omitempty"`
	File        *chatFile   `json:"file,omitempty"`
}

// inputAudio is sound in base64.
type inputAudio struct {
	Data   string `json:"data"`
	Format string `json:"format"`
}

// chatFile is a file: a data URL and a name, or an id.
type chatFile struct {
	Data string `json:"file_data,omitempty"`
	ID   string `json:"file_id,omitempty"`
	Name string `json:"filename,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

type chatCall struct {
	ID           string          `json:"id"`
	Type         string          `json:"type"`
	Function     chatFunction    `json:"function"`
	ExtraContent json.RawMessage `json:"extra_content,omitempty"`
}

type chatFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type chatTool struct {
	Type     string       `json:"type"`
	Function functionTool `json:"function"`
}

// functionTool is a function; strictness is off by default on this wire.
type functionTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

type jsonSchema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
	Strict bool            `json:"strict"`
}

// newChatRequest translates req, but for the instructions and the conversation.
func (l *llm) newChatRequest(req *model.Request, names *wire.Names) (*chatRequest, error) {
	cfg := req.Config
	if names := wire.Unsupported(cfg, "StopSequences", "Seed", "PresencePenalty", "FrequencyPenalty"); len(names) > 0 {
		return nil, l.invalid("settings that chat completions do not know: %s", strings.Join(names, ", "))
	}
	choice, err := wire.Choose(cfg, req.Functions())
	if err != nil {
		return nil, l.invalid("chat completions cannot choose tools so: %v", err)
	}
	r := &chatRequest{
		Model: l.model, Stream: true, StreamOptions: &streamOptions{IncludeUsage: true},
		Stop: cfg.StopSequences, Seed: cfg.Seed,
		PresencePenalty: widen(cfg.PresencePenalty), FrequencyPenalty: widen(cfg.FrequencyPenalty),
	}
	if r.ReasoningEffort, err = l.effort(cfg.ThinkingConfig); err != nil {
		return nil, err
	}
	if r.Temperature, r.TopP, err = l.sampling(cfg, r.ReasoningEffort); err != nil {
		return nil, err
	}
	if r.promptCache, err = l.cache(req.Cache); err != nil {
		return nil, err
	}
	if isFirstParty(l.cfg.BaseURL) || isAzure(l.cfg.BaseURL) {
		r.MaxCompletionTokens = int64(cfg.MaxOutputTokens)
	} else {
		r.MaxTokens = int64(cfg.MaxOutputTokens)
	}
	if isMistral(l.cfg.BaseURL) {
		r.StreamOptions = nil // Refused there; usage comes anyway.
	}
	schema, err := toolschema.Response(cfg)
	if err != nil {
		return nil, l.invalid("the response schema is no JSON: %v", err)
	}
	asked, other := wire.ProviderTools(cfg)
	if asked.Search != nil {
		other = append(other, "web_search")
	}
	if req.ToolSearch {
		other = append(other, toolSearch)
	}
	if len(other) > 0 {
		return nil, l.invalid("tools that a chat completions server does not run: %s", strings.Join(other, ", "))
	}
	for _, d := range choice.Functions {
		r.Tools = append(r.Tools, chatTool{Type: "function", Function: functionTool{
			Name: names.Wire(d.Name), Description: d.Description, Parameters: adapter.Parameters(d),
		}})
	}
	if len(r.Tools) > 0 {
		r.ToolChoice = toolChoice(choice, map[string]any{"type": "function",
			"function": map[string]any{"name": names.Wire(choice.Only)}})
	}
	switch {
	case schema != nil:
		r.ResponseFormat = map[string]any{"type": "json_schema",
			"json_schema": jsonSchema{Name: "answer", Schema: schema, Strict: strict(schema)}}
	case cfg.ResponseMIMEType == "application/json":
		r.ResponseFormat = map[string]any{"type": "json_object"}
	}
	return r, nil
}

func isMistral(baseURL string) bool { return isOf(baseURL, "mistral.ai") }

// wantsThoughts reports whether a server wants reasoning_content in each message of
// the assistant, in all turns: DeepSeek's and Moonshot's refuse a conversation with
// calls that lacks one.
func wantsThoughts(baseURL string) bool {
	return isOf(baseURL, "deepseek.com", "moonshot.ai", "moonshot.cn", "kimi.com")
}

// toolChoice translates which tools the model has to use; only is how the wire
// demands the one tool that is chosen.
func toolChoice(choice wire.Choice, only any) any {
	switch {
	case choice.None:
		return "none"
	case choice.Only != "":
		return only
	case choice.Any:
		return "required"
	default:
		return nil
	}
}

// effortOf translates a thinking setting to an effort, "" if there is none.
func effortOf(cfg *genai.ThinkingConfig) string {
	if cfg == nil {
		return ""
	}
	switch cfg.ThinkingLevel {
	case genai.ThinkingLevelMinimal:
		return "minimal"
	case genai.ThinkingLevelLow:
		return "low"
	case genai.ThinkingLevelMedium:
		return "medium"
	case genai.ThinkingLevelHigh:
		return "high"
	}
	if cfg.ThinkingBudget == nil {
		return ""
	}
	switch budget := *cfg.ThinkingBudget; {
	case budget < 0:
		return ""
	case budget == 0:
		return "none"
	case budget <= 2048:
		return "low"
	case budget <= 8192:
		return "medium"
	default:
		return "high"
	}
}

func widen(f *float32) *float64 {
	if f == nil {
		return nil
	}
	return new(wire.Float(*f))
}

// mediaPart translates images; wav and mp3, and documents, as far as they are not
// by URL; a video for servers other than OpenAI's, some of which watch them, and
// documents as Mistral's server wants them. Other servers than OpenAI's may take
// images of any format.
func (l *llm) mediaPart(m *wire.Media) (chatPart, error) {
	first, mistral := isFirstParty(l.cfg.BaseURL), isMistral(l.cfg.BaseURL)
	inline, format := m.URL == "", sounds[m.MIMEType]
	video, document := strings.HasPrefix(m.MIMEType, "video/") && !first, mistral && m.IsDocument()
	link := inline || m.IsWeb() // as which it can be sent
	switch {
	case link && (m.IsCommonImage() || m.IsImage() && !first):
		return chatPart{Type: "image_url", ImageURL: &imageURL{URL: m.Link()}}, nil
	case !link && (m.IsCommonImage() || video || document):
		return chatPart{}, l.invalid("media of type %q cannot be sent from %q, only from http and https URLs",
			m.MIMEType, m.URL)
	case video:
		return chatPart{Type: "video_url", VideoURL: &imageURL{URL: m.Link()}}, nil
	case document:
		return chatPart{Type: "document_url", DocumentURL: m.Link()}, nil
	case format != "" && inline:
		return chatPart{Type: "input_audio", InputAudio: &inputAudio{Data: m.Base64(), Format: format}}, nil
	case !m.IsDocument() && format == "":
		return chatPart{}, l.invalid("media of type %q cannot be sent, only images, wav and mp3, and documents",
			m.MIMEType)
	case m.IsDocument() && inline:
		return chatPart{Type: "file", File: &chatFile{Data: m.Link(), Name: m.FileName()}}, nil
	case m.IsDocument() && m.IsID():
		return chatPart{Type: "file", File: &chatFile{ID: m.URL}}, nil
	default:
		return chatPart{}, l.invalid("media of type %q cannot be sent from a URL, only inline", m.MIMEType)
	}
}

// sounds are the formats of sound that go over the wire, by media type.
var sounds = map[string]string{
	"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/vnd.wave": "wav", "audio/mpeg": "mp3",
	"audio/mp3": "mp3",
}

// resultText is a tool's result as text; an error is the JSON {"error": …},
// since the wires have no other way to say so.
func resultText(fr *genai.FunctionResponse) string {
	text, isError := adapter.Result(fr)
	if !isError {
		return text
	}
	b, err := rawjson.Marshal(map[string]any{"error": fr.Response["error"]})
	if err != nil {
		return `{"error":"the tool failed"}`
	}
	return string(b)
}
