package modeltest

import (
	"encoding/json"
	"strings"
	"testing"
)

// schemas checks that a response schema reaches the wire, natively or in words,
// with its keys in their order, and that the answer comes back as text.
func (h Harness) schemas(t *testing.T) {
	const schema = `{"type":"object","properties":{"zz_first":{"type":"string","description":"first-marker"},"aa_second":{"type":["integer","null"]}},` +
		`"required":["zz_first","aa_second"],"additionalProperties":false}`
	for name, withTools := range map[string]bool{"alone": false, "with tools": true} {
		t.Run(name, func(t *testing.T) {
			a := Answer{Pieces: []Piece{{Text: `{"zz_first":"<x>",`}, {Text: `"aa_second":9007199254740993}`}}, Usage: h.usage()}
			s := serve(t, h.Encode(a).handler())
			llm, req := h.open(t, s.URL), Prompt("hello")
			if !withTools {
				req.Config.Tools = nil
			}
			req.Config.ResponseMIMEType, req.Config.ResponseJsonSchema = "application/json", json.RawMessage(schema)
			before := mustJSON(t, req)
			r := call(t.Context(), llm, req)
			if r.err != nil {
				t.Fatal(r.err)
			}
			h.checkAnswer(t, a, r)
			if after := mustJSON(t, req); after != before {
				t.Errorf("the adapter changed the request:\n%s\nbefore:\n%s", after, before)
			}
			body := s.all()[0].body
			if !json.Valid([]byte(body)) {
				t.Fatalf("the body is no JSON: %s", body)
			}
			for _, want := range []string{"first-marker", "be brief", "additionalProperties"} {
				if strings.Count(body, want) != 1 {
					t.Errorf("the body holds %q %d times, want once: %s", want, strings.Count(body, want), body)
				}
			}
			if first := strings.Index(body, "zz_first"); first < 0 || first > strings.Index(body, "aa_second") {
				t.Errorf("the keys of the schema are not in their order: %s", body)
			}
		})
	}
}
