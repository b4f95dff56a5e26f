package modeltest

import (
	"encoding/json"
	"iter"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
)

// values are all values of a header.
func values(h http.Header) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, vs := range h {
			for _, v := range vs {
				if !yield(v) {
					return
				}
			}
		}
	}
}

// history is a request with everything that must not reach the wire, and
// everything that must.
func history() *model.Request {
	req := prompt("prompt-marker")
	req.Contents = append(req.Contents,
		&genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{
			{Text: "foreign-thought", Thought: true, ThoughtSignature: []byte("foreign-signature"),
				PartMetadata: map[string]any{seam.MetaProvider: "elsewhere"}},
			{PartMetadata: map[string]any{seam.MetaProvider: "elsewhere",
				seam.MetaOpaque: map[string]any{"data": "foreign-opaque"}}},
			{Text: "said-marker"},
			{
				FunctionCall: &genai.FunctionCall{ID: "adk-1", Name: "greet",
					Args: map[string]any{"name": "Ann", "n": json.Number("9007199254740993")}},
				PartMetadata: map[string]any{seam.MetaArgs: `{"name":"Ann","n":9007199254740993}`,
					seam.MetaCallID: "own_1"},
			},
			{
				FunctionCall:     &genai.FunctionCall{ID: "adk-2", Name: "greet"},
				ThoughtSignature: []byte("foreign-signature"),
				PartMetadata: map[string]any{seam.MetaArgs: `{"name":`, seam.MetaArgsError: "broken",
					seam.MetaProvider: "elsewhere"},
			},
		}},
		&genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{
			{FunctionResponse: &genai.FunctionResponse{ID: "adk-1", Name: "greet",
				Response: map[string]any{"output": "result-marker-1"}}},
			{FunctionResponse: &genai.FunctionResponse{ID: "adk-2", Name: "greet",
				Response: map[string]any{"error": "result-marker-2"}}},
		}},
	)
	return req
}

// requests checks what reaches the wire of a conversation with a past, and that
// the request, which calls share, is left as it was.
func (h Harness) requests(t *testing.T) {
	s := serve(t, h.Encode(Response{Pieces: []Piece{{Text: "hi"}}, Usage: h.usage()}).handler())
	llm, req := h.open(t, s.URL), history()
	before := mustJSON(t, req)
	for range 2 {
		if r := call(t.Context(), llm, req); r.err != nil {
			t.Fatal(r.err)
		}
	}
	if after := mustJSON(t, req); after != before {
		t.Errorf("the adapter changed the request:\n%s\nbefore:\n%s", after, before)
	}
	seen := s.all()
	if len(seen) != 2 {
		t.Fatalf("%d requests, want 2", len(seen))
	}
	body := seen[0].body
	if body != seen[1].body {
		t.Errorf("equal requests have different bodies, which defeats prompt caches:\n%s\n%s", body, seen[1].body)
	}
	if !json.Valid([]byte(body)) {
		t.Fatalf("the body is no JSON: %s", body)
	}
	for _, want := range []string{"prompt-marker", "be brief", "said-marker", "result-marker-1", "result-marker-2",
		"greet", "9007199254740993"} {
		if !strings.Contains(body, want) {
			t.Errorf("the body lacks %q: %s", want, body)
		}
	}
	for _, never := range []string{"agentd.", "foreign-signature", "Zm9yZWlnbi1zaWduYXR1cm", "foreign-opaque",
		"adk-1"} {
		if strings.Contains(body, never) {
			t.Errorf("the body holds %q: %s", never, body)
		}
	}
}

// deferred checks that the request declares a deferred function when a result refers
// to it, and of the reference, and not before; the provider may receive it as
// deferred.
func (h Harness) deferred(t *testing.T) {
	s := serve(t, h.Encode(Response{Pieces: []Piece{{Text: "hi"}}, Usage: h.usage()}).handler())
	llm, req := h.open(t, s.URL), history()
	later := &genai.FunctionDeclaration{Name: "later", Description: "deferred-marker"}
	req.Config.Tools = append(req.Config.Tools, &genai.Tool{FunctionDeclarations: []*genai.FunctionDeclaration{later}})
	req.Deferred = []string{"later"}
	for _, found := range []bool{false, true} {
		if found {
			results := req.Contents[len(req.Contents)-1]
			results.Parts[0] = seam.Refer(results.Parts[0], "later")
		}
		before := mustJSON(t, req)
		if r := call(t.Context(), llm, req); r.err != nil {
			t.Fatal(r.err)
		}
		if after := mustJSON(t, req); after != before {
			t.Errorf("the adapter changed the request:\n%s\nbefore:\n%s", after, before)
		}
		seen := s.all()
		body := seen[len(seen)-1].body
		native := strings.Contains(body, `"defer_loading":true`)
		if !native && strings.Contains(body, "deferred-marker") != found {
			t.Errorf("that a function is declared which is deferred, and found: %t, is %t: %s", found, !found, body)
		}
		if listed := strings.Count(body, "later"); found && listed < 2 || !found && listed > 0 && !native {
			t.Errorf("the function, found: %t, is named %d times: %s", found, listed, body)
		}
	}
}

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
