package modeltest

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apzuk3/agentd/model"
)

// schemas checks that a response schema reaches the wire, natively or in words,
// with its keys in their order, and that the response comes back as text.
func (h Harness) schemas(t *testing.T) {
	const schema = `{"type":"object","properties":{"zz_first":{"type":"string","description":"first-marker"},` +
		`"aa_second":{"type":["integer","null"]}},` +
		`"required":["zz_first","aa_second"],"additionalProperties":false}`
	for name, withTools := range map[string]bool{"alone": false, "with tools": true} {
		t.Run(name, func(t *testing.T) {
			a := Response{Pieces: []Piece{{Text: `{"zz_first":"<x>",`}, {Text: `"aa_second":9007199254740993}`}},
				Usage: h.usage()}
			s := serve(t, h.Encode(a).handler())
			llm, req := h.open(t, s.URL), prompt("hello")
			if !withTools {
				req.Config.Tools = nil
			}
			req.Config.ResponseMIMEType, req.Config.ResponseJsonSchema = "application/json", json.RawMessage(schema)
			before := mustJSON(t, req)
			r := call(t.Context(), llm, req)
			if r.err != nil {
				t.Fatal(r.err)
			}
			h.checkResponse(t, a, r)
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
	t.Run("refused", h.schemaRefused)
}

// schemaRefused checks that a call is made in words when the provider refuses it
// for its schema, and only then.
func (h Harness) schemaRefused(t *testing.T) {
	for why, calls := range map[string]int{"the schema has too many states for serving": 2, "no such tool": 1} {
		var refused atomic.Bool
		a := Response{Pieces: []Piece{{Text: `{"a":1}`}}, Usage: h.usage()}
		good := h.Encode(a).handler()
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if !refused.Swap(true) {
				Wire{Status: http.StatusBadRequest,
					Frames: []string{h.EncodeError(http.StatusBadRequest, "invalid_request_error", why)}}.handler()(w,
					r)
				return
			}
			good(w, r)
		})
		req := prompt("hello")
		req.Config.Tools = nil
		req.Config.ResponseMIMEType = "application/json"
		req.Config.ResponseJsonSchema = json.RawMessage(
			`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}`)
		r := call(t.Context(), h.open(t, s.URL), req)
		if n := len(s.all()); n != calls {
			t.Errorf("%s: %d requests, want %d", why, n, calls)
		}
		if calls == 1 {
			wantError(t, r.err, model.KindInvalid)
			continue
		}
		if r.err != nil {
			t.Fatal(r.err)
		}
		h.checkResponse(t, a, r)
	}
}
