package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
)

// thoughtStream is an answer that thinks, and then calls a tool.
const thoughtStream = `data: {"type":"message_start","message":{"model":"m","usage":{"input_tokens":1}}}

data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}

data: {"type":"content_block_stop","index":0}

data: {"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"hidden"}}

data: {"type":"content_block_stop","index":1}

data: {"type":"content_block_start","index":2,"content_block":{"type":"text","text":"Said."}}

data: {"type":"content_block_stop","index":2}

data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}

data: {"type":"message_stop"}

`

// replying answers each request with thoughtStream, and keeps it.
type replying struct {
	header http.Header
	body   string
}

func (a *replying) RoundTrip(r *http.Request) (*http.Response, error) {
	data, err := io.ReadAll(r.Body)
	a.header, a.body = r.Header, string(data)
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(thoughtStream)),
	}, err
}

// A model is sent the thinking of its own family alone, but for those that sort out
// by themselves what they can read: these are told to leave out thinking before
// which something has changed.
func TestThinkingOfOtherModels(t *testing.T) {
	transport := &replying{}
	p := New(Config{APIKey: "k", BaseURL: "http://anthropic.invalid", Transport: transport})
	ask := func(name string, contents ...*genai.Content) *model.Response {
		llm, err := p.Open(name, "")
		if err != nil {
			t.Fatal(err)
		}
		resp, err := llm.Generate(context.Background(), &model.Request{Contents: contents, Config: &genai.GenerateContentConfig{}}, func(model.Delta) {})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return resp
	}
	user := genai.NewContentFromText("hello", genai.RoleUser)
	said := ask("claude-opus-4-8", user).Content
	old, err := json.Marshal(said) // as the log has it
	if err != nil {
		t.Fatal(err)
	}
	var stored genai.Content
	if err := json.Unmarshal(old, &stored); err != nil {
		t.Fatal(err)
	}
	unmarked := genai.Content{Role: stored.Role}
	for _, part := range stored.Parts {
		one := *part
		one.PartMetadata = map[string]any{}
		for k, v := range part.PartMetadata {
			if k != seam.MetaModel {
				one.PartMetadata[k] = v
			}
		}
		unmarked.Parts = append(unmarked.Parts, &one)
	}
	for name, want := range map[string]struct{ sent, binds bool }{
		"claude-opus-4-8":          {sent: true},
		"claude-opus-4-8-20260101": {sent: true},
		"claude-opus-4-7":          {},
		"claude-sonnet-4-5":        {},
		"claude-fable-5":           {},
		"claude-opus-5":            {},
		"claude-opus-5-5":          {sent: true, binds: true},
		"claude-sonnet-5-5":        {sent: true, binds: true},
		"claude-fable-5-1":         {sent: true, binds: true},
		"claude-haiku-5-5":         {sent: true, binds: true},
	} {
		ask(name, user, &stored, user)
		got := strings.Contains(transport.body, `"signature":"c2ln"`)
		if redacted := strings.Contains(transport.body, `"redacted_thinking"`); got != want.sent || redacted != want.sent || !strings.Contains(transport.body, "Said.") {
			t.Errorf("%s was sent %s, want the thinking in it: %v", name, transport.body, want.sent)
		}
		binds := strings.Contains(transport.body, `"thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"drop_block"}}`)
		if beta := transport.header.Get("Anthropic-Beta") == sdk.AnthropicBetaThinkingBindingControls2026_08_01; binds != want.binds || beta != want.binds {
			t.Errorf("%s: binds %v, with the beta's header %v, want %v: %s", name, binds, beta, want.binds, transport.body)
		}
		if want.binds {
			var params sdk.BetaMessageNewParams
			if err := json.Unmarshal([]byte(transport.body), &params); err != nil || params.Thinking.OfAdaptive == nil ||
				params.Thinking.OfAdaptive.BlockBinding.PrefixMismatchBehavior != sdk.BetaThinkingPrefixMismatchBehaviorDropBlock {
				t.Errorf("%s: the SDK reads %+v, %v", name, params.Thinking, err)
			}
		}
		if ask(name, user, &unmarked, user); !strings.Contains(transport.body, `"signature":"c2ln"`) {
			t.Errorf("%s: thinking of a log that does not name its model was left out", name)
		}
	}
}

// What a model does not take is refused by name, before it is called.
func TestSettingsOfModels(t *testing.T) {
	none, all := int32(0), float32(1)
	tools := []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "f"}}}}
	forced := &genai.ToolConfig{FunctionCallingConfig: &genai.FunctionCallingConfig{Mode: genai.FunctionCallingConfigModeAny}}
	for what, cfg := range map[string]*genai.GenerateContentConfig{
		"thinking": {ThinkingConfig: &genai.ThinkingConfig{ThinkingBudget: &none}},
		"tool":     {Tools: tools, ToolConfig: forced},
		"Temp":     {Temperature: new(float32(0.5))},
		"TopP":     {TopP: new(float32(0.5))},
		"TopK":     {TopK: new(float32(5))},
		"":         {Temperature: &all, TopP: &all, Tools: tools},
	} {
		for name, refuses := range map[string]string{
			"claude-sonnet-4-5": "",
			"claude-opus-4-6":   "",
			"claude-opus-4-7":   "Temp TopP TopK",
			"claude-opus-5":     "Temp TopP TopK",
			"claude-fable-5":    "thinking Temp TopP TopK",
			"claude-fable-5-1":  "thinking tool Temp TopP TopK",
			"claude-opus-5-5":   "thinking tool Temp TopP TopK",
			"claude-sonnet-5":   "Temp TopP TopK",
			"claude-sonnet-5-5": "thinking tool Temp TopP TopK",
			"claude-haiku-5-5":  "Temp TopP TopK",
			"claude-fable-5-2":  "thinking tool Temp TopP TopK",
			"claude-unheard-of": "",
		} {
			req := &model.Request{Contents: genai.Text("hello"), Config: cfg}
			_, err := bodyOf(name, req)
			want := what != "" && strings.Contains(refuses, what)
			e, ok := errors.AsType[*model.Error](err)
			if ok != want || ok && (e.Kind != model.KindInvalid || !strings.Contains(strings.ToLower(e.Message), strings.ToLower(what))) {
				t.Errorf("%s, %q: %v, want it refused: %v", name, what, err, want)
			}
		}
	}
}
