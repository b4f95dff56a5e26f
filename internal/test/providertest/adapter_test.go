package providertest_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/jsondiff"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/anthropic"
	"github.com/apzuk3/agentd/model/gemini"
	"github.com/apzuk3/agentd/model/openai"
)

// apiKey is a key whose text appears nowhere else, since adapters redact it.
const apiKey = "sk-providertest-0123456789"

// provider opens the adapter of a wire, against a server.
func provider(srv *providertest.Server, wire providertest.Wire) model.Provider {
	base := strings.TrimRight(srv.BaseURL(wire), "/")
	switch wire {
	case providertest.OpenAIChat:
		return openai.New(openai.Config{APIKey: apiKey, BaseURL: base, API: openai.Chat})
	case providertest.OpenAIResponses:
		return openai.New(openai.Config{APIKey: apiKey, BaseURL: base, API: openai.Responses})
	case providertest.Anthropic:
		return anthropic.New(anthropic.Config{APIKey: apiKey, BaseURL: base})
	default:
		return gemini.New(gemini.Config{APIKey: apiKey, BaseURL: base})
	}
}

// TestAdapters holds every conversation with the adapters, without the engine in
// between: what they bring must be what was recorded, and each request must
// carry what was said before it.
func TestAdapters(t *testing.T) {
	ran := 0
	for _, rec := range providertest.All(t) {
		conv, err := providertest.Expect(rec)
		if err != nil {
			t.Errorf("%s: %v", rec.Name, err)
			continue
		}
		if conv.Needs() != "" {
			continue
		}
		ran++
		t.Run(rec.Name, func(t *testing.T) {
			d := &adapterDriver{srv: providertest.NewServer(t, rec, nil), wire: conv.Wire}
			for i := range conv.Sessions {
				d.session(t, &conv.Sessions[i])
			}
			if left := d.srv.Left(); left != 0 {
				t.Errorf("%d model calls were not made", left)
			}
		})
	}
	if ran < 20 {
		t.Errorf("only %d conversations were held", ran)
	}
}

// TestAdaptersCut cuts the first answer of each synthetic recording behind its
// first event, its second, and so on: no answer may be taken for complete before
// it holds everything that was recorded.
func TestAdaptersCut(t *testing.T) {
	const most = 400
	faults := make(map[int]providertest.Fault)
	for i := range most {
		faults[i] = providertest.Fault{Action: providertest.Cut, AfterEvents: i, Again: true}
	}
	for _, rec := range providertest.Synthetic(t) {
		conv, err := providertest.Expect(rec)
		if err != nil {
			t.Fatal(err)
		}
		s := &conv.Sessions[0]
		want := s.Turns[0].Steps[0]
		if errorKind(want) != "" {
			continue
		}
		t.Run(rec.Name, func(t *testing.T) {
			d := &adapterDriver{srv: providertest.NewServer(t, rec, faults), wire: conv.Wire}
			p := provider(d.srv, d.wire)
			llm, err := p.Open(s.Model, "")
			if err != nil {
				t.Fatal(err)
			}
			req := &model.Request{Config: config(s, p.Describe().Builtins), Contents: genai.Text(s.Turns[0].Prompt)}
			for n := range most {
				resp, err := llm.Generate(t.Context(), req, func(model.Delta) {})
				if err == nil {
					d.compare(t, resp, want)
					if n == 0 {
						t.Error("an answer without any event was taken for complete")
					}
					return
				}
				if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.KindUnavailable {
					t.Errorf("an answer cut behind event %d: %v, want an error of kind %s", n, err, model.KindUnavailable)
				}
			}
			t.Errorf("no answer of up to %d events was complete", most)
		})
	}
}

// adapterDriver holds the conversations of one recording.
type adapterDriver struct {
	srv  *providertest.Server
	wire providertest.Wire
	// calls counts tool calls, for unique ids.
	calls int
}

func (d *adapterDriver) session(t *testing.T, s *providertest.Session) {
	t.Helper()
	p := provider(d.srv, d.wire)
	llm, err := p.Open(s.Model, "")
	if err != nil {
		t.Fatal(err)
	}
	req := &model.Request{Config: config(s, p.Describe().Builtins)}
	for i, turn := range s.Turns {
		req.Contents = append(req.Contents, genai.NewContentFromText(turn.Prompt, genai.RoleUser))
		for j, step := range turn.Steps {
			content, ok := d.step(t, llm, req, step)
			d.request(t, s, i, j)
			if !ok || step.Open() {
				return
			}
			req.Contents = append(req.Contents, content)
			if len(step.Results) > 0 {
				req.Contents = append(req.Contents, results(content, step))
			}
		}
	}
}

// config is what the engine would configure for a session.
func config(s *providertest.Session, offered []string) *genai.GenerateContentConfig {
	cfg := &genai.GenerateContentConfig{}
	if s.System != "" {
		cfg.SystemInstruction = genai.NewContentFromText(s.System, genai.RoleUser)
	}
	var tool genai.Tool
	for _, decl := range s.Tools {
		var schema any
		if json.Unmarshal(decl.Schema, &schema) != nil {
			schema = map[string]any{"type": "object"}
		}
		tool.FunctionDeclarations = append(tool.FunctionDeclarations, &genai.FunctionDeclaration{
			Name: decl.Name, Description: decl.Description, ParametersJsonSchema: schema,
		})
	}
	if len(s.Tools) > 0 {
		cfg.Tools = append(cfg.Tools, &tool)
	}
	for _, name := range s.Builtins {
		if !slices.Contains(offered, name) {
			continue
		}
		switch name {
		case "google_search", "web_search":
			cfg.Tools = append(cfg.Tools, &genai.Tool{GoogleSearch: &genai.GoogleSearch{}})
		case "url_context":
			cfg.Tools = append(cfg.Tools, &genai.Tool{URLContext: &genai.URLContext{}})
		case "code_execution":
			cfg.Tools = append(cfg.Tools, &genai.Tool{CodeExecution: &genai.ToolCodeExecution{}})
		}
	}
	return cfg
}

// usageOf returns u in the terms of recordings.
func usageOf(u model.Usage) providertest.Usage {
	return providertest.Usage{
		Prompt: u.Prompt, Completion: u.Completion, Cached: u.Cached, CacheWrite: u.CacheWrite,
		CacheWriteHour: seam.CacheWriteHour(u), Thoughts: u.Thoughts, Total: u.Total,
	}
}

// step makes one model call and compares it with what was recorded. It returns
// the content as the engine stores it, and false after an error.
func (d *adapterDriver) step(t *testing.T, llm model.LLM, req *model.Request, want providertest.Step) (*genai.Content, bool) {
	t.Helper()
	var deltas [2]strings.Builder
	resp, err := llm.Generate(t.Context(), req, func(delta model.Delta) {
		kind := 0
		if delta.Thought {
			kind = 1
		}
		deltas[kind].WriteString(delta.Text)
	})
	if kind := errorKind(want); kind != "" {
		e, ok := errors.AsType[*model.Error](err)
		if !ok || e.Kind != kind || want.Status >= 400 && (e.Status != want.Status || !strings.Contains(e.Message, want.Message)) {
			t.Errorf("error %v, want kind %s, status %d: %s", err, kind, want.Status, want.Message)
		}
		if ok && (want.Usage != providertest.Usage{}) && (e.Usage == nil || usageOf(*e.Usage) != want.Usage) {
			t.Errorf("error with usage %+v, want %+v", e.Usage, want.Usage)
		}
		return nil, false
	}
	if err != nil {
		t.Fatalf("error: %v", err)
	}
	d.compare(t, resp, want)
	for kind, got := range []string{deltas[0].String(), deltas[1].String()} {
		if whole := parts(resp.Content, kind == 1); got != whole {
			t.Errorf("deltas %q, parts %q", got, whole)
		}
	}
	return d.rewrite(resp.Content), true
}

func (d *adapterDriver) compare(t *testing.T, resp *model.Response, want providertest.Step) {
	t.Helper()
	if got := parts(resp.Content, false); got != want.Text {
		t.Errorf("text %q, want %q", got, want.Text)
	}
	// Between the pieces of a summary an adapter may break the line.
	if got, want := squeeze(parts(resp.Content, true)), squeeze(strings.Join(want.Thoughts, "")); got != want {
		t.Errorf("thoughts %q, want %q", got, want)
	}
	if got := usageOf(resp.Usage); got != want.Usage {
		t.Errorf("usage %+v, want %+v", got, want.Usage)
	}
	if resp.Model != want.Model {
		t.Errorf("model %q, want %q", resp.Model, want.Model)
	}
	finish := genai.FinishReasonStop
	if slices.Contains([]string{"length", "max_tokens", "max_output_tokens", "MAX_TOKENS"}, want.Finish) {
		finish = genai.FinishReasonMaxTokens
	}
	if resp.FinishReason != finish {
		t.Errorf("finish reason %q, want %q", resp.FinishReason, finish)
	}
	var got []providertest.ToolCall
	for _, p := range contentParts(resp.Content) {
		if c := p.FunctionCall; c != nil {
			args, _ := p.PartMetadata[seam.MetaArgs].(string)
			decoded, err := json.Marshal(c.Args)
			if err != nil || !jsondiff.Equal(string(decoded), args) {
				t.Errorf("call %s: Args %s (%v), their text %s", c.Name, decoded, err, args)
			}
			got = append(got, providertest.ToolCall{ID: c.ID, Name: c.Name, Args: args})
		}
	}
	same := func(a, b providertest.ToolCall) bool {
		return a.ID == b.ID && a.Name == b.Name && jsondiff.Equal(a.Args, b.Args)
	}
	if !slices.EqualFunc(got, want.Calls, same) {
		t.Errorf("tool calls %v, want %v", got, want.Calls)
	}
}

// rewrite gives the calls ids of their own, as the engine does.
func (d *adapterDriver) rewrite(c *genai.Content) *genai.Content {
	if c == nil {
		return &genai.Content{Role: genai.RoleModel}
	}
	out := &genai.Content{Role: c.Role}
	for _, p := range c.Parts {
		cp := *p
		if p.FunctionCall != nil {
			d.calls++
			fc := *p.FunctionCall
			fc.ID = fmt.Sprintf("agentd-%d", d.calls)
			cp.FunctionCall = &fc
			cp.PartMetadata = maps.Clone(p.PartMetadata)
			cp.PartMetadata[seam.MetaCallID] = p.FunctionCall.ID
		}
		out.Parts = append(out.Parts, &cp)
	}
	return out
}

// results answers the calls of a content.
func results(content *genai.Content, step providertest.Step) *genai.Content {
	out := &genai.Content{Role: genai.RoleUser}
	for _, p := range content.Parts {
		if p.FunctionCall == nil {
			continue
		}
		r := step.Results[len(out.Parts)]
		key := "output"
		if r.IsError {
			key = "error"
		}
		out.Parts = append(out.Parts, &genai.Part{FunctionResponse: &genai.FunctionResponse{
			ID: p.FunctionCall.ID, Name: p.FunctionCall.Name, Response: map[string]any{key: r.Output},
		}})
	}
	return out
}

// request checks the newest request that the server got.
func (d *adapterDriver) request(t *testing.T, s *providertest.Session, turn, step int) {
	t.Helper()
	all := d.srv.Received()
	got := all[len(all)-1]
	if err := providertest.CheckHistory(got.Body, d.wire, s.History(turn, step)); err != nil {
		t.Errorf("request %d: %v", len(all)-1, err)
	}
	req, err := providertest.ParseRequest(got.Path, got.Body)
	if err != nil {
		t.Fatal(err)
	}
	if req.Model != s.Model || !req.Stream || req.System != s.System {
		t.Errorf("request %d: model %q, streams: %t, system %q; want %q and %q", len(all)-1, req.Model, req.Stream, req.System, s.Model, s.System)
	}
	same := func(a, b providertest.Tool) bool {
		return a.Name == b.Name && (a.Description == b.Description || b.Description == "") &&
			jsondiff.Equal(string(a.Schema), string(b.Schema))
	}
	if !slices.EqualFunc(req.Tools, s.Tools, same) {
		t.Errorf("request %d: tools %+v, want %+v", len(all)-1, req.Tools, s.Tools)
	}
	have := signatures(req.Signatures)
	for _, want := range signatures(s.Turns[turn].Steps[step].Signatures) {
		if !slices.Contains(have, want) {
			t.Errorf("request %d does not hand back the signature %.40q of a thought", len(all)-1, want)
		}
	}
}

// signatures decodes signatures, since both alphabets of base64 are in use.
func signatures(in []string) []string {
	var out []string
	for _, s := range in {
		s = strings.NewReplacer("-", "+", "_", "/").Replace(s)
		if b, err := base64.StdEncoding.DecodeString(s); err == nil {
			s = string(b)
		}
		out = append(out, s)
	}
	return out
}

// errorKind is the kind of error that a step has to become, "" for none.
func errorKind(s providertest.Step) model.Kind {
	switch {
	case s.Finish == "PROHIBITED_CONTENT":
		return model.KindBlocked
	case s.Status == 429:
		return model.KindRateLimited
	case s.Status == 401 || s.Status == 403:
		return model.KindAuth
	case s.Status == 400:
		return model.KindInvalid
	case s.Status >= 400:
		return model.KindUnavailable
	default:
		return ""
	}
}

func contentParts(c *genai.Content) []*genai.Part {
	if c == nil {
		return nil
	}
	return c.Parts
}

// parts joins the text or the thoughts of a content.
func parts(c *genai.Content, thoughts bool) string {
	var b strings.Builder
	for _, p := range contentParts(c) {
		if p.Thought == thoughts {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

func squeeze(s string) string { return strings.Join(strings.Fields(s), "") }
