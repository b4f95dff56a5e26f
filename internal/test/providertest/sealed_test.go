package providertest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
)

// unreader refuses requests that hold one of its marks, and answers others.
type unreader struct {
	marks   []string
	refusal string
	answer  http.RoundTripper
	bodies  []string
}

// RoundTrip implements http.RoundTripper.
func (u *unreader) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	u.bodies = append(u.bodies, string(body))
	for _, mark := range u.marks {
		if strings.Contains(string(body), mark) {
			return (&refuser{http.StatusBadRequest, u.refusal}).RoundTrip(r)
		}
	}
	return u.answer.RoundTrip(r)
}

// TestSealedRefused: a provider that cannot read any more what it has signed or
// encrypted is asked once without that, on every wire, and the rest of the
// conversation is there.
func TestSealedRefused(t *testing.T) {
	found := &genai.Part{PartMetadata: owned("anthropic", `{"type":"web_search_tool_result","tool_use_id":"srvtoolu_9","content":[{"type":"web_search_result","url":"https://a.example","title":"A","encrypted_content":"RU5DUllQVEVE"}]}`)}
	use := &genai.Part{PartMetadata: owned("anthropic", `{"type":"server_tool_use","id":"srvtoolu_9","name":"web_search","input":{"query":"a"}}`)}
	cited := &genai.Part{Text: "It is so.", PartMetadata: owned("anthropic", `[{"type":"web_search_result_location","cited_text":"so","url":"https://a.example","title":"A","encrypted_index":"RU5DUllQVEVE"}]`)}
	signed := called("e1", "c1", "weather", `{"place":"Oslo"}`, owned("gemini", ""))
	signed.ThoughtSignature = []byte("gemini")
	for wire, c := range map[providertest.Wire]struct {
		marks   []string
		refusal string
	}{
		providertest.OpenAIResponses: {
			[]string{"UkVTUE9OU0VT"},
			`{"error":{"message":"It could not be verified.","type":"invalid_request_error","param":null,"code":"invalid_encrypted_content"}}`,
		},
		providertest.Anthropic: {
			[]string{"QU5USFJPUElD", "UkVEQUNURUQ", "RU5DUllQVEVE"},
			"{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"messages.1.content.0: Invalid `signature` in `thinking` block\"}}",
		},
		providertest.Gemini: {
			[]string{"Z2VtaW5p", "R0VNSU5J"}, // the signatures in base64
			`{"error":{"code":400,"message":"Corrupted thought signature.","status":"INVALID_ARGUMENT"}}`,
		},
	} {
		t.Run(string(wire), func(t *testing.T) {
			from := &unreader{marks: c.marks, refusal: c.refusal}
			a := newAskerOf(t, wire, func(answer http.RoundTripper) model.Provider {
				from.answer = answer
				return providerOf(wire, "", from)
			})
			model := append(thoughts(), use, found, cited, signed)
			req := request(asked(text("hi")), said(model...), asked(answered("e1", "weather", map[string]any{"output": "rain"})))
			if _, err := a.ask(t, req); err != nil {
				t.Fatal(err)
			}
			if len(from.bodies) != 2 {
				t.Fatalf("%d requests were made, want 2", len(from.bodies))
			}
			if err := checkRequest(wire, []byte(from.bodies[1])); err != nil {
				t.Error(err)
			}
			for _, want := range []string{"It is so.", "Oslo", "rain"} {
				if !strings.Contains(from.bodies[1], want) {
					t.Errorf("the second request lacks %q: %s", want, from.bodies[1])
				}
			}
			from.bodies = nil
			open := request(asked(text("hi")), said(text("hello")), asked(text("more")))
			from.marks = []string{"hello"}
			if _, err := a.ask(t, open); err == nil || len(from.bodies) != 1 {
				t.Errorf("a conversation without such data: error %v after %d requests, want one after 1", err, len(from.bodies))
			}
		})
	}
}

func request(contents ...*genai.Content) *model.Request {
	return &model.Request{
		Contents: contents,
		Config:   &genai.GenerateContentConfig{Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{weather}}}},
	}
}
