package anthropic

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
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

// dropStale takes out of the turns of a model what Anthropic refuses of the runs of
// its own tools: searches for tools that found one which finds does not know, such
// as of another agent, a use without a result, since the response ended before it,
// and a result without its use, which may have been summarized. The result of a use
// beside the model's calls comes with the next response.
func dropStale(turns [][]block, finds func(name string) bool) {
	kept, missing := map[string]bool{}, map[string]bool{} // by id of the use; missing is part of the turn before
	for i, blocks := range turns {
		open := map[string]bool{}
		for _, b := range blocks {
			id, result := b.run()
			switch {
			case id == "":
			case !result:
				open[id] = true
			case open[id] || missing[id]:
				kept[id] = b.found(finds)
				delete(open, id)
			}
		}
		missing = nil
		if slices.ContainsFunc(blocks, func(b block) bool { return b.Type == "tool_use" }) {
			missing = open
		}
		if i == len(turns)-1 {
			for id := range missing {
				kept[id] = true
			}
		}
	}
	for i := range turns {
		turns[i] = slices.DeleteFunc(turns[i], func(b block) bool {
			id, _ := b.run()
			return id != "" && !kept[id]
		})
	}
}

// run is the id of the run of a provider's tool that the block is about, "" for any
// other, and whether the block is its result.
func (b *block) run() (id string, result bool) {
	var of providerTool
	if b.raw == nil || json.Unmarshal(b.raw, &of) != nil {
		return "", false
	}
	return cmp.Or(of.ToolUseID, of.ID), of.ToolUseID != ""
}

// found reports whether finds knows all that a search for tools has found; true for
// any other block.
func (b *block) found(finds func(name string) bool) bool {
	if !bytes.Contains(b.raw, []byte("tool_search_tool_result")) {
		return true
	}
	var result struct {
		Content struct {
			References []struct {
				Name string `json:"tool_name"`
			} `json:"tool_references"`
		} `json:"content"`
	}
	_ = json.Unmarshal(b.raw, &result) // It was read when it came.
	for _, ref := range result.Content.References {
		if !finds(ref.Name) {
			return false
		}
	}
	return true
}
