package anthropic

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/encoded"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/internal/talk"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// bodyOf is the body of a request, and what keeps it from being one.
func bodyOf(modelName string, req *model.Request) ([]byte, error) {
	names := wire.NewNames(maxToolName, req)
	defer names.Leave(req)
	p, err := newPrompt(modelName, req, names)
	if err != nil {
		return nil, err
	}
	b, err := p.body(nil, "")
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(b.Reader())
	if err == nil && (int64(len(data)) != b.Len() || !json.Valid(data)) {
		err = fmt.Errorf("%d bytes of %d, valid: %t: %s", len(data), b.Len(), json.Valid(data), data)
	}
	return data, err
}

// ownParts are parts with Anthropic's own data.
func ownParts(r *rand.Rand, n int) *genai.Part {
	of := fmt.Sprint(max(0, n-r.IntN(3)))
	opaque := func(json string) *genai.Part { return &genai.Part{PartMetadata: owned(json)} }
	switch r.IntN(7) {
	case 0, 1:
		return opaque(`{"type":"server_tool_use","id":"srv` + of + `","name":"web_search","input":{"q":"<x>"}}`)
	case 2:
		return opaque(`{"type":"web_search_tool_result","tool_use_id":"srv` + of + `","content":[ ]}`)
	case 3:
		return opaque(`{"type":"tool_search_tool_result","tool_use_id":"srv` + of + `","content":{"tool_references":[{"tool_name":"` +
			talk.Pick(r, "fs_read", "unheard") + `"}]}}`)
	case 4:
		p := &genai.Part{Thought: true, Text: "hm", ThoughtSignature: []byte("sig"), PartMetadata: owned(nil)}
		p.PartMetadata[seam.MetaModel] = talk.Pick(r, "claude-sonnet-4-5", "claude-haiku-5-5")
		return p
	case 5:
		return &genai.Part{Thought: true, PartMetadata: owned(`{"type":"redacted_thinking","data":"xyz"}`)}
	default:
		return &genai.Part{Text: "found", PartMetadata: owned(`[{"type":"web_search_result_location","url":"u"}]`)}
	}
}

// keptEqual holds the requests of a random conversation with what is kept against those without.
func keptEqual(t *testing.T, seed uint64, requests int) {
	t.Helper()
	conversation := talk.New(seed, ownParts)
	t.Logf("seed %d", seed)
	conversation.KeptEqual(t, requests, func(kept *encoded.Conversation) (
		*model.Request, func(*model.Request) ([]byte, error),
	) {
		req := conversation.Request(kept)
		name := talk.Pick(conversation.Rand, "claude-sonnet-4-5", "claude-sonnet-4-5", "claude-sonnet-4-5", "claude-haiku-5-5")
		if conversation.IntN(8) == 0 {
			req.Config.ThinkingConfig = &genai.ThinkingConfig{ThinkingBudget: new(int32(0))}
		}
		return req, func(req *model.Request) ([]byte, error) { return bodyOf(name, req) }
	})
}

// TestEncodedOnce: what is sent is the same, byte for byte, whether anything is kept between calls or not.
func TestEncodedOnce(t *testing.T) {
	for seed := range uint64(100) {
		keptEqual(t, seed, 12)
	}
	keptEqual(t, 1000, 150)
}

// TestTalk: a long conversation of everything that there may be in one is what it was when requests were encoded whole.
func TestTalk(t *testing.T) {
	req := talk.Long(ownParts)
	req.Cache = &model.Cache{}
	body, err := bodyOf("claude-sonnet-4-5", req)
	if err != nil {
		t.Fatal(err)
	}
	talk.Golden(t, filepath.Join("testdata", "talk.golden.json"), body, *update)
}

func FuzzEncoded(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { keptEqual(t, seed, 15) })
}

// TestEncodedIsKept: of a conversation that grows, only what is new is encoded.
func TestEncodedIsKept(t *testing.T) {
	room := encoded.NewRoom(1 << 24)
	kept := room.Conversation()
	var contents []*genai.Content
	for n := range 50 {
		contents = append(contents, talk.Round(n)...)
		req := &model.Request{Contents: contents, Config: talk.Settings(), Encoded: kept, Cache: &model.Cache{}}
		if _, err := bodyOf("claude-sonnet-4-5", req); err != nil {
			t.Fatal(err)
		}
	}
	names := wire.NewNames(maxToolName, &model.Request{Contents: contents, Config: talk.Settings(), Encoded: kept})
	wireName := fmt.Sprintf("%s/claude-sonnet-4-5/%d", name, names.State())
	if _, err := kept.Pieces(wireName, contents, func(c *genai.Content) ([]encoded.Piece, error) {
		return nil, fmt.Errorf("%v is not kept", c.Parts[0])
	}); err != nil {
		t.Error(err)
	}
	req := &model.Request{Contents: contents, Config: talk.Settings(), Encoded: kept, Cache: &model.Cache{}}
	if _, known := kept.Settings(wire.SettingsKey(name+"/claude-sonnet-4-5", req, names), talk.Settings()); !known {
		t.Error("the settings are not kept")
	}
}

// BenchmarkRequest makes a call at the end of a conversation of so many rounds, to a server that reads and refuses.
func BenchmarkRequest(b *testing.B) {
	for _, rounds := range []int{10, 1000} {
		var contents []*genai.Content
		for n := range rounds {
			contents = append(contents, talk.Round(n)...)
		}
		for _, kept := range []*encoded.Conversation{encoded.NewRoom(64 << 20).Conversation(), nil} {
			b.Run(fmt.Sprintf("kept=%t/rounds=%d", kept != nil, rounds), func(b *testing.B) {
				m, err := New(Config{APIKey: "k", Transport: refusing{}}).Open("claude-sonnet-4-5", "")
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					req := &model.Request{Contents: contents, Config: talk.Settings(), Encoded: kept, Cache: &model.Cache{}}
					_, _ = m.LLM.Generate(context.Background(), req, func(model.Delta) {}) // the server refuses all
				}
			})
		}
	}
}

type refusing struct{}

func (refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, r.Body)
	return &http.Response{StatusCode: http.StatusBadRequest, Body: http.NoBody, Request: r}, err
}
