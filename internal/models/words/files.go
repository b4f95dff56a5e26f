package words

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
)

// ReplaceFiles returns in with the files in words that the model does not take; nil if it takes
// all. takes returns why a file is not taken. It copies only what differs.
func ReplaceFiles(in []*genai.Content, takes func(model.File) error) []*genai.Content {
	return fileFilter{takes}.contents(in)
}

// fileFilter puts files that takes refuses into words.
type fileFilter struct {
	takes func(model.File) error
}

// contents returns in without the files that the model does not take; nil if it takes all.
func (f fileFilter) contents(in []*genai.Content) []*genai.Content {
	var out []*genai.Content
	for i, c := range in {
		if c == nil || c.Role == genai.RoleModel {
			continue // its own files are no input
		}
		parts := f.parts(c.Parts)
		if parts == nil {
			continue
		}
		if out == nil {
			out = slices.Clone(in)
		}
		out[i] = &genai.Content{Role: c.Role, Parts: parts}
	}
	return out
}

func (f fileFilter) parts(in []*genai.Part) []*genai.Part {
	var out []*genai.Part
	for i, p := range in {
		fit := f.part(p)
		if fit == p {
			continue
		}
		if out == nil {
			out = slices.Clone(in)
		}
		out[i] = fit
	}
	return out
}

// part returns p itself if the model takes it.
func (f fileFilter) part(p *genai.Part) *genai.Part {
	switch {
	case p == nil:
	case p.InlineData != nil:
		if f.takes(model.File{MIMEType: p.InlineData.MIMEType}) != nil {
			return &genai.Part{Text: notShown(DescribeFile(p))}
		}
	case p.FileData != nil:
		if f.takes(model.File{MIMEType: p.FileData.MIMEType, URI: p.FileData.FileURI}) != nil {
			return &genai.Part{Text: notShown(DescribeFile(p))}
		}
	case p.FunctionResponse != nil:
		return f.result(p)
	}
	return p
}

// result returns a tool's result without the files that the model does not take.
func (f fileFilter) result(p *genai.Part) *genai.Part {
	var keep []*genai.FunctionResponsePart
	var notes []string
	for _, file := range p.FunctionResponse.Parts {
		var err error
		switch {
		case file == nil:
			continue
		case file.InlineData != nil:
			err = f.takes(model.File{MIMEType: file.InlineData.MIMEType, Result: true})
		case file.FileData != nil:
			err = f.takes(model.File{MIMEType: file.FileData.MIMEType, URI: file.FileData.FileURI, Result: true})
		}
		if err == nil {
			keep = append(keep, file)
			continue
		}
		notes = append(notes, notShown(DescribeResultFile(file)))
	}
	if len(notes) == 0 {
		return p
	}
	part, r := *p, *p.FunctionResponse
	r.Parts = keep
	note := strings.Join(notes, "\n")
	if text, ok := r.Response["output"].(string); ok && len(r.Response) == 1 {
		r.Response = map[string]any{"output": strings.TrimSpace(text + "\n\n" + note)}
	} else {
		r.Response = maps.Clone(r.Response)
		if r.Response == nil {
			r.Response = map[string]any{}
		}
		r.Response["files"] = note
	}
	part.FunctionResponse = &r
	return &part
}

func notShown(file string) string { return strings.TrimSuffix(file, "]") + ", not shown to you]" }

// WithoutFiles returns c with its files in words; c itself if it has none.
func WithoutFiles(c *genai.Content) *genai.Content {
	parts := fileFilter{func(model.File) error { return errNoFiles }}.parts(c.Parts)
	if parts == nil {
		return c
	}
	return &genai.Content{Role: c.Role, Parts: parts}
}

var errNoFiles = errors.New("no files")

// DescribeFile returns a file in words, such as "[image/png, 68 bytes]"; "" for a part that is
// none.
func DescribeFile(p *genai.Part) string {
	switch {
	case p.InlineData != nil:
		return describeData(p.InlineData.MIMEType, p.InlineData.Data)
	case p.FileData != nil:
		return describeURI(p.FileData.MIMEType, p.FileData.FileURI)
	default:
		return ""
	}
}

// DescribeResultFile is DescribeFile for a file of a tool's result.
func DescribeResultFile(p *genai.FunctionResponsePart) string {
	switch {
	case p.InlineData != nil:
		return describeData(p.InlineData.MIMEType, p.InlineData.Data)
	case p.FileData != nil:
		return describeURI(p.FileData.MIMEType, p.FileData.FileURI)
	default:
		return ""
	}
}

func describeData(mimeType string, data []byte) string {
	return fmt.Sprintf("[%s, %d bytes]", mimeType, len(data))
}

func describeURI(mimeType, uri string) string { return fmt.Sprintf("[%s, %s]", mimeType, uri) }

// Said returns what c says: its texts that are no thoughts, and its files in words on lines of
// their own. c may be nil.
func Said(c *genai.Content) string {
	if c == nil {
		return ""
	}
	var b strings.Builder
	file := false
	for _, p := range c.Parts {
		if p == nil || p.Thought {
			continue
		}
		text, isFile := p.Text, false
		if described := DescribeFile(p); described != "" {
			text, isFile = described, true
		}
		if text == "" {
			continue
		}
		if b.Len() > 0 && (file || isFile) {
			b.WriteByte('\n')
		}
		b.WriteString(text)
		file = isFile
	}
	return b.String()
}
