package adapter

import (
	"maps"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
)

// Builder collects a streamed response: it emits each piece of text and keeps the parts as
// model.Response wants them. It is not safe for concurrent use, and not to be copied.
type Builder struct {
	// Provider is the name of the provider, which owns the opaque data of the parts. Required.
	Provider string
	// Emit receives each piece of text: it is Generate's own. Required.
	Emit func(model.Delta)

	parts []*genai.Part
	text  strings.Builder // text of the open part, the last of parts
	open  bool            // whether the last part still takes text
	said  int             // bytes of response text so far
}

// Text adds text of the response, and emits it. Text that continues the previous piece goes into
// the same part.
func (b *Builder) Text(text string) { b.add(model.Delta{Text: text}) }

// Thought adds the model's thinking, and emits it.
func (b *Builder) Thought(text string) { b.add(model.Delta{Text: text, Thought: true}) }

func (b *Builder) add(d model.Delta) {
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
	b.Emit(d)
}

// Said returns the length of the text so far without thoughts, in bytes: where the next piece
// begins in the joined text.
func (b *Builder) Said() int { return b.said }

// Part adds a part that is not streamed text. It does not emit text in it.
func (b *Builder) Part(p *genai.Part) {
	b.Close()
	b.parts = append(b.parts, p)
}

// Close ends the part that takes text: text that follows begins a new part.
func (b *Builder) Close() {
	if b.open {
		b.last().Text = b.text.String()
		b.text.Reset()
		b.open = false
	}
}

// Sign puts a signature on the last part and closes it. The signature gets an empty part of its own
// if there is no part, if the last one has a signature already, or if its kind is not thought.
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

// Opaque adds a part that only holds data that the provider wants back; value is JSON.
func (b *Builder) Opaque(value any, thought bool) {
	p := &genai.Part{Thought: thought, PartMetadata: map[string]any{seam.MetaOpaque: value}}
	b.Mark(p)
	b.Part(p)
}

// Mark notes in p that its opaque data is this provider's.
func (b *Builder) Mark(p *genai.Part) {
	meta := maps.Clone(p.PartMetadata)
	if meta == nil {
		meta = map[string]any{}
	}
	meta[seam.MetaProvider] = b.Provider
	p.PartMetadata = meta
}

// Content returns what was collected, nil for nothing.
func (b *Builder) Content() *genai.Content {
	b.Close()
	if len(b.parts) == 0 {
		return nil
	}
	return &genai.Content{Role: genai.RoleModel, Parts: b.parts}
}

// last returns the newest part, nil if there is none.
func (b *Builder) last() *genai.Part {
	if len(b.parts) == 0 {
		return nil
	}
	return b.parts[len(b.parts)-1]
}
