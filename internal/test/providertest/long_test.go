package providertest_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// counter counts the requests.
type counter struct {
	http.RoundTripper
	n int
}

// RoundTrip implements http.RoundTripper.
func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n++
	return c.RoundTripper.RoundTrip(r)
}

// TestLongLines: a line of two megabytes, as of a file that a provider's tool has
// read, is an answer like any other. One beyond the limit fails the call once: it
// would be as long another time, and has been paid for.
func TestLongLines(t *testing.T) {
	ends := map[providertest.Wire]string{
		providertest.OpenAIChat: "stop", providertest.OpenAIResponses: "completed", providertest.Anthropic: "end_turn", providertest.Gemini: "STOP",
	}
	for wire, end := range ends {
		for size, ok := range map[int]bool{2 << 20: true, 25 << 20: false} {
			text := strings.Repeat("x", size)
			from := &counter{RoundTripper: &memory{strings.Replace(ending(wire, end), "Half.", text, 1)}}
			opened, err := providerOf(wire, "", from).Open("any", "")
			if err != nil {
				t.Fatal(err)
			}
			llm := modelcall.WithRetry(modelcall.Guard(opened, modelcall.Limits{}), modelcall.Retry{Base: 1})
			req := &model.Request{Contents: genai.Text("hello"), Config: &genai.GenerateContentConfig{}}
			resp, err := llm.Generate(t.Context(), req, func(model.Delta) {})
			e, _ := errors.AsType[*model.Error](err)
			switch {
			case ok && (err != nil || adapter.Text(resp.Content) != text):
				t.Errorf("%s: a line of %d bytes: error %v", wire, size, err)
			case !ok && (e == nil || e.Temporary() || from.n != 1):
				t.Errorf("%s: a line of %d bytes: error %v after %d requests, want a final one after 1", wire, size, err, from.n)
			}
		}
	}
}

// TestFailedResults: an error is what says one. Anthropic takes text alone in it: the
// files of a failed call stand behind the results.
func TestFailedResults(t *testing.T) {
	picture := &genai.FunctionResponsePart{InlineData: &genai.FunctionResponseBlob{MIMEType: "image/png", Data: []byte("png")}}
	for name, c := range map[string]struct {
		response map[string]any
		failed   bool
	}{
		"text": {map[string]any{"error": "not found"}, true}, "an object": {map[string]any{"error": map[string]any{"code": 7}}, true},
		"true": {map[string]any{"error": true}, true}, "zero": {map[string]any{"error": 0}, true},
		"null": {map[string]any{"error": nil}, false}, "empty": {map[string]any{"error": ""}, false}, "false": {map[string]any{"error": false}, false},
		"beside others": {map[string]any{"error": "x", "output": "y"}, false},
	} {
		for wire := range modelNames {
			req := request(
				asked(text("hi")), said(called("e1", "c1", "weather", `{"place":"Oslo"}`, nil), called("e2", "c2", "weather", `{"place":"Rome"}`, nil)),
				asked(answered("e1", "weather", c.response, picture), answered("e2", "weather", map[string]any{"output": "rain"})),
			)
			body, err := newAsker(t, wire).ask(t, req)
			if err != nil {
				t.Fatalf("%s over %s: %v", name, wire, err)
			}
			if err := checkRequest(wire, body); err != nil {
				t.Errorf("%s over %s: %v", name, wire, err)
			}
			if failed := strings.Contains(string(body), `"is_error":true`); wire == providertest.Anthropic && failed != c.failed {
				t.Errorf("%s: the result is an error: %t, want %t: %s", name, failed, c.failed, body)
			}
			if !strings.Contains(string(body), "cG5n") {
				t.Errorf("%s over %s: the picture is gone: %s", name, wire, body)
			}
		}
	}
}
