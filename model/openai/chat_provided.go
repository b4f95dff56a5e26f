package openai

import (
	"cmp"
	"encoding/json"
	"slices"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// executedTool is a tool that Groq has run. A stream tells of it in several
// pieces of one index.
type executedTool struct {
	Index     int             `json:"index"`
	Type      string          `json:"type"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Output    json.RawMessage `json:"output"`
	Search    json.RawMessage `json:"search_results"`
	Code      json.RawMessage `json:"code_results"`
}

// executedNames are the names of builtin tools where Groq has types.
var executedNames = map[string]string{"search": "web_search", "python": "code_execution", "visit": "url_context"}

// use is the tool in our terms.
func (e *executedTool) use() model.Use {
	name := cmp.Or(executedNames[e.Type], e.Name, e.Type)
	out := map[string]json.RawMessage{}
	for key, raw := range map[string]json.RawMessage{"output": e.Output, "search_results": e.Search,
		"code_results": e.Code} {
		if rawjson.JSON(raw) != "" {
			out[key] = raw
		}
	}
	u := model.Use{Name: name, Input: plainJSON(e.Arguments)}
	if len(out) > 0 {
		u.Output = rawjson.JSON(out)
	}
	return u
}

// seenInChat is what servers tell of their own tools, each in its way. What is not
// of the form expected is not seen.
type seenInChat struct {
	executed []executedTool
	notes    []annotation
	sources  []annotation // of the response as a whole, repeated in each piece
}

// delta takes in a piece of the response.
func (s *seenInChat) delta(d *chatDelta) {
	var executed []json.RawMessage
	_ = json.Unmarshal(d.Executed, &executed)
	for _, raw := range executed {
		var e executedTool
		if json.Unmarshal(raw, &e) != nil {
			continue
		}
		i := slices.IndexFunc(s.executed, func(old executedTool) bool { return old.Index == e.Index })
		switch {
		case i >= 0:
			// A later piece leaves out what an earlier one said.
			_ = json.Unmarshal(raw, &s.executed[i])
		case len(s.executed) < seam.MaxUses:
			s.executed = append(s.executed, e)
		}
	}
	s.notes = annotations(s.notes, d.Annotations)
}

// chunk takes what is said of the whole response: Perplexity's sources.
func (s *seenInChat) chunk(c *chunk) {
	if sources := annotations(nil, c.SearchResults); len(sources) > 0 {
		s.sources = sources
	}
}

// annotations adds those of a JSON list.
func annotations(to []annotation, list json.RawMessage) []annotation {
	var notes []json.RawMessage
	_ = json.Unmarshal(list, &notes)
	for _, raw := range notes {
		var n annotation
		if json.Unmarshal(raw, &n) != nil || len(to) >= seam.MaxCitations {
			continue
		}
		if n.Nested != nil {
			n = *n.Nested
		}
		to = append(to, n)
	}
	return to
}

// result is what was seen of a response.
func (s *seenInChat) result(content *genai.Content) *model.Provided {
	out, text := &model.Provided{}, adapter.Text(content)
	for i := range s.executed {
		out.Uses = append(out.Uses, s.executed[i].use())
	}
	for i := range s.notes {
		out.Citations = append(out.Citations, s.notes[i].cite(text, 0))
	}
	if len(s.notes) == 0 {
		for i := range s.sources {
			out.Citations = append(out.Citations, s.sources[i].cite("", 0))
		}
	}
	return out.OrNil()
}
