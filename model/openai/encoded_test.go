package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/encoded"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/internal/talk"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// bodyOf is the body of a request, and what keeps it from being one.
func bodyOf(l *llm, req *model.Request) ([]byte, error) {
	names := wire.NewNames(maxToolName, req)
	defer names.Leave(req)
	body := l.chatBody
	if l.cfg.API == Responses {
		body = l.responsesBody
	}
	b, err := body(req, names)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(b.Reader())
	if err == nil && (int64(len(data)) != b.Len() || !json.Valid(data)) {
		err = fmt.Errorf("%d bytes of %d, valid: %t: %s", len(data), b.Len(), json.Valid(data), data)
	}
	return data, err
}

// sentMessage is a message on chat completions.
type sentMessage struct {
	Role             string   `json:"role"`
	Content          any      `json:"content"`
	ReasoningContent string   `json:"reasoning_content"`
	Reasoning        string   `json:"reasoning"`
	ReasoningDetails []detail `json:"reasoning_details"`
}

func sentMessages(t *testing.T, l *llm, req *model.Request) []sentMessage {
	t.Helper()
	body, err := bodyOf(l, req)
	if err != nil {
		t.Fatal(err)
	}
	var sent struct{ Messages []sentMessage }
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatal(err)
	}
	return sent.Messages
}

// endpoints are the servers of random conversations.
var endpoints = []Config{
	{API: Responses}, {API: Responses}, {API: Responses, BaseURL: "http://127.0.0.1:1/v1"},
	{API: Chat}, {API: Chat, BaseURL: "http://127.0.0.1:1/v1"}, {API: Chat, BaseURL: "http://127.0.0.1:1/v1"},
	{API: Chat, BaseURL: "https://api.mistral.ai/v1"}, {API: Chat, BaseURL: "https://api.deepseek.com/v1"},
}

// ownParts are parts with data of the server that a conversation is with most of the time.
func ownParts(of *llm) func(r *rand.Rand, n int) *genai.Part {
	return func(r *rand.Rand, n int) *genai.Part {
		p := &genai.Part{Thought: r.IntN(3) > 0, Text: talk.Pick(r, "hm", "", "<&>"), PartMetadata: owned(of.owner, "")}
		p.PartMetadata[seam.MetaModel] = talk.Pick(r, of.model, "another")
		if r.IntN(2) == 0 {
			p.PartMetadata[seam.MetaAccount] = talk.Pick(r, of.account, "another")
		}
		chat := []string{
			"reasoning_content", "reasoning", `{"google":{"thought_signature": "x<y"}}`, `[{"type":"reasoning.text","text":"<t>", "format":"anthropic-claude-v1"}]`,
			fmt.Sprintf(`[{"type":"reasoning.encrypted","data":"x","format":"openai-responses-v1","id":"call_%d"},{"type":"x","id":"call_0"}]`, n+1-r.IntN(6)),
		}
		responses := []string{
			`{"type":"reasoning","id":"rs_1","status":null,"summary":[ ],"encrypted_content":"ZW5j"}`, `{"type":"reasoning","id":"rs_2"}`, `{"phase":"final_answer"}`,
			`{"type":"web_search_call","id":"ws_1","action":{"query":"<x>"}}`, `{"type":"code_interpreter_call","id":"ci"}`, `{"type":"tool_search_call","arguments":"{}"}`,
			`{"type":"x_call","encrypted_content":"ZW5j"}`, `{"namespace":"ns"}`,
		}
		opaque := talk.Pick(r, chat...)
		if r.IntN(2) == 0 && of.cfg.API != Chat || of.cfg.API == Responses {
			opaque, p.PartMetadata[seam.MetaProvider] = talk.Pick(r, responses...), responsesOwner
		}
		p.PartMetadata[seam.MetaOpaque] = opaque
		if r.IntN(4) == 0 {
			p.FunctionCall, p.Thought = &genai.FunctionCall{ID: fmt.Sprint("adk-", n), Name: "look"}, false
			p.PartMetadata[seam.MetaCallID] = fmt.Sprint("call_", n)
		}
		return p
	}
}

// random opens a server of random conversations, most of the time the one that is the seed's.
func random(t *testing.T, r *rand.Rand, seed uint64) *llm {
	t.Helper()
	cfg, name := endpoints[seed%uint64(len(endpoints))], "acme/one"
	switch r.IntN(10) {
	case 0:
		cfg = talk.Pick(r, endpoints...)
	case 1:
		name = talk.Pick(r, "gpt-5", "acme/two", "maker/one")
	}
	return openFor(t, cfg, name)
}

// keptEqual holds the requests of a random conversation with what is kept against those without.
func keptEqual(t *testing.T, seed uint64, requests int) {
	t.Helper()
	first := openFor(t, endpoints[seed%uint64(len(endpoints))], "acme/one")
	conversation := talk.New(seed, ownParts(first))
	t.Logf("seed %d", seed)
	conversation.KeptEqual(t, requests, func(kept *encoded.Conversation) (
		*model.Request, func(*model.Request) ([]byte, error),
	) {
		req := conversation.Request(kept).Load()
		l := random(t, conversation.Rand, seed)
		return req, func(req *model.Request) ([]byte, error) { return bodyOf(l, req) }
	})
}

// TestEncodedOnce: what is sent is the same, byte for byte, whether anything is kept between calls or not.
func TestEncodedOnce(t *testing.T) {
	for seed := range uint64(100) {
		keptEqual(t, seed, 12)
	}
	for seed := range uint64(len(endpoints)) {
		keptEqual(t, 1000+seed, 60)
	}
}

// TestTalk: a long conversation of everything that there may be in one is what it was when requests were encoded whole.
func TestTalk(t *testing.T) {
	for name, cfg := range map[string]Config{
		"chat": {API: Chat, BaseURL: "http://127.0.0.1:1/v1"}, "mistral": {API: Chat, BaseURL: "https://api.mistral.ai/v1"},
		"deepseek": {API: Chat, BaseURL: "https://api.deepseek.com/v1"}, "responses": {API: Responses},
	} {
		l := openFor(t, cfg, "acme/one")
		body, err := bodyOf(l, talk.Long(ownParts(l)))
		if err != nil {
			t.Fatal(err)
		}
		talk.Golden(t, filepath.Join("testdata", name+"_talk.golden.json"), body, *update)
	}
}

// TestDetailsOfATurn: details of thinking name the calls of their turn, which may be in another content of it.
func TestDetailsOfATurn(t *testing.T) {
	l := openFor(t, Config{API: Chat}, "acme/one")
	kept := encoded.NewRoom(1 << 20).Conversation()
	call := func(id string) *genai.Part {
		return &genai.Part{FunctionCall: &genai.FunctionCall{ID: id, Name: "f"}, PartMetadata: map[string]any{seam.MetaCallID: "call_0"}}
	}
	contents := []*genai.Content{
		user(text("hi")), resultOf(&genai.Part{Thought: true, PartMetadata: owned(l.owner, `[{"type":"x","id":"call_0"}]`)}),
	}
	for n, want := range []string{`"call_0"`, `"call_0"`, `"e2"`} {
		req := &model.Request{Contents: contents, Config: &genai.GenerateContentConfig{}, Encoded: kept}
		if n == 0 {
			req.Contents = append(slices.Clone(contents), resultOf(call("call_0")))
		}
		for _, m := range sentMessages(t, l, req) {
			for _, d := range m.ReasoningDetails {
				if string(d["id"]) != want {
					t.Errorf("request %d: the detail names %s, want %s", n, d["id"], want)
				}
			}
		}
		switch n {
		case 0:
			contents = append(contents, resultOf(call("e2")))
		case 1:
			contents = append(contents, user(result("e2", nil)), resultOf(call("e3")), user(result("e3", nil)))
		}
	}
}

func FuzzEncoded(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { keptEqual(t, seed, 15) })
}

// TestEncodedAtOnce: calls of one conversation at the same time send what they send one after another.
func TestEncodedAtOnce(t *testing.T) {
	var contents []*genai.Content
	for n := range 40 {
		contents = append(contents, talk.Round(n)...)
	}
	for _, api := range []API{Chat, Responses} {
		l := openFor(t, Config{API: api}, "acme/one")
		room := encoded.NewRoom(1 << 20)
		kept := room.Conversation()
		var group sync.WaitGroup
		for g := range 4 {
			group.Go(func() {
				for n := range 40 {
					req := &model.Request{Contents: contents[:3*(1+(n+10*g)%40)], Config: talk.Settings(), Encoded: kept}
					fresh := *req
					fresh.Encoded = nil
					want, err := bodyOf(l, &fresh)
					got, gotErr := bodyOf(l, req)
					if err != nil || gotErr != nil || !bytes.Equal(got, want) {
						t.Errorf("%s: got\n%s, %v\nwant\n%s, %v", api, got, gotErr, want, err)
					}
				}
			})
		}
		group.Wait()
		if kept.Forget(); room.Bytes() != 0 {
			t.Errorf("%d bytes remain", room.Bytes())
		}
	}
}

// TestEncodedIsKept: of a conversation that grows, only what is new is encoded.
func TestEncodedIsKept(t *testing.T) {
	for _, cfg := range endpoints {
		l := openFor(t, cfg, "gpt-5")
		kept := encoded.NewRoom(1 << 24).Conversation()
		var contents []*genai.Content
		request := func() *model.Request {
			return &model.Request{Contents: contents, Config: talk.Settings(), Encoded: kept}
		}
		for n := range 50 {
			contents = append(contents, talk.Round(n)...)
			if _, err := bodyOf(l, request()); err != nil {
				t.Fatal(err)
			}
		}
		names := wire.NewNames(maxToolName, request())
		of := fmt.Sprintf("chat/%s/%s/%s", l.cfg.BaseURL, l.model, l.account)
		pieces := fmt.Sprintf("%s/%d", of, names.State())
		if cfg.API == Responses {
			of = fmt.Sprintf("responses/%s/%s/%s", l.cfg.BaseURL, l.model, l.account)
			pieces = fmt.Sprintf("%s/%d/false", of, names.State())
		}
		if _, known := kept.Settings(wire.SettingsKey(of, request(), names), talk.Settings()); !known {
			t.Errorf("%+v: the settings are not kept", cfg)
		}
		if _, err := kept.Pieces(pieces, contents, func(c *genai.Content) ([]encoded.Piece, error) {
			return nil, fmt.Errorf("%v is not kept", c.Parts[0])
		}); err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// BenchmarkRequest makes a call at the end of a conversation of so many rounds, to a server that reads and refuses.
func BenchmarkRequest(b *testing.B) {
	for _, api := range []API{Chat, Responses} {
		for _, rounds := range []int{10, 1000} {
			var contents []*genai.Content
			for n := range rounds {
				contents = append(contents, talk.Round(n)...)
			}
			for _, kept := range []*encoded.Conversation{encoded.NewRoom(64 << 20).Conversation(), nil} {
				b.Run(fmt.Sprintf("%s/kept=%t/rounds=%d", api, kept != nil, rounds), func(b *testing.B) {
					l := openFor(b, Config{API: api, Transport: refusing}, "gpt-5")
					b.ReportAllocs()
					for b.Loop() {
						req := &model.Request{Contents: contents, Config: talk.Settings(), Encoded: kept}
						_, _ = l.Generate(context.Background(), req, func(model.Delta) {}) // the server refuses all
					}
				})
			}
		}
	}
}

var refusing = roundTrip(func(r *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, r.Body)
	return &http.Response{StatusCode: http.StatusBadRequest, Body: http.NoBody, Request: r}, err
})
