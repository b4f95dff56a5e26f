package adkbridge

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	adksession "google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/models/words"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// userContent returns a prompt as models see it: the text first, unless it is empty and
// there are parts. It shares the data of files with parts.
func userContent(text string, parts record.Parts) *genai.Content {
	c := &genai.Content{Role: genai.RoleUser}
	if text != "" || len(parts) == 0 {
		c.Parts = append(c.Parts, &genai.Part{Text: text})
	}
	for _, p := range parts {
		switch k := p.GetContent().(type) {
		case *agentdv1.Part_Text:
			c.Parts = append(c.Parts, &genai.Part{Text: k.Text})
		case *agentdv1.Part_Inline:
			c.Parts = append(c.Parts, &genai.Part{InlineData: &genai.Blob{MIMEType: k.Inline.GetMimeType(),
				Data: k.Inline.GetData()}})
		case *agentdv1.Part_File:
			c.Parts = append(c.Parts, &genai.Part{FileData: &genai.FileData{MIMEType: k.File.GetMimeType(),
				FileURI: k.File.GetUri()}})
		}
	}
	return c
}

// partsOf undoes userContent for parts.
func partsOf(in []*genai.Part) record.Parts {
	var out record.Parts
	for _, p := range in {
		switch {
		case p.InlineData != nil:
			out = append(out, &agentdv1.Part{Content: &agentdv1.Part_Inline{
				Inline: &agentdv1.InlineData{MimeType: p.InlineData.MIMEType, Data: p.InlineData.Data},
			}})
		case p.FileData != nil:
			out = append(out, &agentdv1.Part{Content: &agentdv1.Part_File{
				File: &agentdv1.FileUri{MimeType: p.FileData.MIMEType, Uri: p.FileData.FileURI},
			}})
		case p.Text != "":
			out = append(out, &agentdv1.Part{Content: &agentdv1.Part_Text{Text: p.Text}})
		}
	}
	return out
}

// withTexts adds the texts among the parts of a result to its output: a function
// response has room only for files.
func withTexts(result map[string]any, parts record.Parts) map[string]any {
	if !hasTexts(parts) {
		return result
	}
	var texts []string
	for _, p := range parts {
		if text := p.GetText(); text != "" {
			texts = append(texts, text)
		}
	}
	text := strings.Join(texts, "\n\n")
	output, alone := result["output"]
	alone = alone && len(result) == 1
	said, isText := output.(string)
	switch {
	case alone && isText && said == "":
		return map[string]any{"output": text}
	case alone && isText:
		return map[string]any{"output": said + "\n\n" + text}
	case alone:
		return map[string]any{"output": output, "text": text}
	default:
		return map[string]any{"output": result, "text": text}
	}
}

func hasTexts(parts record.Parts) bool {
	return slices.ContainsFunc(parts, func(p *agentdv1.Part) bool { return p.GetText() != "" })
}

// resultFiles returns the files among the parts of a result. They share the data.
func resultFiles(parts record.Parts) []*genai.FunctionResponsePart {
	var out []*genai.FunctionResponsePart
	for _, p := range parts {
		switch k := p.GetContent().(type) {
		case *agentdv1.Part_Inline:
			out = append(out,
				&genai.FunctionResponsePart{InlineData: &genai.FunctionResponseBlob{MIMEType: k.Inline.GetMimeType(),
					Data: k.Inline.GetData()}})
		case *agentdv1.Part_File:
			out = append(out,
				&genai.FunctionResponsePart{FileData: &genai.FunctionResponseFileData{MIMEType: k.File.GetMimeType(),
					FileURI: k.File.GetUri()}})
		}
	}
	return out
}

// referencedTools returns the tools to which the parts of a result refer.
func referencedTools(parts record.Parts) []string {
	var names []string
	for _, p := range parts {
		if ref := p.GetTool(); ref != nil {
			names = append(names, ref.GetToolName())
		}
	}
	return names
}

// extras are the files and tool references of a result.
type extras struct {
	files []*genai.FunctionResponsePart
	tools []string // to which it refers
}

// keepExtras keeps the files and tool references of a result until the event that holds
// the result is in the log: the engine knows only values.
func (t *turn) keepExtras(callID string, parts record.Parts) {
	b := &extras{resultFiles(parts), referencedTools(parts)}
	if len(b.files) == 0 && len(b.tools) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.extras[callID] = b
}

// setExtras adds the files and tool references to the results of an event. The event
// gets a new content, since it may share its content with the engine.
func (t *turn) setExtras(ev *adksession.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ev.Content == nil || !slices.ContainsFunc(ev.Content.Parts, func(p *genai.Part) bool {
		return p.FunctionResponse != nil && t.extras[p.FunctionResponse.ID] != nil
	}) {
		return
	}
	c := &genai.Content{Role: ev.Content.Role, Parts: slices.Clone(ev.Content.Parts)}
	for i, p := range c.Parts {
		if p.FunctionResponse == nil || t.extras[p.FunctionResponse.ID] == nil {
			continue
		}
		b := t.extras[p.FunctionResponse.ID]
		part, response := seam.Refer(p, b.tools...), *p.FunctionResponse
		response.Parts = b.files
		part.FunctionResponse = &response
		c.Parts[i] = part
	}
	ev.Content = c
}

// fileOf returns a file of a result as a part of a prompt.
func fileOf(f *genai.FunctionResponsePart) *genai.Part {
	switch {
	case f == nil:
		return nil
	case f.InlineData != nil:
		return &genai.Part{InlineData: &genai.Blob{MIMEType: f.InlineData.MIMEType, Data: f.InlineData.Data,
			DisplayName: f.InlineData.DisplayName}}
	case f.FileData != nil:
		return &genai.Part{FileData: &genai.FileData{MIMEType: f.FileData.MIMEType, FileURI: f.FileData.FileURI,
			DisplayName: f.FileData.DisplayName}}
	default:
		return nil
	}
}

// checkParts refuses a file that no model of the tree accepts. Models that do not
// accept it receive a description.
func (t *tree) checkParts(parts record.Parts) error {
	for i, p := range parts {
		f := model.File{MIMEType: p.GetInline().GetMimeType()}
		switch {
		case p.GetFile() != nil:
			f = model.File{MIMEType: p.GetFile().GetMimeType(), URI: p.GetFile().GetUri()}
		case p.GetInline() == nil:
			continue
		}
		if err := t.takes(f); err != nil {
			return fault.Errorf(codeInvalid, "user_parts[%d]: no model of the tree takes it: %w", i, err).
				Breaking(fmt.Sprintf("user_parts[%d]", i), fault.RuleRange)
		}
	}
	return nil
}

// takes returns why no model of the tree accepts a file, in the words of the first one;
// nil if one does.
func (t *tree) takes(f model.File) error {
	var refused error
	for n := range t.root.all() {
		if n.kind != llmKind {
			continue
		}
		if n.model.Takes == nil {
			return nil
		}
		err := n.model.Takes(f)
		if err == nil {
			return nil
		}
		if refused == nil {
			refused = fmt.Errorf("model %q: %w", n.modelName, err)
		}
	}
	return refused
}

// all yields the agents of a tree, from the top.
func (n *node) all() iter.Seq[*node] {
	return func(yield func(*node) bool) { n.walk(yield) }
}

func (n *node) walk(yield func(*node) bool) bool {
	return yield(n) && !slices.ContainsFunc(n.kids, func(kid *node) bool { return !kid.walk(yield) }) &&
		!slices.ContainsFunc(n.agentTools, func(t *agentTool) bool { return !t.root.walk(yield) })
}

// dropsFiles reports whether a provider may have failed the turn because it could not
// read a file of it.
func dropsFiles(code agentdv1.ErrorCode) bool { return code == codeInvalid }

// dropFiles replaces the files since a record by descriptions. Each request holds the
// whole history, so a provider that refuses a file would refuse the session for ever.
func (h *history) dropFiles(since int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, it := range h.items {
		if it.seq < since || it.content == nil {
			continue
		}
		if c := words.WithoutFiles(it.content); c != it.content {
			without := *it
			without.content, without.converted, without.weight = c, nil, 0
			h.items[i] = &without
			for key := range h.prompts {
				h.forgetLocked(key)
			}
		}
	}
}
