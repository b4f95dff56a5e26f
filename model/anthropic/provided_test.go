package anthropic

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// TestStaleRuns: of the runs of Anthropic's tools goes back what it takes back, and
// what a run leaves behind is still a conversation.
func TestStaleRuns(t *testing.T) {
	opaque := func(json string) *genai.Part { return &genai.Part{PartMetadata: owned(json)} }
	use := func(id string) *genai.Part {
		return opaque(`{"type":"server_tool_use","id":"` + id + `","name":"web_search","input":{}}`)
	}
	result := func(id string) *genai.Part {
		return opaque(`{"type":"web_search_tool_result","tool_use_id":"` + id + `","content":[]}`)
	}
	call := func(id string) *genai.Part { return adapter.NewCall(id, "f", "{}") }
	resultOf := func(id string) *genai.Content {
		return genai.NewContentFromParts([]*genai.Part{{FunctionResponse: &genai.FunctionResponse{ID: id, Name: "f"}}}, genai.RoleUser)
	}
	said := func(parts ...*genai.Part) *genai.Content { return genai.NewContentFromParts(parts, genai.RoleModel) }
	prompt, text := genai.NewContentFromText("go on", genai.RoleUser), &genai.Part{Text: "hi"}
	for name, tc := range map[string]struct {
		contents []*genai.Content
		want     string // ids of the runs, + behind a result
		messages int
	}{
		"whole":                  {[]*genai.Content{prompt, said(use("1"), result("1"), text, use("2"), result("2")), prompt}, "1 1+ 2 2+", 3},
		"cut off":                {[]*genai.Content{prompt, said(text, use("1")), prompt}, "", 3},
		"nothing but cut off":    {[]*genai.Content{prompt, said(use("1")), prompt}, "", 1},
		"beside a call, open":    {[]*genai.Content{prompt, said(use("1"), call("c")), resultOf("c")}, "1", 3},
		"beside a call, come":    {[]*genai.Content{prompt, said(use("1"), call("c")), resultOf("c"), said(result("1"), text), prompt}, "1 1+", 5},
		"beside a call, never":   {[]*genai.Content{prompt, said(use("1"), call("c")), resultOf("c"), said(text), prompt}, "", 5},
		"beside no call, come":   {[]*genai.Content{prompt, said(text, use("1")), prompt, said(result("1"), text), prompt}, "", 5},
		"the use was summarised": {[]*genai.Content{prompt, said(result("1"), text), prompt}, "", 3},
		"result before use":      {[]*genai.Content{prompt, said(result("1"), use("1"), text), prompt}, "", 3},
	} {
		req := &model.Request{Config: &genai.GenerateContentConfig{}, Contents: tc.contents}
		body, err := bodyOf("claude-sonnet-4-5", req)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var r struct {
			Messages []struct {
				Content []json.RawMessage
			}
		}
		if err := json.Unmarshal(body, &r); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range r.Messages {
			for _, b := range m.Content {
				if strings.Contains(string(b), `"tool_use"`) || strings.Contains(string(b), `"tool_result"`) {
					continue // a function's
				}
				if of := runOf(&block{raw: b}); of != nil && of.result {
					got = append(got, of.id+"+")
				} else if of != nil {
					got = append(got, of.id)
				}
			}
		}
		if strings.Join(got, " ") != tc.want || len(r.Messages) != tc.messages {
			t.Errorf("%s: %v in %d messages, want %q in %d", name, got, len(r.Messages), tc.want, tc.messages)
		}
	}
}

// TestCacheMarksOfTools: the last tool that is not deferred is marked, be it a
// function or Anthropic's own.
func TestCacheMarksOfTools(t *testing.T) {
	f, g := &genai.FunctionDeclaration{Name: "f"}, &genai.FunctionDeclaration{Name: "g"}
	search := &genai.Tool{GoogleSearch: &genai.GoogleSearch{}}
	for name, tc := range map[string]struct {
		tools    []*genai.Tool
		deferred []string
		want     string
	}{
		"functions":      {[]*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{f, g}}}, nil, "g"},
		"search behind":  {[]*genai.Tool{search, {FunctionDeclarations: []*genai.FunctionDeclaration{f}}}, nil, "web_search"},
		"deferred":       {[]*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{f, g}}}, []string{"g"}, "tool_search_tool_bm25"},
		"all deferred":   {[]*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{f, g}}}, []string{"f", "g"}, "tool_search_tool_bm25"},
		"no tools":       {nil, nil, ""},
		"nothing to run": {[]*genai.Tool{nil, {}}, nil, ""},
	} {
		req := &model.Request{
			Config:   &genai.GenerateContentConfig{Tools: tc.tools},
			Contents: []*genai.Content{genai.NewContentFromText("hi", genai.RoleUser)}, Deferred: tc.deferred, ToolSearch: len(tc.deferred) > 0, Cache: &model.Cache{},
		}
		r, err := newRequest("claude-sonnet-4-5", req, wire.NewNames(maxToolName, req))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, one := range r.Tools {
			switch one := one.(type) {
			case tool:
				if one.CacheControl != nil {
					got = append(got, one.Name)
				}
				if one.Deferred != slices.Contains(tc.deferred, one.Name) || one.Deferred && one.CacheControl != nil {
					t.Errorf("%s: %+v", name, one)
				}
			case serverTool:
				if one.CacheControl != nil {
					got = append(got, one.Name)
				}
			}
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: marked %v, want %q", name, got, tc.want)
		}
	}

	// Of a list that ends on deferred tools the one before is marked.
	r := &request{Tools: []any{tool{Name: "f"}, tool{Name: "g", Deferred: true}, tool{Name: "h", Deferred: true}}}
	r.markTools(&cacheControl{Type: "ephemeral"})
	if first, ok := r.Tools[0].(tool); !ok || first.CacheControl == nil || r.Tools[1].(tool).CacheControl != nil || r.Tools[2].(tool).CacheControl != nil {
		t.Errorf("marked %+v", r.Tools)
	}
}
