package gemini

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/encoded"
	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/internal/toolschema"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// unsigned is the signature that Google documents for calls that another model
// made.
var unsigned = []byte("skip_thought_signature_validator")

// textPart is a part of text. Text is always there, since a part may hold a
// signature and nothing else.
type textPart struct {
	Text      string `json:"text"`
	Thought   bool   `json:"thought,omitempty"`
	Signature []byte `json:"thoughtSignature,omitempty"`
}

// callPart is a function call. Arguments are always there.
type callPart struct {
	Call      functionCall `json:"functionCall"`
	Signature []byte       `json:"thoughtSignature,omitempty"`
}

type functionCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// resultPart is a function's result. The response is always there.
type resultPart struct {
	Result functionResult `json:"functionResponse"`
}

type functionResult struct {
	ID       string                        `json:"id,omitempty"`
	Name     string                        `json:"name"`
	Response map[string]any                `json:"response"`
	Parts    []*genai.FunctionResponsePart `json:"parts,omitempty"`
}

// body returns the body of a request: the conversation, and settings as the SDK encodes them, see settings.
func (l *llm) body(req *model.Request, settings []byte) (*encoded.Body, error) {
	contents := req.ReferencesInWords(nil, nil)
	ids := sync.OnceValue(func() map[string]string { return adapter.CallIDs(contents) })
	pieces, err := req.Encoded.Pieces(l.wire(), contents, func(c *genai.Content) ([]encoded.Piece, error) {
		return l.pieces(c, ids)
	})
	if err != nil {
		return nil, fmt.Errorf("the conversation cannot be encoded: %w", err)
	}
	b := new(encoded.Body)
	b.Grow(4 * len(contents))
	b.Add(beginContents)
	addContents(b, contents, pieces)
	if len(settings) > len(`{}`) {
		b.Add(endContents, comma, settings[1:])
	} else {
		b.Add(endContents, endObject)
	}
	return b, nil
}

// What stands between what is kept.
var (
	beginContents = []byte(`{"contents":[`)
	beginUser     = []byte(`{"role":"user","parts":[`)
	beginModel    = []byte(`{"role":"model","parts":[`)
	endContent    = []byte(`]}`)
	endContents   = []byte(`]`)
	endObject     = []byte(`}`)
	comma         = []byte(`,`)
)

// wire names all that the pieces of a content depend on.
func (l *llm) wire() string { return fmt.Sprintf("%s/%d/%t", name, l.generation(), l.vertex) }

// addContents adds the contents on the wire. Those of which nothing is left are left out, and neighbors of one role
// become one, with the results of functions first: Gemini wants all results of the calls in one content in the next
// one.
func addContents(b *encoded.Body, contents []*genai.Content, pieces [][]encoded.Piece) {
	first := true
	for i := 0; i < len(contents); {
		if len(pieces[i]) == 0 {
			i++
			continue
		}
		model, n := ofModel(contents[i]), i+1
		for n < len(contents) && (len(pieces[n]) == 0 || ofModel(contents[n]) == model) {
			n++
		}
		if !first {
			b.Add(comma)
		}
		first = false
		if model {
			b.Add(beginModel)
		} else {
			b.Add(beginUser)
		}
		addParts(b, pieces[i:n])
		b.Add(endContent)
		i = n
	}
}

// addParts adds the parts of one content on the wire, by their ranks.
func addParts(b *encoded.Body, pieces [][]encoded.Piece) {
	first := true
	for rank := rankResult; rank <= rankOther; rank++ {
		for _, of := range pieces {
			for _, p := range of {
				if p.Kind != rank {
					continue
				}
				if !first {
					b.Add(comma)
				}
				first = false
				b.Add(p.JSON)
			}
		}
	}
}

// ofModel reports whether a content is the model's on the wire; others are the user's.
func ofModel(c *genai.Content) bool { return c != nil && c.Role == genai.RoleModel }

// settings returns a copy of the request's configuration that makes the SDK encode it once, without contents. The
// caller has encoded it: of one that cannot be encoded the SDK would send half.
func (l *llm) settings(req *model.Request) (*genai.GenerateContentConfig, error) {
	cfg := *req.Config
	if cfg.CandidateCount > 1 {
		return nil, fmt.Errorf("CandidateCount is %d: one response can be read", cfg.CandidateCount)
	}
	var err error
	// The SDK would put the keys of the schema into another order, which the model
	// would follow.
	var schema json.RawMessage
	if cfg.ResponseJsonSchema != nil {
		if schema, err = rawjson.Marshal(cfg.ResponseJsonSchema); err != nil {
			return nil, fmt.Errorf("the response schema cannot be encoded: %w", err)
		}
	}
	if cfg.SystemInstruction != nil {
		cfg.SystemInstruction = &genai.Content{Role: genai.RoleUser, Parts: bare(cfg.SystemInstruction.Parts)}
	}
	cfg.Tools = plainTools(cfg.Tools)
	cfg.ThinkingConfig = l.thinking(cfg.ThinkingConfig)
	if cfg.ToolConfig, err = l.toolConfig(req); err != nil {
		return nil, err
	}
	cfg.AutomaticContinuation = new(bool)
	cfg.CandidateCount = 0
	cfg.HTTPOptions = &genai.HTTPOptions{
		ExtrasRequestProvider: func(body map[string]any) map[string]any {
			delete(body, "contents")
			if generation, ok := body["generationConfig"].(map[string]any); ok && schema != nil {
				generation["responseJsonSchema"] = schema
			}
			return body
		},
	}
	return &cfg, nil
}

// toolConfig is the setting of the tools. Tools that Google runs are combined with
// functions from Gemini 3 on, where the Gemini API wants a field for it (guide "Tool
// combination"), and Vertex AI knows no such setting.
func (l *llm) toolConfig(req *model.Request) (*genai.ToolConfig, error) {
	own := ownTools(req.Config)
	gen := l.generation()
	switch {
	case len(own) == 0 || len(req.Functions()) == 0 || gen == 0:
		return req.Config.ToolConfig, nil
	case gen < 3:
		return nil, fmt.Errorf("%s does not run %s together with functions, only models from Gemini 3 on do", l.model,
			strings.Join(own, ", "))
	case l.vertex:
		return req.Config.ToolConfig, nil
	}
	out := genai.ToolConfig{}
	if req.Config.ToolConfig != nil {
		out = *req.Config.ToolConfig
	}
	out.IncludeServerSideToolInvocations = new(true)
	return &out, nil
}

// plainTools are the tools with functions whose parameters are plain objects; see
// adapter.Parameters. Vertex AI takes no alternatives beside other members.
func plainTools(tools []*genai.Tool) []*genai.Tool {
	out := slices.Clone(tools)
	for i, t := range out {
		if t == nil || !slices.ContainsFunc(t.FunctionDeclarations,
			func(d *genai.FunctionDeclaration) bool { return !toolschema.IsPlain(d) }) {
			continue
		}
		plain := *t
		plain.FunctionDeclarations = slices.Clone(t.FunctionDeclarations)
		for j, d := range plain.FunctionDeclarations {
			if !toolschema.IsPlain(d) {
				merged := *d
				merged.Parameters, merged.ParametersJsonSchema = nil, adapter.Parameters(d)
				plain.FunctionDeclarations[j] = &merged
			}
		}
		out[i] = &plain
	}
	return out
}

// ownTools are the tools that Google is to run.
func ownTools(cfg *genai.GenerateContentConfig) []string {
	var names []string
	asked, _ := wire.ProviderTools(cfg, "code_execution", "url_context")
	if asked.Search != nil {
		names = append(names, "google_search")
	}
	if asked.Code {
		names = append(names, "code_execution")
	}
	if asked.URLs {
		names = append(names, "url_context")
	}
	return names
}

// budgets are the thinking budgets of levels, in tokens, for models that know no
// levels: those before Gemini 3.
var budgets = map[genai.ThinkingLevel]int32{
	genai.ThinkingLevelMinimal: 1024,
	genai.ThinkingLevelLow:     2048,
	genai.ThinkingLevelMedium:  8192,
	genai.ThinkingLevelHigh:    16384,
}

// thinking translates a thinking setting.
func (l *llm) thinking(t *genai.ThinkingConfig) *genai.ThinkingConfig {
	least := t != nil && t.ThinkingLevel == genai.ThinkingLevelMinimal && !l.barelyThinks()
	if t == nil || t.ThinkingLevel == "" || l.generation() >= 3 && !least {
		return t
	}
	out := *t
	if l.generation() >= 3 {
		out.ThinkingLevel = genai.ThinkingLevelLow
		return &out
	}
	out.ThinkingLevel = ""
	if budget, ok := budgets[t.ThinkingLevel]; ok && out.ThinkingBudget == nil {
		out.ThinkingBudget = &budget
	}
	return &out
}

// bare returns copies of parts without what is ours.
func bare(parts []*genai.Part) []*genai.Part {
	out := make([]*genai.Part, 0, len(parts))
	for _, p := range parts {
		if p != nil {
			c := *p
			c.PartMetadata = nil
			out = append(out, &c)
		}
	}
	return out
}

// The ranks of the parts of a content: results stand before everything else.
const (
	rankResult = iota
	rankOther
)

// pieces translates the parts of a content. ids are the provider's ids of the calls.
func (l *llm) pieces(c *genai.Content, ids func() map[string]string) ([]encoded.Piece, error) {
	if c == nil {
		return nil, nil
	}
	var out []encoded.Piece
	var failed error
	put := func(rank int, part any) {
		data, err := rawjson.Marshal(part)
		failed = errors.Join(failed, err)
		out = append(out, encoded.Piece{Kind: rank, JSON: data})
	}
	firstCall := true
	for _, p := range c.Parts {
		switch {
		case p == nil:
		case p.FunctionCall != nil:
			put(rankOther, l.call(p, firstCall))
			firstCall = false
		case p.FunctionResponse != nil:
			result, behind := l.result(p.FunctionResponse, ids())
			put(rankResult, result)
			for _, part := range behind {
				put(rankOther, part)
			}
		default:
			if part := l.other(p); part != nil {
				put(rankOther, part)
			}
		}
	}
	return out, failed
}

// call translates a function call. The provider's own id goes out, never one
// that the engine made. Models from Gemini 3 on refuse the first call of a turn
// without a signature.
func (l *llm) call(p *genai.Part, first bool) callPart {
	out := callPart{Call: functionCall{ID: wire.CallID(p), Name: p.FunctionCall.Name,
		Args: json.RawMessage(adapter.ArgsText(p))}}
	if adapter.Owned(p, name) {
		out.Signature = p.ThoughtSignature
	}
	if len(out.Signature) == 0 && first && l.generation() >= 3 {
		out.Signature = unsigned
	}
	return out
}

// result translates a function's result, under the id its call went out with, and
// what of it has to stand behind the results as parts of the user's.
func (l *llm) result(r *genai.FunctionResponse, ids map[string]string) (wire resultPart, behind []any) {
	out := functionResult{ID: ids[r.ID], Name: r.Name, Response: r.Response}
	if out.Response == nil {
		out.Response = map[string]any{}
	}
	for _, p := range r.Parts {
		switch {
		case p == nil:
		case l.holds(p):
			out.Parts = append(out.Parts, p)
		case p.InlineData != nil:
			behind = append(behind, &genai.Part{InlineData: &genai.Blob{MIMEType: p.InlineData.MIMEType,
				Data: p.InlineData.Data}})
		case p.FileData != nil:
			behind = append(behind, &genai.Part{FileData: &genai.FileData{MIMEType: p.FileData.MIMEType,
				FileURI: p.FileData.FileURI}})
		}
	}
	return resultPart{out}, behind
}

// holds reports whether a result may hold a file: from Gemini 3 on, in the formats
// that the guide "Function calling", section "Multimodal function responses",
// names; by URI over Vertex AI alone.
func (l *llm) holds(p *genai.FunctionResponsePart) bool {
	var kind string
	switch {
	case l.generation() < 3, p.InlineData == nil && !l.vertex:
		return false
	case p.InlineData != nil:
		kind = p.InlineData.MIMEType
	case p.FileData != nil:
		kind = p.FileData.MIMEType
	}
	return slices.Contains(resultTypes, strings.ToLower(kind))
}

var resultTypes = []string{"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"}

// other translates a part that is neither call nor result; nil when it means
// something to another provider only. Vertex AI knows no runs of tools as parts, which
// the Gemini API may have written.
func (l *llm) other(p *genai.Part) any {
	owned := adapter.Owned(p, name)
	_, foreign := p.PartMetadata[seam.MetaProvider]
	foreign = foreign && !owned
	switch {
	case p.Thought && !owned, l.vertex && (p.ToolCall != nil || p.ToolResponse != nil):
		return nil
	case isText(p):
		t := textPart{Text: p.Text, Thought: p.Thought}
		if owned {
			t.Signature = p.ThoughtSignature
		}
		if t.Text == "" && len(t.Signature) == 0 {
			return nil
		}
		return t
	case foreign && p.InlineData == nil && p.FileData == nil:
		return nil
	}
	c := *p
	c.PartMetadata = nil
	if !owned {
		c.ThoughtSignature = nil
	}
	return &c
}

// isText reports whether p holds text, or nothing at all.
func isText(p *genai.Part) bool {
	return p.InlineData == nil && p.FileData == nil && p.ExecutableCode == nil &&
		p.CodeExecutionResult == nil && p.ToolCall == nil && p.ToolResponse == nil
}
