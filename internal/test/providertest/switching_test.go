package providertest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"
	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/gemini"
)

// marks are what must reach its own provider only, as it stands in a body.
var marks = map[providertest.Wire][]string{
	providertest.OpenAIChat:      {"chat-opaque-mark"},
	providertest.OpenAIResponses: {"responses-opaque-mark"},
	providertest.Anthropic:       {"anthropic-opaque-mark"},
	providertest.Gemini:          {"Z2VtaW5pLW9wYXF1ZS1tYXJr", "gemini-opaque-mark"},
}

// servers are those that a conversation may switch to, by name: of each wire the
// provider's own, and some that speak OpenAI's chat completions with rules of theirs.
func servers() map[string]server {
	all := map[string]server{}
	for _, wire := range providertest.Wires {
		all[string(wire)] = server{wire: wire}
	}
	for name, base := range map[string]string{"mistral": "https://api.mistral.ai/v1", "deepseek": "https://api.deepseek.com", "moonshot": "https://api.moonshot.ai/v1"} {
		all[name] = server{providertest.OpenAIChat, base}
	}
	return all
}

type server struct {
	wire providertest.Wire
	base string // "" for the provider's own
}

// check checks a request.
func (s server) check(body []byte) error {
	if s.base == "" {
		return checkRequest(s.wire, body)
	}
	var r object
	if err := json.Unmarshal(body, &r); err != nil {
		return err
	}
	return errors.Join(checkRules(s.wire, body), serverRules(s.base, r))
}

// history draws what the engine can have stored of a conversation: turns of the
// user and of models of any provider, who thought, spoke, called, or did nothing.
type history struct {
	t     *rapid.T
	calls int
	runs  int // of Anthropic's tools
	out   []*genai.Content
}

// drawHistory draws a conversation that waits for a model.
func drawHistory(t *rapid.T) []*genai.Content {
	h := &history{t: t}
	if rapid.IntRange(0, 3).Draw(t, "summarised") == 0 { // which may end within a turn
		h.out = append(h.out, asked(text("<summary>\nEarlier.\n</summary>"), text("word for word:"), text("Go on.")))
		for range rapid.IntRange(0, 3).Draw(t, "answers behind the summary") {
			h.model()
		}
	}
	for range rapid.IntRange(0, 4).Draw(t, "turns") {
		h.user()
		for range rapid.IntRange(0, 3).Draw(t, "answers") {
			h.model()
		}
	}
	h.user()
	if rapid.Bool().Draw(t, "within a turn") {
		h.model()
		if last := h.out[len(h.out)-1]; last.Role == genai.RoleModel {
			h.user()
		}
	}
	return h.out
}

// word draws a text, at times one that is hard to carry.
func (h *history) word(label string) string {
	return rapid.SampledFrom([]string{"Hello.", "Grüße\n<b>", " ", "\n\n", "", "x\u2028y", "{}", "[media]"}).Draw(h.t, label)
}

// kind draws a type of files that not every provider takes.
func (h *history) kind() string {
	return rapid.SampledFrom([]string{"application/pdf", "text/csv", "audio/wav", "video/mp4", "image/tiff"}).Draw(h.t, "kind")
}

// place draws where a file is.
func (h *history) place() string {
	return rapid.SampledFrom([]string{"https://example.com/a", "gs://bucket/a", "file-123"}).Draw(h.t, "place")
}

func (h *history) user() {
	c := asked()
	for range rapid.IntRange(1, 3).Draw(h.t, "parts") {
		switch rapid.SampledFrom([]string{"text", "text", "image", "link", "file", "file link"}).Draw(h.t, "part") {
		case "file":
			c.Parts = append(c.Parts, &genai.Part{InlineData: &genai.Blob{MIMEType: h.kind(), Data: []byte("data"), DisplayName: "a.bin"}})
		case "file link":
			c.Parts = append(c.Parts, &genai.Part{FileData: &genai.FileData{MIMEType: h.kind(), FileURI: h.place()}})
		case "image":
			c.Parts = append(c.Parts, &genai.Part{InlineData: &genai.Blob{MIMEType: "image/png", Data: []byte("png")}})
		case "link":
			c.Parts = append(c.Parts, &genai.Part{FileData: &genai.FileData{MIMEType: "image/jpeg", FileURI: "https://example.com/a.jpg"}})
		default:
			c.Parts = append(c.Parts, text(h.word("said")))
		}
	}
	// A prompt says something; the empty one is refused before it is stored.
	c.Parts = append(c.Parts, text("Go on."))
	h.out = append(h.out, c)
}

// model draws an answer and what its calls brought.
func (h *history) model() {
	wire := rapid.SampledFrom(providertest.Wires).Draw(h.t, "by")
	c := said()
	var results []*genai.Part
	for range rapid.IntRange(0, 5).Draw(h.t, "model parts") {
		switch rapid.SampledFrom([]string{"text", "thought", "call", "call", "own"}).Draw(h.t, "model part") {
		case "text":
			c.Parts = append(c.Parts, h.text(wire))
		case "thought":
			c.Parts = append(c.Parts, h.thought(wire))
		case "own":
			c.Parts = append(c.Parts, h.own(wire)...)
		case "call":
			call := h.call(wire)
			c.Parts = append(c.Parts, call)
			results = append(results, h.result(call.FunctionCall))
		}
	}
	if len(c.Parts) == 0 && rapid.Bool().Draw(h.t, "no parts") {
		c.Parts = nil
	}
	h.out = append(h.out, c)
	if len(results) == 0 {
		return
	}
	results = rapid.Permutation(results).Draw(h.t, "results")
	if n := rapid.IntRange(0, len(results)-1).Draw(h.t, "split"); n > 0 {
		h.out = append(h.out, asked(results[:n]...))
		results = results[n:]
	}
	last := asked(results...)
	if rapid.Bool().Draw(h.t, "injected") {
		last.Parts = append(last.Parts, text("By the way."))
	}
	h.out = append(h.out, last)
}

func (h *history) text(wire providertest.Wire) *genai.Part {
	p := text(h.word("spoken"))
	if p.Text == "" || !rapid.Bool().Draw(h.t, "marked") {
		return p
	}
	switch wire {
	case providertest.OpenAIChat:
	case providertest.OpenAIResponses:
		p.PartMetadata = owned("openai", `{"phase":"final_answer"}`)
	case providertest.Anthropic:
		p.PartMetadata = owned("anthropic", `[{"type":"web_search_result_location","cited_text":"anthropic-opaque-mark","encrypted_index":"z","title":"t","url":"https://example.com"}]`)
	case providertest.Gemini:
		p.PartMetadata, p.ThoughtSignature = owned("gemini", ""), []byte("gemini-opaque-mark")
	}
	return p
}

// chatServer draws who has answered on chat's wire.
func (h *history) chatServer() string {
	return "openai-chat@" + rapid.SampledFrom([]string{"api.openai.com", "openrouter.ai/google"}).Draw(h.t, "server")
}

func (h *history) thought(wire providertest.Wire) *genai.Part {
	p := text(h.word("thought"))
	p.Thought = true
	if !rapid.Bool().Draw(h.t, "signed") {
		return p
	}
	switch wire {
	case providertest.OpenAIChat:
		p.PartMetadata = owned(h.chatServer(), rapid.SampledFrom([]string{
			"reasoning", "reasoning_content", `[{"type":"reasoning.encrypted","data":"chat-opaque-mark","id":"call_0"}]`,
		}).Draw(h.t, "field"))
	case providertest.OpenAIResponses:
		p.PartMetadata = owned("openai", rapid.SampledFrom([]string{
			`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"responses-opaque-mark","status":null}`,
			`{"type":"reasoning","id":"rs_1","summary":[]}`,
		}).Draw(h.t, "item"))
	case providertest.Anthropic:
		p.PartMetadata, p.ThoughtSignature = owned("anthropic", ""), []byte("anthropic-opaque-mark")
		if rapid.Bool().Draw(h.t, "redacted") {
			p = &genai.Part{Thought: true, PartMetadata: owned("anthropic", `{"type":"redacted_thinking","data":"anthropic-opaque-mark"}`)}
		}
	case providertest.Gemini:
		p.PartMetadata, p.ThoughtSignature = owned("gemini", ""), []byte("gemini-opaque-mark")
	}
	return p
}

// own draws what a provider's own tools have said.
func (h *history) own(wire providertest.Wire) []*genai.Part {
	switch wire {
	case providertest.OpenAIResponses:
		return []*genai.Part{{PartMetadata: owned("openai", rapid.SampledFrom([]string{
			`{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"responses-opaque-mark"}}`,
			`{"type":"code_interpreter_call","id":"ci_1","status":"completed","code":"responses-opaque-mark","container_id":"cntr_1","outputs":null}`,
			`{"type":"tool_search_call","id":"ts_1","call_id":null,"execution":"server","status":"completed","arguments":{"paths":["responses-opaque-mark"]}}`,
			`{"type":"tool_search_output","id":"tso_1","call_id":null,"execution":"server","status":"completed","tools":[]}`,
		}).Draw(h.t, "item"))}}
	case providertest.Anthropic:
		return h.anthropicRun()
	case providertest.Gemini:
		p := &genai.Part{PartMetadata: owned("gemini", "")}
		switch rapid.IntRange(0, 3).Draw(h.t, "of a tool") {
		case 0:
			p.CodeExecutionResult = &genai.CodeExecutionResult{Outcome: genai.OutcomeOK, Output: "gemini-opaque-mark"}
		case 1:
			p.ExecutableCode = &genai.ExecutableCode{Language: genai.LanguagePython, Code: "gemini-opaque-mark"}
		case 2:
			p.ToolCall = &genai.ToolCall{ID: "t1", ToolType: genai.ToolTypeGoogleSearchWeb, Args: map[string]any{"queries": []any{"gemini-opaque-mark"}}}
		default:
			p.ToolResponse = &genai.ToolResponse{ID: "t1", ToolType: genai.ToolTypeGoogleSearchWeb, Response: map[string]any{"a": "gemini-opaque-mark"}}
		}
		return []*genai.Part{p}
	default:
		return []*genai.Part{{}}
	}
}

// anthropicRun draws a run of a tool by Anthropic, of which the result may be
// missing, since the answer ended before, or the use, since it was summarised.
func (h *history) anthropicRun() []*genai.Part {
	h.runs++
	id := fmt.Sprintf("srvtoolu_%d", h.runs)
	block := func(json string) *genai.Part { return &genai.Part{PartMetadata: owned("anthropic", json)} }
	name := rapid.SampledFrom([]string{"web_search", "tool_search_tool_bm25"}).Draw(h.t, "run")
	use := block(`{"type":"server_tool_use","id":"` + id + `","name":"` + name + `","input":{"query":"anthropic-opaque-mark"}}`)
	result := block(`{"type":"web_search_tool_result","tool_use_id":"` + id + `","content":[{"type":"web_search_result","url":"https://example.com","title":"t","encrypted_content":"anthropic-opaque-mark"}]}`)
	if name != "web_search" {
		result = block(`{"type":"tool_search_tool_result","tool_use_id":"` + id + `","content":{"type":"tool_search_tool_search_result","tool_references":[{"type":"tool_reference","tool_name":"` + rapid.SampledFrom([]string{"gone", "clock_now", "sun"}).Draw(h.t, "found") + `"}]}}`)
	}
	switch rapid.IntRange(0, 5).Draw(h.t, "whole") {
	case 0:
		return []*genai.Part{use}
	case 1:
		return []*genai.Part{result}
	case 2:
		return []*genai.Part{block(`{"type":"redacted_thinking","data":"anthropic-opaque-mark"}`)}
	default:
		return []*genai.Part{use, result}
	}
}

func (h *history) call(wire providertest.Wire) *genai.Part {
	h.calls++
	own := rapid.SampledFrom([]string{"", "call_0", "call_0", fmt.Sprintf("call_%d", h.calls), strings.Repeat("long", 20), "has spaces"}).Draw(h.t, "own id")
	args := rapid.SampledFrom([]string{"", "{}", `{"place": "Graz"}`, `{"place":`, `[1]`, `null`, `{"n":9007199254740993}`}).Draw(h.t, "arguments")
	name := rapid.SampledFrom([]string{"weather", "clock.now", "gone:tool", "gone_tool"}).Draw(h.t, "tool")
	p := called(fmt.Sprintf("adk-%d", h.calls), own, name, args, nil)
	switch {
	case !rapid.Bool().Draw(h.t, "signed call"):
	case wire == providertest.Gemini:
		p.ThoughtSignature = []byte("gemini-opaque-mark")
		p.PartMetadata[seam.MetaProvider] = "gemini"
	case wire == providertest.OpenAIChat:
		p.PartMetadata[seam.MetaProvider], p.PartMetadata[seam.MetaOpaque] = h.chatServer(), `{"google":{"thought_signature":"chat-opaque-mark"}}`
	}
	return p
}

func (h *history) result(call *genai.FunctionCall) *genai.Part {
	response := rapid.SampledFrom([]map[string]any{
		{"output": "sunny"}, {"output": ""}, {"output": " "}, {"output": map[string]any{"n": json.Number("1.0")}}, {"output": nil},
		{"error": "no such place"}, {"error": ""}, {"a": 1, "b": []any{}}, {}, nil,
	}).Draw(h.t, "response")
	var media []*genai.FunctionResponsePart
	if rapid.IntRange(0, 3).Draw(h.t, "picture") == 0 {
		media = append(media, &genai.FunctionResponsePart{InlineData: &genai.FunctionResponseBlob{MIMEType: "image/png", Data: []byte("png")}})
	}
	switch rapid.IntRange(0, 5).Draw(h.t, "file") {
	case 0:
		media = append(media, &genai.FunctionResponsePart{InlineData: &genai.FunctionResponseBlob{MIMEType: h.kind(), Data: []byte("data")}})
	case 1:
		media = append(media, &genai.FunctionResponsePart{FileData: &genai.FunctionResponseFileData{MIMEType: h.kind(), FileURI: h.place()}})
	}
	refs := rapid.SliceOfN(rapid.SampledFrom([]string{"clock.now", "sun", "weather", "gone:tool", "nowhere"}), 0, 3).Draw(h.t, "references")
	return seam.Refer(answered(call.ID, call.Name, response, media...), refs...)
}

// TestSwitching: whatever the engine can have stored, of whichever providers, can
// be sent to each of them: the request is one that its SDK knows and its wire
// allows, and what another provider wants back stays away from it.
func TestSwitching(t *testing.T) {
	for name, s := range servers() {
		wire := s.wire
		t.Run(name, func(t *testing.T) {
			a := newAskerAt(t, wire, s.base)
			a.llm.LLM = models.Ref{Provider: string(wire), LLM: a.llm.LLM, Takes: a.llm.Takes}.Guarded(modelcall.Limits{Retry: modelcall.Retry{Tries: 1}})
			searches := wire == providertest.Anthropic || wire == providertest.OpenAIResponses
			rapid.Check(t, func(rt *rapid.T) {
				req := &model.Request{Contents: drawHistory(rt), Config: &genai.GenerateContentConfig{
					Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{weather, clock, sun}}},
				}}
				req.Deferred = rapid.SampledFrom([][]string{nil, {"clock.now"}, {"clock.now", "sun"}}).Draw(rt, "deferred")
				req.ToolSearch = len(req.Deferred) > 0 && searches && rapid.Bool().Draw(rt, "tool search")
				if rapid.Bool().Draw(rt, "must call") {
					names := rapid.SampledFrom([][]string{nil, {"weather"}, {"sun"}, {"weather", "sun"}, {"clock.now", "sun"}}).Draw(rt, "choice")
					req.Config.ToolConfig = &genai.ToolConfig{FunctionCallingConfig: &genai.FunctionCallingConfig{
						Mode: genai.FunctionCallingConfigModeAny, AllowedFunctionNames: names,
					}}
				}
				if rapid.Bool().Draw(rt, "schema") {
					req.Config.ResponseMIMEType, req.Config.ResponseJsonSchema = "application/json", json.RawMessage(`{"type":"object","properties":{"n":{"type":"number"}},"required":["n"],"additionalProperties":false}`)
				}
				if rapid.Bool().Draw(rt, "cached") {
					req.Cache = &model.Cache{Key: "k1"}
				}
				before, err := json.Marshal(req)
				if err != nil {
					rt.Fatal(err)
				}
				body, err := a.ask(t, req)
				if err != nil {
					rt.Fatalf("%v\nof %s", err, before)
				}
				if err := s.check(body); err != nil {
					rt.Errorf("%v:\n%s\nof %s", err, body, before)
				}
				if after, err := json.Marshal(req); err != nil || !bytes.Equal(before, after) {
					rt.Errorf("the request was changed (%v):\n%s\nbefore:\n%s", err, after, before)
				}
				if bytes.Contains(body, []byte("agentd.")) {
					rt.Errorf("our own metadata was sent: %s", body)
				}
				if err := checkTold(wire, body, req); err != nil {
					rt.Errorf("%v:\n%s\nof %s", err, body, before)
				}
				for other, texts := range marks {
					if (other != wire || s.base != "") && slices.ContainsFunc(texts, func(s string) bool { return bytes.Contains(body, []byte(s)) }) {
						rt.Errorf("what %s wants back was sent: %s", other, body)
					}
				}
			})
		})
	}
}

// canCall is how a model is told of a tool.
var canCall = regexp.MustCompile(`You can call the tool ([a-zA-Z0-9_.:-]+) now\.`)

// checkTold checks what a request says of deferred tools: those to which a result
// refers are declared, others are not there unless they are declared as deferred.
func checkTold(wire providertest.Wire, body []byte, req *model.Request) error {
	var r object
	if err := json.Unmarshal(body, &r); err != nil {
		return err
	}
	declared := map[string]bool{} // and whether they are deferred
	for _, t := range append(list(r, "tools"), functionsOf(r)...) {
		if fn, ok := t["function"].(object); ok {
			t = fn
		}
		if name := str(t, "name"); name != "" {
			declared[name], _ = t["defer_loading"].(bool)
		}
	}
	for _, said := range canCall.FindAllStringSubmatch(string(body), -1) {
		later, there := declared[said[1]]
		if there && later {
			there = strings.Contains(string(body), `{"type":"tool_reference","tool_name":"`+said[1]+`"}`)
		}
		if !there {
			return fmt.Errorf("the model is told that it can call %s, and cannot", said[1])
		}
	}
	loaded := req.Loaded()
	for _, name := range req.Deferred {
		if len(req.Chosen()) > 0 {
			break // which are not deferred, and may be all there is
		}
		later, there := declared[wireName(wire, name)]
		found := slices.Contains(loaded, name)
		switch {
		case wire == providertest.Anthropic && (!there || !later):
			return fmt.Errorf("%s is declared: %t, deferred: %t", name, there, later)
		case wire == providertest.Anthropic:
		case found && (!there || later), !found && there != req.ToolSearch, !found && later != req.ToolSearch:
			return fmt.Errorf("%s, found: %t, is declared: %t, deferred: %t", name, found, there, later)
		}
	}
	return nil
}

// functionsOf are the functions that Gemini is told of.
func functionsOf(r object) []object {
	var out []object
	for _, t := range list(r, "tools") {
		out = append(out, list(t, "functionDeclarations")...)
	}
	return out
}

// wireName is the name under which a provider knows a tool.
func wireName(wire providertest.Wire, name string) string {
	if wire == providertest.Gemini {
		return name
	}
	return strings.ReplaceAll(name, ".", "_")
}

// TestSwitchingToVertex: Vertex AI has the form of the Gemini API, and lacks some
// fields of it, which the SDK refuses to send there.
func TestSwitchingToVertex(t *testing.T) {
	vertex := newAskerOf(t, providertest.Gemini, func(rt http.RoundTripper) model.Provider {
		return gemini.New(gemini.Config{Vertex: true, APIKey: apiKey, Transport: rt})
	})
	sdk, err := genai.NewClient(t.Context(), &genai.ClientConfig{
		Backend: genai.BackendVertexAI, APIKey: apiKey, HTTPClient: &http.Client{Transport: vertex.sent},
	})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		body, err := vertex.ask(t, &model.Request{Contents: drawHistory(rt), Config: &genai.GenerateContentConfig{}})
		if err != nil {
			rt.Fatal(err)
		}
		var r geminiRequest
		if err := json.Unmarshal(body, &r); err != nil {
			rt.Fatal(err)
		}
		for _, err := range sdk.Models.GenerateContentStream(t.Context(), modelNames[providertest.Gemini], r.Contents, nil) {
			if err != nil {
				rt.Fatalf("%v: %s", err, body)
			}
		}
	})
}
