package gemini

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// grounding is what a candidate says of the searches behind it.
type grounding struct {
	Queries      []string        `json:"webSearchQueries"`
	ImageQueries []string        `json:"imageSearchQueries"`
	Chunks       []groundedChunk `json:"groundingChunks"`
	Supports     []struct {
		Segment segment `json:"segment"`
		Chunks  []int   `json:"groundingChunkIndices"`
	} `json:"groundingSupports"`
}

// groundedChunk is a source of one of these kinds.
type groundedChunk struct {
	Web       *groundedSource `json:"web"`
	Image     *groundedSource `json:"image"`
	Maps      *groundedSource `json:"maps"`
	Retrieved *groundedSource `json:"retrievedContext"`
}

type groundedSource struct {
	URI       string `json:"uri"`
	SourceURI string `json:"sourceUri"` // of an image
	Title     string `json:"title"`
	Text      string `json:"text"`
}

// segment is a part of the response: offsets in bytes of a part's text.
type segment struct {
	Part  int    `json:"partIndex"`
	Start int    `json:"startIndex"`
	End   int    `json:"endIndex"`
	Text  string `json:"text"`
}

// fetched is what became of one page.
type fetched struct {
	URL    string `json:"retrievedUrl"`
	Status string `json:"urlRetrievalStatus"`
}

// recited is a source that the response repeats.
type recited struct {
	Start int    `json:"startIndex"`
	End   int    `json:"endIndex"`
	URI   string `json:"uri"`
	Title string `json:"title"`
}

// observed is what a response tells of the provider's own tools. What is not of
// the form expected is not seen: the response is what counts.
type observed struct {
	provided  model.Provided // of the parts
	grounding grounding      // the newest that says anything
	pages     []fetched
	recited   []recited
}

// candidate takes in what a candidate says besides its parts.
func (o *observed) candidate(c *candidate) {
	if len(c.Grounding)+len(c.URLContext)+len(c.Citations) == 0 { // most have none
		return
	}
	var g grounding
	if _ = json.Unmarshal(c.Grounding, &g); len(g.Queries)+len(g.ImageQueries)+len(g.Chunks)+len(g.Supports) > 0 {
		o.grounding = g
	}
	var pages struct {
		URLs []fetched `json:"urlMetadata"`
	}
	_ = json.Unmarshal(c.URLContext, &pages)
	for _, page := range pages.URLs {
		if i := slices.IndexFunc(o.pages, func(p fetched) bool { return p.URL == page.URL }); i >= 0 {
			o.pages[i] = page
		} else if len(o.pages) < seam.MaxUses {
			o.pages = append(o.pages, page)
		}
	}
	var cited struct {
		Sources   []recited `json:"citationSources"` // Gemini API
		Citations []recited `json:"citations"`       // Vertex AI
	}
	if _ = json.Unmarshal(c.Citations, &cited); len(cited.Sources)+len(cited.Citations) > 0 {
		o.recited = slices.Concat(cited.Sources, cited.Citations)
	}
}

// part takes in a part that a tool of the provider has made.
func (o *observed) part(p *genai.Part) {
	switch {
	case len(o.provided.Uses) > seam.MaxUses:
	case p.ExecutableCode != nil:
		c := p.ExecutableCode
		o.provided.Uses = append(o.provided.Uses,
			model.Use{ID: c.ID, Name: "code_execution",
				Input: rawjson.JSON(map[string]any{"language": c.Language, "code": c.Code})})
	case p.CodeExecutionResult != nil:
		r := p.CodeExecutionResult
		u := o.provided.Use(r.ID, "code_execution")
		u.Output = rawjson.JSON(map[string]any{"output": r.Output})
		if r.Outcome != "" && r.Outcome != genai.OutcomeOK {
			u.Error = string(r.Outcome)
		}
	case p.ToolCall != nil:
		c := p.ToolCall
		u := model.Use{ID: c.ID, Name: toolName(c.ToolType)}
		if c.Args != nil {
			u.Input = rawjson.JSON(c.Args)
		}
		o.provided.Uses = append(o.provided.Uses, u)
	case p.ToolResponse != nil && p.ToolResponse.Response != nil:
		r := p.ToolResponse
		o.provided.Use(r.ID, toolName(r.ToolType)).Output = rawjson.JSON(r.Response)
	}
}

// toolName is the name of the builtin tool of a type.
func toolName(t genai.ToolType) string {
	switch t {
	case genai.ToolTypeGoogleSearchWeb, genai.ToolTypeGoogleSearchImage:
		return "google_search"
	default:
		return strings.ToLower(string(t))
	}
}

// result is what was observed, of a response with these parts.
func (o *observed) result(content *genai.Content) *model.Provided {
	out := o.provided
	has := func(name string) bool {
		return slices.ContainsFunc(out.Uses, func(u model.Use) bool { return u.Name == name })
	}
	if queries := slices.Concat(o.grounding.Queries, o.grounding.ImageQueries); len(queries) > 0 &&
		!has("google_search") {
		u := model.Use{Name: "google_search", Input: rawjson.JSON(map[string]any{"queries": queries})}
		if sources := o.sources(); len(sources) > 0 {
			u.Output = rawjson.JSON(map[string]any{"sources": sources})
		}
		out.Uses = append(out.Uses, u)
	}
	if !has("url_context") {
		for _, page := range o.pages {
			u := model.Use{Name: "url_context", Input: rawjson.JSON(map[string]any{"url": page.URL})}
			if page.Status != "" && page.Status != string(genai.URLRetrievalStatusSuccess) {
				u.Error = page.Status
			}
			out.Uses = append(out.Uses, u)
		}
	}
	out.Citations = o.citations(content)
	return out.OrNil()
}

// sources are what the searches have found.
func (o *observed) sources() []map[string]string {
	var out []map[string]string
	for _, c := range o.grounding.Chunks {
		if src := cmp.Or(c.Web, c.Image); src != nil {
			out = append(out, map[string]string{"uri": cmp.Or(src.SourceURI, src.URI), "title": src.Title})
		}
	}
	return out
}

// citations are a source each, and a part of the response where the provider names one.
func (o *observed) citations(content *genai.Content) []model.Cite {
	text := adapter.Text(content)
	var out []model.Cite
	g, cited := o.grounding, map[int]bool{}
	for _, s := range g.Supports {
		start, end := place(content, text, s.Segment)
		for _, i := range s.Chunks {
			if i < 0 || i >= len(g.Chunks) || len(out) >= seam.MaxCitations {
				continue
			}
			cited[i] = true
			c := g.Chunks[i].cite()
			c.Start, c.End = start, end
			out = append(out, c)
		}
	}
	for i, chunk := range g.Chunks {
		if !cited[i] && len(out) < seam.MaxCitations {
			out = append(out, chunk.cite())
		}
	}
	for _, r := range o.recited {
		out = append(out, model.Cite{URI: r.URI, Title: r.Title, Start: r.Start, End: r.End})
	}
	return out
}

func (c groundedChunk) cite() model.Cite {
	src := cmp.Or(c.Web, c.Retrieved, c.Maps, c.Image)
	if src == nil {
		return model.Cite{}
	}
	return model.Cite{URI: cmp.Or(src.SourceURI, src.URI), Title: src.Title, Text: src.Text}
}

// place finds a segment in the joined text. Its offsets count from its part, of
// which a stream sends pieces: they are believed where the segment's own text
// stands there, be it from the part or from the beginning; else that text is
// looked for, and must be there once.
func place(content *genai.Content, text string, s segment) (start, end int) {
	base := 0
	if content != nil && s.Part > 0 && s.Part < len(content.Parts) {
		base = len(adapter.Text(&genai.Content{Parts: content.Parts[:s.Part]}))
	}
	for _, at := range []int{base, 0} {
		start, end := at+s.Start, at+s.End
		if start < 0 || end <= start || end > len(text) {
			continue
		}
		if s.Text == "" || text[start:end] == s.Text {
			return start, end
		}
	}
	if i := strings.Index(text, s.Text); s.Text != "" && i >= 0 && i == strings.LastIndex(text, s.Text) {
		return i, i + len(s.Text)
	}
	return 0, 0
}
