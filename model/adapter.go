package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"google.golang.org/genai"
)

// maxArgsDepth bounds the nesting of a function call's arguments.
const maxArgsDepth = 100

// ParseArgs decodes the JSON text of a function call's arguments. Blank text
// counts as an empty object. When text is no JSON object, args is empty and the
// error says why.
func ParseArgs(text string) (args map[string]any, err error) {
	args = map[string]any{}
	if strings.TrimSpace(text) == "" {
		return args, nil
	}
	if err := checkDepth(text); err != nil {
		return args, err
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return args, fmt.Errorf("arguments are not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return args, errors.New("arguments hold more than one JSON value")
	}
	switch v := v.(type) {
	case map[string]any:
		return v, nil
	case nil:
		return args, nil
	default:
		return args, fmt.Errorf("arguments are no JSON object but %s", kindOf(v))
	}
}

// checkDepth refuses text that nests too deeply, before it is decoded.
func checkDepth(text string) error {
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxArgsDepth {
				return fmt.Errorf("arguments nest deeper than %d levels", maxArgsDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// kindOf names the JSON type of a decoded value.
func kindOf(v any) string {
	switch v.(type) {
	case []any:
		return "an array"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	default:
		return "a number"
	}
}

// NewCall returns the part of a function call as Response wants it: arguments
// decoded, their text in MetaArgs ("{}" when blank), what is wrong with them in
// MetaArgsError. id is the provider's own, or "".
func NewCall(id, name, argsText string) *genai.Part {
	if t := strings.TrimSpace(argsText); t == "" || t == "null" {
		argsText = "{}"
	}
	argsText = strings.ToValidUTF8(argsText, "\uFFFD")
	args, err := ParseArgs(argsText)
	p := &genai.Part{
		FunctionCall: &genai.FunctionCall{ID: id, Name: name, Args: args},
		PartMetadata: map[string]any{MetaArgs: argsText},
	}
	if err != nil {
		p.PartMetadata[MetaArgsError] = err.Error()
	}
	return p
}

// ArgsText returns the JSON text of a call's arguments as it goes back to a
// provider: the model's own where it is a JSON object, else Args encoded with
// sorted keys; always a JSON object.
func ArgsText(p *genai.Part) string {
	if text, ok := p.PartMetadata[MetaArgs].(string); ok {
		if _, bad := p.PartMetadata[MetaArgsError]; !bad && isObject(text) {
			return text
		}
	}
	text, err := MarshalJSON(p.FunctionCall.Args)
	if err != nil || p.FunctionCall.Args == nil {
		return "{}"
	}
	return string(text)
}

// isObject tells whether ParseArgs takes a text that is not blank and not null.
func isObject(text string) bool {
	return strings.HasPrefix(strings.TrimSpace(text), "{") && checkDepth(text) == nil && json.Valid([]byte(text))
}

// MarshalJSON encodes v without HTML escapes and without a final newline. Maps
// are encoded with sorted keys, so equal values have equal bytes.
func MarshalJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// CallID returns the provider's own id of the call p, as the provider wants it
// back: the one the engine kept in MetaCallID, or "" when the provider gave
// none.
func CallID(p *genai.Part) string {
	id, _ := p.PartMetadata[MetaCallID].(string)
	return id
}

// CallIDs maps the id of each function call in contents, as the engine wrote
// it, to the provider's own (see CallID), so that a result can be sent under
// the id its call goes out with.
func CallIDs(contents []*genai.Content) map[string]string {
	ids := map[string]string{}
	for _, c := range contents {
		for _, p := range c.Parts {
			if p.FunctionCall != nil {
				ids[p.FunctionCall.ID] = CallID(p)
			}
		}
	}
	return ids
}

// Owned tells whether the opaque data of p belongs to the provider of that
// name: only then may its signature and opaque data go to it.
func Owned(p *genai.Part, provider string) bool {
	owner, _ := p.PartMetadata[MetaProvider].(string)
	return owner == provider
}

// Builder collects a streamed answer: it emits each piece of text and keeps the
// parts as Response wants them. Not safe for concurrent use; made by NewBuilder.
type Builder struct {
	provider string
	emit     func(Delta)
	parts    []*genai.Part
	text     strings.Builder // text of the open part, the last of parts
	open     bool            // whether the last part still takes text
	said     int             // bytes of answer text so far
}

// NewBuilder returns a Builder for an answer of the named provider.
func NewBuilder(provider string, emit func(Delta)) *Builder {
	return &Builder{provider: provider, emit: emit}
}

// Text adds answer text, and emits it. Text that continues the previous piece
// goes into the same part.
func (b *Builder) Text(text string) { b.add(Delta{Text: text}) }

// Thought adds the model's thinking, and emits it.
func (b *Builder) Thought(text string) { b.add(Delta{Text: text, Thought: true}) }

func (b *Builder) add(d Delta) {
	if d.Text == "" {
		return
	}
	d.Text = strings.ToValidUTF8(d.Text, "\uFFFD")
	if !b.open || b.last().Thought != d.Thought {
		b.Part(&genai.Part{Thought: d.Thought})
		b.open = true
	}
	b.text.WriteString(d.Text)
	if !d.Thought {
		b.said += len(d.Text)
	}
	b.emit(d)
}

// Said is how much answer text there is so far, in bytes: where the next piece
// begins in the joined text.
func (b *Builder) Said() int { return b.said }

// Part adds a part that is not streamed text. Text in it is not emitted.
func (b *Builder) Part(p *genai.Part) {
	b.Close()
	b.parts = append(b.parts, p)
}

// Close ends the part that takes text: text that follows starts a new one.
func (b *Builder) Close() {
	if b.open {
		b.last().Text = b.text.String()
		b.text.Reset()
		b.open = false
	}
}

// Sign puts a signature on the last part and closes it. When there is no part,
// or it has a signature already, or its kind is not thought, the signature gets
// an empty part of its own.
func (b *Builder) Sign(signature []byte, thought bool) {
	p := b.last()
	if p == nil || len(p.ThoughtSignature) > 0 || p.Thought != thought {
		p = &genai.Part{Thought: thought}
		b.Part(p)
	}
	b.Close()
	p.ThoughtSignature = signature
	b.Mark(p)
}

// Opaque adds a part that holds nothing but data the provider wants back.
func (b *Builder) Opaque(value any, thought bool) {
	p := &genai.Part{Thought: thought, PartMetadata: map[string]any{MetaOpaque: value}}
	b.Mark(p)
	b.Part(p)
}

// Mark notes in p that its opaque data is this provider's.
func (b *Builder) Mark(p *genai.Part) {
	meta := maps.Clone(p.PartMetadata)
	if meta == nil {
		meta = map[string]any{}
	}
	meta[MetaProvider] = b.provider
	p.PartMetadata = meta
}

// Content returns what was collected, nil when there is nothing.
func (b *Builder) Content() *genai.Content {
	b.Close()
	if len(b.parts) == 0 {
		return nil
	}
	return &genai.Content{Role: genai.RoleModel, Parts: b.parts}
}

// last is the newest part, nil if there is none.
func (b *Builder) last() *genai.Part {
	if len(b.parts) == 0 {
		return nil
	}
	return b.parts[len(b.parts)-1]
}
