package openai

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/internal/wiretap"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// ranItem is an item of a tool that OpenAI has run.
type ranItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	CallID    string          `json:"call_id"`
	Status    string          `json:"status"`
	Execution string          `json:"execution"` // of a search for tools
	Action    json.RawMessage `json:"action"`    // of a web search
	Code      *string         `json:"code"`      // of code, with Outputs
	Outputs   json.RawMessage `json:"outputs"`
	Queries   json.RawMessage `json:"queries"` // of a file search, with Results
	Results   json.RawMessage `json:"results"`
	Name      string          `json:"name"`      // of a tool of an MCP server, with
	Arguments json.RawMessage `json:"arguments"` // a JSON text, or an object
	Output    json.RawMessage `json:"output"`
	Tools     json.RawMessage `json:"tools"` // that a search for tools has found
	Error     json.RawMessage `json:"error"`
}

// used notes an item of a provider's tool. What is not of the form expected is
// not seen: it goes back in any case.
func (a *responsesResponse) used(raw json.RawMessage) {
	var it ranItem
	if json.Unmarshal(raw, &it) != nil || len(a.provided.Uses) > seam.MaxUses {
		return
	}
	u := model.Use{ID: cmp.Or(it.CallID, it.ID)}
	switch it.Type {
	case "web_search_call":
		u.Name = "web_search"
		action, _ := rawjson.Decode(it.Action).(map[string]any)
		if sources, ok := action["sources"]; ok {
			u.Output = rawjson.JSON(map[string]any{"sources": sources})
			delete(action, "sources")
		}
		if len(action) > 0 {
			u.Input = rawjson.JSON(action)
		}
	case "code_interpreter_call":
		u.Name = "code_execution"
		if it.Code != nil {
			u.Input = rawjson.JSON(map[string]any{"code": *it.Code})
		}
		u.Output = rawjson.JSON(it.Outputs)
	case "file_search_call":
		u.Name, u.Output = "file_search", rawjson.JSON(it.Results)
		if queries := rawjson.Decode(it.Queries); queries != nil {
			u.Input = rawjson.JSON(map[string]any{"queries": queries})
		}
	case "mcp_call":
		u.Name, u.Input, u.Output = it.Name, plainJSON(it.Arguments), rawjson.JSON(it.Output)
	case "tool_search_call":
		if it.Execution == "client" {
			return
		}
		u.Name, u.Input = toolSearch, plainJSON(it.Arguments)
	case "tool_search_output":
		if it.Execution != "client" {
			a.searched(it.CallID, rawjson.JSON(it.Tools))
		}
		return
	default:
		return
	}
	if text := rawjson.JSON(it.Error); text != "" {
		u.Error = wiretap.Redact(text, a.llm.key)
	} else if it.Status == "failed" || it.Status == "incomplete" {
		u.Error = it.Status
	}
	a.provided.Uses = append(a.provided.Uses, u)
}

// searched notes what a search for tools has found. OpenAI gives its own searches
// no call id: then it is the newest one.
func (a *responsesResponse) searched(callID, found string) {
	for i, u := range slices.Backward(a.provided.Uses) {
		if u.Name == toolSearch && u.Output == "" && (callID == "" || u.ID == callID) {
			a.provided.Uses[i].Output = found
			return
		}
	}
	a.provided.Uses = append(a.provided.Uses, model.Use{ID: callID, Name: toolSearch, Output: found})
}

// toolSearch is the builtin tool that finds deferred tools.
const toolSearch = "tool_search"

// plainJSON is JSON that may come as a text of it.
func plainJSON(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil && len(raw) > 0 && raw[0] == '"' && json.Valid([]byte(text)) {
		return text
	}
	return rawjson.JSON(raw)
}

// annotation is a source of a part of the text, with offsets in characters.
type annotation struct {
	Type     string `json:"type"`
	URL      string `json:"url"`
	Title    string `json:"title"`
	Content  string `json:"content"`
	FileID   string `json:"file_id"`
	Filename string `json:"filename"`
	Start    int    `json:"start_index"`
	End      int    `json:"end_index"`
	// Nested is how chat completions have it.
	Nested *annotation `json:"url_citation"`
}

// cite translates an annotation of text, which begins at a byte of the response's.
func (n *annotation) cite(text string, at int) model.Cite {
	c := model.Cite{URI: cmp.Or(n.URL, n.FileID), Title: cmp.Or(n.Title, n.Filename), Text: n.Content}
	if from, to := wire.Bytes(text, n.Start, n.End); to > 0 {
		c.Start, c.End = at+from, at+to
	}
	return c
}

// cited notes the annotations of a message whose text stands in the response's from
// at on. Where it does not, since servers may mix what they stream, the parts are
// not known.
func (a *responsesResponse) cited(item *outItem, at int) {
	if !slices.ContainsFunc(item.Content, func(c itemContent) bool { return len(c.Annotations) > len("[]") }) {
		return // Looking at what was said would end the part that takes text.
	}
	said := adapter.Text(a.builder.Content())
	for _, c := range item.Content {
		if c.Type != "output_text" {
			continue
		}
		text := c.Text
		if at > len(said) || !strings.HasPrefix(said[at:], text) {
			text = ""
		}
		var notes []json.RawMessage
		_ = json.Unmarshal(c.Annotations, &notes)
		for _, raw := range notes {
			var n annotation
			if json.Unmarshal(raw, &n) == nil && len(a.provided.Citations) < seam.MaxCitations {
				a.provided.Citations = append(a.provided.Citations, n.cite(text, at))
			}
		}
		at += len(c.Text)
	}
}
