package gemini

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/wiretap"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/internal/sse"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// chunk is one event of the stream, as far as it matters here.
type chunk struct {
	Candidates     []candidate `json:"candidates"`
	PromptFeedback *struct {
		BlockReason        string          `json:"blockReason"`
		BlockReasonMessage string          `json:"blockReasonMessage"`
		Ratings            json.RawMessage `json:"safetyRatings"`
	} `json:"promptFeedback"`
	UsageMetadata *usage          `json:"usageMetadata"`
	ModelVersion  string          `json:"modelVersion"`
	Error         json.RawMessage `json:"error"`
}

type candidate struct {
	Content       content            `json:"content"`
	FinishReason  genai.FinishReason `json:"finishReason"`
	FinishMessage string             `json:"finishMessage"`
	Index         int                `json:"index"`
	Ratings       json.RawMessage    `json:"safetyRatings"`
	Grounding     json.RawMessage    `json:"groundingMetadata"`
	URLContext    json.RawMessage    `json:"urlContextMetadata"`
	Citations     json.RawMessage    `json:"citationMetadata"`
}

type content struct {
	Parts []chunkPart `json:"parts"`
}

// chunkPart is a part as it came, or as quick has read it.
type chunkPart struct {
	raw     json.RawMessage // nil of plain text
	text    string
	thought bool
}

// UnmarshalJSON implements json.Unmarshaler. It takes any JSON.
func (p *chunkPart) UnmarshalJSON(data []byte) error {
	*p = chunkPart{raw: bytes.Clone(data)}
	return nil
}

// usage is cumulative: each chunk repeats and raises the one before. Google counts
// what tools have put into the prompt, and thoughts, beside the others.
type usage struct {
	Prompt     wire.Tokens `json:"promptTokenCount"`
	ToolPrompt wire.Tokens `json:"toolUsePromptTokenCount"`
	Candidates wire.Tokens `json:"candidatesTokenCount"`
	Cached     wire.Tokens `json:"cachedContentTokenCount"`
	Thoughts   wire.Tokens `json:"thoughtsTokenCount"`
}

// usage returns u in common terms.
func (u *usage) usage() model.Usage {
	return model.Usage{
		Prompt: int64(u.Prompt + u.ToolPrompt), Cached: int64(u.Cached),
		Completion: int64(u.Candidates + u.Thoughts), Thoughts: int64(u.Thoughts),
	}.Normal()
}

// collector is a response being read; owned by the goroutine of the call.
type collector struct {
	parts  *adapter.Builder
	finish genai.FinishReason
	detail string       // what the provider says about the finish
	rated  string       // for which categories it blocks, as far as it says
	usage  *model.Usage // nil before the provider reports it
	model  string
	seen   observed
	quick  quickChunk
}

// read reads a response.
func (l *llm) read(ctx context.Context, resp *http.Response, emit func(model.Delta)) (*model.Response, error) {
	a := &collector{parts: &adapter.Builder{Provider: name, Emit: emit}, model: strings.TrimPrefix(l.model, "models/")}
	out, err := l.stream(ctx, resp, a)
	if err != nil && a.usage != nil {
		err = a.usage.Spent(err)
	}
	return out, err
}

// stream reads the stream to its end. A stream without a finish reason was cut
// short.
func (l *llm) stream(ctx context.Context, resp *http.Response, a *collector) (*model.Response, error) {
	if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t == "text/html" {
		return nil, l.errorf(model.KindUnavailable, "the response is %s, no event stream", t)
	}
	for ev, err := range sse.Read(resp.Body, wire.MaxLine) {
		if err != nil {
			return nil, adapter.TransportError(ctx, name, err, l.secret)
		}
		if err := l.event(a, ev.Data); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	switch a.finish {
	case "", genai.FinishReasonUnspecified:
		return nil, adapter.Truncated(name)
	case genai.FinishReasonStop, genai.FinishReasonMaxTokens:
		resp := &model.Response{Content: a.parts.Content(), FinishReason: a.finish, Model: a.model}
		resp.Provided = a.seen.result(resp.Content)
		if a.usage != nil {
			resp.Usage = *a.usage
		}
		return resp, nil
	}
	return nil, l.refused(a)
}

// refused is the error of a response whose finish reason makes it unusable.
func (l *llm) refused(a *collector) error {
	switch a.finish {
	case genai.FinishReasonSafety, genai.FinishReasonRecitation, genai.FinishReasonLanguage,
		genai.FinishReasonBlocklist,
		genai.FinishReasonProhibitedContent, genai.FinishReasonSPII, genai.FinishReasonImageSafety,
		genai.FinishReasonImageProhibitedContent, genai.FinishReasonImageRecitation:
		return adapter.Blocked(name, "the model stopped with "+wiretap.Redact(string(a.finish), l.secret),
			join(a.rated, a.detail), l.secret)
	}
	return l.errorf(model.KindUnavailable, "the model stopped with %s", join(string(a.finish), a.detail))
}

// join puts a colon between two texts that are not empty.
func join(a, b string) string { return strings.Trim(a+": "+b, ": ") }

// categories are those of a list of safety ratings for which content is blocked,
// with how probable they are; "" for none.
func categories(ratings json.RawMessage) string {
	if len(ratings) == 0 { // of most chunks
		return ""
	}
	var list []struct {
		Category    string `json:"category"`
		Probability string `json:"probability"`
		Blocked     bool   `json:"blocked"`
	}
	_ = json.Unmarshal(ratings, &list) // It explains an error, no more.
	var out []string
	for _, r := range list {
		if r.Blocked {
			out = append(out, fmt.Sprintf("%s (%s)", r.Category, r.Probability))
		}
	}
	return strings.Join(out, ", ")
}

// event takes one event in.
func (l *llm) event(a *collector, data []byte) error {
	c := a.quick.read(data, a.model)
	if c == nil {
		c = &chunk{}
		if err := json.Unmarshal(data, c); err != nil {
			return l.errorf(model.KindUnavailable, "an event of the stream is malformed: %v", err)
		}
	}
	return l.chunk(a, c, data)
}

// chunk takes in what an event says.
func (l *llm) chunk(a *collector, c *chunk, data []byte) error {
	if c.UsageMetadata != nil {
		if a.usage == nil {
			a.usage = new(model.Usage)
		}
		*a.usage = c.UsageMetadata.usage()
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return l.apiError(http.StatusOK, nil, data)
	}
	if f := c.PromptFeedback; f != nil && f.BlockReason != "" {
		return adapter.Blocked(name, "the prompt was blocked with "+wiretap.Redact(f.BlockReason, l.secret),
			join(categories(f.Ratings), f.BlockReasonMessage), l.secret)
	}
	a.model = cmp.Or(c.ModelVersion, a.model)
	for i := range c.Candidates {
		cand := &c.Candidates[i]
		if cand.Index != 0 {
			continue
		}
		for _, p := range cand.Content.Parts {
			if p.raw == nil {
				a.text(p.text, p.thought)
			} else if err := a.part(p.raw); err != nil {
				return l.errorf(model.KindUnavailable, "a part of the response is malformed: %v", err)
			}
		}
		a.seen.candidate(cand)
		a.rated = cmp.Or(categories(cand.Ratings), a.rated)
		a.finish = cmp.Or(cand.FinishReason, a.finish)
		a.detail = cmp.Or(cand.FinishMessage, a.detail)
	}
	return nil
}

// wirePart is a part as far as it is read here; anything else in it is a part
// that only the provider understands.
type wirePart struct {
	Text         *string `json:"text"`
	Thought      bool    `json:"thought"`
	Signature    string  `json:"thoughtSignature"`
	FunctionCall *struct {
		ID   string          `json:"id"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	} `json:"functionCall"`
}

// part takes one part in. A signature stays on exactly the piece it came with.
func (a *collector) part(raw json.RawMessage) error {
	var p wirePart
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	signature, err := decodeSignature(p.Signature)
	if err != nil {
		return err
	}
	switch {
	case p.FunctionCall != nil:
		part := adapter.NewCall(p.FunctionCall.ID, p.FunctionCall.Name, string(p.FunctionCall.Args))
		a.signed(part, signature)
	case p.Text != nil && len(signature) == 0:
		a.text(*p.Text, p.Thought)
	case p.Text != nil && *p.Text != "":
		a.parts.Close()
		a.text(*p.Text, p.Thought)
		a.parts.Sign(signature, p.Thought)
	default:
		var part genai.Part
		if err := decode(raw, &part); err != nil {
			return err
		}
		part.PartMetadata, part.ThoughtSignature = nil, nil
		if isText(&part) && len(signature) == 0 {
			return nil
		}
		if !isText(&part) {
			a.parts.Mark(&part)
			a.seen.part(&part)
		}
		a.signed(&part, signature)
	}
	return nil
}

// signed adds a part with its signature, if there is one.
func (a *collector) signed(part *genai.Part, signature []byte) {
	if len(signature) > 0 {
		part.ThoughtSignature = signature
		a.parts.Mark(part)
	}
	a.parts.Part(part)
}

func (a *collector) text(text string, thought bool) {
	if thought {
		a.parts.Thought(text)
	} else {
		a.parts.Text(text)
	}
}

// decodeSignature decodes base64 in either alphabet.
func decodeSignature(s string) ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	s = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(s), "=")
	b, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil {
		return nil, fmt.Errorf("thought signature: %w", err)
	}
	return b, nil
}

// decode decodes JSON and keeps numbers as they are.
func decode(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return dec.Decode(into)
}

// errorf returns an Error without the key.
func (l *llm) errorf(kind model.Kind, format string, args ...any) *model.Error {
	return &model.Error{Kind: kind, Provider: name, Message: wiretap.Redact(fmt.Sprintf(format, args...), l.secret)}
}
