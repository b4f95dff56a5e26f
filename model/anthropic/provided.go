package anthropic

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/encoded"
	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// providerTool is a block of a tool that Anthropic has run: the use, or its result.
type providerTool struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	IsError   bool            `json:"is_error"`
	Content   json.RawMessage `json:"content"`
}

// toolNames are the names of builtin tools where Anthropic has others.
var toolNames = map[string]string{
	"web_fetch":                  "url_context",
	"bash_code_execution":        "code_execution",
	"text_editor_code_execution": "code_execution",
	"tool_search_tool_bm25":      "tool_search",
	"tool_search_tool_regex":     "tool_search",
}

// toolName is the name of the builtin tool that Anthropic calls name.
func toolName(name string) string { return cmp.Or(toolNames[name], name) }

// used notes a block of a provider's tool. What is not of the form expected is
// not seen: it goes back in any case.
func (a *collector) used(raw json.RawMessage) {
	var b providerTool
	if json.Unmarshal(raw, &b) != nil || len(a.provided.Uses) > seam.MaxUses {
		return
	}
	if result, ok := strings.CutSuffix(b.Type, "_tool_result"); ok {
		u := a.provided.Use(b.ToolUseID, toolName(result))
		u.Output, u.Error = outcome(&b)
		return
	}
	if strings.HasSuffix(b.Type, "_tool_use") {
		a.provided.Uses = append(a.provided.Uses,
			model.Use{ID: b.ID, Name: toolName(b.Name), Input: rawjson.JSON(b.Input)})
	}
}

// outcome is what a tool has found, without what Anthropic has encrypted, or why
// it failed.
func outcome(b *providerTool) (output, failure string) {
	v := rawjson.Without(rawjson.Decode(b.Content),
		func(name string) bool { return strings.HasPrefix(name, "encrypted_") })
	if fields, ok := v.(map[string]any); ok {
		if kind, _ := fields["type"].(string); strings.HasSuffix(kind, "_error") {
			code, _ := fields["error_code"].(string)
			return "", cmp.Or(code, kind)
		}
	}
	output = rawjson.JSON(v)
	if b.IsError {
		failure = "the tool says that it has failed"
	}
	return output, failure
}

// cited notes the citations of a text block, which are about all of its text.
func (a *collector) cited(b *openBlock) {
	for _, raw := range b.citations {
		if len(a.provided.Citations) >= seam.MaxCitations {
			return
		}
		var c struct {
			URL      string `json:"url"`
			Source   string `json:"source"` // of a search result that the caller gave
			Title    string `json:"title"`
			Document string `json:"document_title"`
			Text     string `json:"cited_text"`
		}
		if json.Unmarshal(raw, &c) != nil {
			continue
		}
		a.provided.Citations = append(a.provided.Citations, model.Cite{
			URI: cmp.Or(c.URL, c.Source), Title: cmp.Or(c.Title, c.Document), Text: c.Text,
			Start: b.at, End: a.builder.Said(),
		})
	}
}

// keptRuns are the runs of Anthropic's own tools that go back, by id: Anthropic refuses
// searches for tools that found one which finds does not know, such as of another agent,
// a use without a result, since the response ended before it, and a result without its
// use, which may have been summarized. The result of a use beside the model's calls comes
// with the next response.
func keptRuns(
	contents []*genai.Content, pieces [][]encoded.Piece, finds func(name string) bool,
) map[string]bool {
	if !slices.ContainsFunc(pieces, func(of []encoded.Piece) bool {
		return slices.ContainsFunc(of, func(p encoded.Piece) bool { return p.Kind == kindRun })
	}) {
		return nil
	}
	kept, missing := map[string]bool{}, map[string]bool{} // by id of the use; missing is part of the turn before
	for turn := range wire.Spans(contents) {
		if !turn.Model {
			continue
		}
		open, called := map[string]bool{}, false
		for _, of := range pieces[turn.From:turn.To] {
			for _, p := range of {
				called = called || p.Kind == kindCall
				r, ok := p.Of.(*run)
				switch {
				case !ok:
				case !r.result:
					open[r.id] = true
				case open[r.id] || missing[r.id]:
					kept[r.id] = !slices.ContainsFunc(r.found, func(name string) bool { return !finds(name) })
					delete(open, r.id)
				}
			}
		}
		missing = nil
		if called {
			missing = open
		}
	}
	for id := range missing {
		kept[id] = true
	}
	return kept
}

// run is what a block tells of the run of a provider's tool.
type run struct {
	id     string // of the use
	result bool   // whether the block is the result
	found  []string
}

// runOf is what a block tells of the run of a provider's tool, nil for any other.
func runOf(b *block) *run {
	var of providerTool
	if b.raw == nil || json.Unmarshal(b.raw, &of) != nil || cmp.Or(of.ToolUseID, of.ID) == "" {
		return nil
	}
	return &run{id: cmp.Or(of.ToolUseID, of.ID), result: of.ToolUseID != "", found: found(b.raw)}
}

// found are the tools that a search for tools has found, by the block of its result; none
// for any other block.
func found(raw json.RawMessage) []string {
	if !bytes.Contains(raw, []byte("tool_search_tool_result")) {
		return nil
	}
	var result struct {
		Content struct {
			References []struct {
				Name string `json:"tool_name"`
			} `json:"tool_references"`
		} `json:"content"`
	}
	_ = json.Unmarshal(raw, &result) // It was read when it came.
	var names []string
	for _, ref := range result.Content.References {
		names = append(names, ref.Name)
	}
	return names
}
