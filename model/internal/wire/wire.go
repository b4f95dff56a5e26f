// Package wire holds what the built-in adapters for HTTP APIs share beyond package adapter: turns,
// tool names, media, settings and sealed data.
//
// It knows the common form of content and no provider. It imports model, model/adapter, genai,
// what is kept of requests, and the standard library.
package wire

import (
	"cmp"
	"encoding/base64"
	"iter"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
)

// Span is a turn: a run of neighboring contents of one role, from From on, up to To. Contents without parts may be
// among them.
type Span struct {
	Model    bool // whether it is the model's turn, else it is the user's
	From, To int
}

// Spans are the turns of a conversation. Contents without parts neither make nor part turns.
func Spans(contents []*genai.Content) iter.Seq[Span] {
	return func(yield func(Span) bool) {
		begun, s := false, Span{}
		for i, c := range contents {
			if c == nil || len(c.Parts) == 0 {
				continue
			}
			isModel := c.Role == genai.RoleModel
			if begun && s.Model != isModel {
				if !yield(s) {
					return
				}
				begun = false
			}
			if !begun {
				begun, s = true, Span{Model: isModel, From: i}
			}
			s.To = i + 1
		}
		if begun {
			yield(s)
		}
	}
}

// System returns the texts of the system instruction, without empty ones.
func System(cfg *genai.GenerateContentConfig) []string {
	if cfg.SystemInstruction == nil {
		return nil
	}
	var texts []string
	for _, p := range cfg.SystemInstruction.Parts {
		if p != nil && strings.TrimSpace(p.Text) != "" {
			texts = append(texts, p.Text)
		}
	}
	return texts
}

// Search is a request for the provider's own web search.
type Search struct {
	// Excluded are domains to leave out.
	Excluded []string
}

// Asked are the tools that the provider is to run.
type Asked struct {
	// Search is web search, nil when it is not asked for.
	Search *Search
	// Code is the execution of code, URLs the reading of pages.
	Code, URLs bool
}

// ProviderTools looks for tools that the provider is to run: web search in the
// form of genai's GoogleSearch or EnterpriseWebSearch, and those of "code_execution"
// and "url_context" that are among runs; other names the fields that ask for
// anything else.
func ProviderTools(cfg *genai.GenerateContentConfig, runs ...string) (asked Asked, other []string) {
	for _, t := range cfg.Tools {
		if t == nil {
			continue
		}
		if t.GoogleSearch != nil {
			asked.Search = &Search{Excluded: t.GoogleSearch.ExcludeDomains}
		}
		if t.EnterpriseWebSearch != nil {
			asked.Search = &Search{Excluded: t.EnterpriseWebSearch.ExcludeDomains}
		}
		asked.Code = asked.Code || t.CodeExecution != nil && slices.Contains(runs, "code_execution")
		asked.URLs = asked.URLs || t.URLContext != nil && slices.Contains(runs, "url_context")
		for name, wanted := range map[string]bool{
			"code_execution": t.CodeExecution != nil, "computer_use": t.ComputerUse != nil,
			"file_search": t.FileSearch != nil, "google_maps": t.GoogleMaps != nil,
			"google_search_retrieval": t.GoogleSearchRetrieval != nil, "retrieval": t.Retrieval != nil,
			"url_context": t.URLContext != nil, "mcp_servers": len(t.MCPServers) > 0,
			"parallel_ai_search": t.ParallelAISearch != nil, "exa_ai_search": t.ExaAISearch != nil,
		} {
			if wanted && !slices.Contains(runs, name) {
				other = append(other, name)
			}
		}
	}
	slices.Sort(other)
	return asked, other
}

// Media is an image or a file in a content part.
type Media struct {
	// MIMEType is the declared type, in lower case and without parameters.
	MIMEType string
	// Data is the content; nil when URL is set.
	Data []byte
	// URL is where the content is; "" when Data is set.
	URL string
	// Name is the file's name, if it has one.
	Name string
}

// MediaOf returns the media of p, nil if it has none.
func MediaOf(p *genai.Part) *Media {
	switch {
	case p.InlineData != nil:
		return &Media{MIMEType: mimeType(p.InlineData.MIMEType), Data: p.InlineData.Data,
			Name: p.InlineData.DisplayName}
	case p.FileData != nil:
		return &Media{MIMEType: mimeType(p.FileData.MIMEType), URL: p.FileData.FileURI, Name: p.FileData.DisplayName}
	default:
		return nil
	}
}

// ResultMedia returns the media of a function response.
func ResultMedia(fr *genai.FunctionResponse) []*Media {
	var media []*Media
	for _, p := range fr.Parts {
		switch {
		case p == nil:
		case p.InlineData != nil:
			media = append(media, &Media{MIMEType: mimeType(p.InlineData.MIMEType), Data: p.InlineData.Data,
				Name: p.InlineData.DisplayName})
		case p.FileData != nil:
			media = append(media, &Media{MIMEType: mimeType(p.FileData.MIMEType), URL: p.FileData.FileURI,
				Name: p.FileData.DisplayName})
		}
	}
	return media
}

// Of describes a file as far as adapters decide by it.
func Of(f model.File) *Media { return &Media{MIMEType: mimeType(f.MIMEType), URL: f.URI} }

// IsID reports whether the URL of m is none, but a provider's own name of a file that
// was uploaded there.
func (m *Media) IsID() bool { return m.URL != "" && !strings.Contains(m.URL, ":") }

// IsWeb reports whether m is at an http or https URL, or at a data URL.
func (m *Media) IsWeb() bool {
	scheme, _, _ := strings.Cut(m.URL, ":")
	scheme = strings.ToLower(scheme)
	return m.URL != "" && !m.IsID() && (scheme == "https" || scheme == "http" || scheme == "data")
}

// IsCommonImage reports whether m is an image in one of the four formats that all
// providers take: JPEG, PNG, GIF and WebP. A URL without a type counts as one.
func (m *Media) IsCommonImage() bool {
	switch m.MIMEType {
	case "image/jpeg", "image/png", "image/gif", "image/webp":
		return true
	}
	return m.MIMEType == "" && m.URL != ""
}

// IsDocument reports whether m is neither image nor sound nor video.
func (m *Media) IsDocument() bool {
	kind, _, _ := strings.Cut(m.MIMEType, "/")
	return m.MIMEType != "" && kind != "image" && kind != "audio" && kind != "video"
}

// FileName is the file's name, or one with an ending that says its type, for
// providers that go by it.
func (m *Media) FileName() string {
	if m.Name != "" {
		return m.Name
	}
	_, kind, _ := strings.Cut(m.MIMEType, "/")
	return "file." + cmp.Or(endings[m.MIMEType], clean(strings.TrimPrefix(kind, "x-"), maxEnding))
}

// maxEnding bounds the ending of a file's name, in bytes.
const maxEnding = 16

// endings are those of file names that are not the end of their types.
var endings = map[string]string{
	"text/plain": "txt", "text/markdown": "md", "application/msword": "doc",
	"application/vnd.ms-excel": "xls", "application/vnd.ms-powerpoint": "ppt",
	"application/vnd.openxmlformats-officedocument.wordprocessingml.document":   "docx",
	"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet":         "xlsx",
	"application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
}

// IsImage reports whether m is an image. A URL without a type counts as one,
// since nothing else is commonly linked that way.
func (m *Media) IsImage() bool {
	return strings.HasPrefix(m.MIMEType, "image/") || m.MIMEType == "" && m.URL != ""
}

// Link returns the URL of m, a data URL when the content is inline.
func (m *Media) Link() string {
	if m.URL != "" {
		return m.URL
	}
	return "data:" + m.MIMEType + ";base64," + m.Base64()
}

// Base64 returns the content in standard base64.
func (m *Media) Base64() string { return base64.StdEncoding.EncodeToString(m.Data) }

// Placeholder stands for media where a wire has no room for it, such as in the
// model's own turns.
func (m *Media) Placeholder() string {
	if m.MIMEType == "" {
		return "[media]"
	}
	return "[media: " + m.MIMEType + "]"
}

func mimeType(s string) string {
	s, _, _ = strings.Cut(s, ";")
	s = strings.ToLower(strings.TrimSpace(s))
	if s == "image/jpg" { // common, and registered nowhere
		return "image/jpeg"
	}
	return s
}

// CallID returns the provider's own id of the call p, as the provider wants it back; "" if the
// provider gave none.
func CallID(p *genai.Part) string {
	id, _ := p.PartMetadata[seam.MetaCallID].(string)
	return id
}

// calls are the parts with function calls.
func calls(contents []*genai.Content) iter.Seq[*genai.Part] {
	return func(yield func(*genai.Part) bool) {
		for _, c := range contents {
			if c == nil {
				continue
			}
			for _, p := range c.Parts {
				if p != nil && p.FunctionCall != nil && !yield(p) {
					return
				}
			}
		}
	}
}
