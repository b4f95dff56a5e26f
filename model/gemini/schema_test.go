package gemini_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model/gemini"
)

// TestSchemaOrWords names a schema in the request, with its keys in their order,
// where that is taken, and asks for it in the instructions elsewhere.
func TestSchemaOrWords(t *testing.T) {
	const schema = `{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"string"}}}`
	var body string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		body = string(data)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, frame(json.RawMessage(done)))
	}))
	t.Cleanup(s.Close)
	search := &genai.Tool{GoogleSearch: &genai.GoogleSearch{}}
	for _, c := range []struct {
		model             string
		functions, vertex bool
		search            bool
		want              bool
	}{
		{model: "gemini-2.5-flash", want: true},
		{model: "models/gemini-2.0-flash-001", want: true},
		{model: "gemini-1.5-pro", want: false},
		{model: "gemma-3-27b-it", want: false},
		{model: "tunedModels/mine-123", want: false},
		{model: "gemini-2.5-flash", functions: true, want: false},
		{model: "gemini-2.5-flash", functions: true, vertex: true, want: true},
		{model: "gemini-2.5-flash", search: true, want: false},
		{model: "gemini-2.5-flash", search: true, vertex: true, want: false},
		{model: "gemini-3-pro-preview", functions: true, search: true, want: true},
		{model: "gemini-3.1-pro-preview", functions: true, want: true},
		{model: "gemini-flash-latest", functions: true, want: true},
		{model: "gemini-10-ultra", functions: true, want: true},
	} {
		req := prompt("hello")
		if !c.functions {
			req.Config.Tools = nil
		}
		if c.search {
			req.Config.Tools = append(req.Config.Tools, search)
		}
		req.Config.ResponseMIMEType, req.Config.ResponseJsonSchema = "application/json", json.RawMessage(schema)
		ask(t, gemini.New(gemini.Config{APIKey: "k", Vertex: c.vertex, BaseURL: s.URL}), c.model, req)
		native := strings.Contains(body, `"responseJsonSchema":`+schema) && strings.Contains(body, `"responseMimeType":"application/json"`)
		quoted, err := json.Marshal(schema)
		if err != nil {
			t.Fatal(err)
		}
		words := strings.Contains(body, `be brief`) && strings.Contains(body, strings.Trim(string(quoted), `"`)) && !strings.Contains(body, "response")
		if native != c.want || words == c.want {
			t.Errorf("%+v: body %s", c, body)
		}
		if req.Config.ResponseMIMEType == "" || len(req.Config.SystemInstruction.Parts) != 1 {
			t.Errorf("%+v: the request was changed", c)
		}
	}
}
