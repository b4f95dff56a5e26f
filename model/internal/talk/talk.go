// Package talk makes conversations at random, and long ones, for tests of wires.
package talk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/encoded"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// Talk is a conversation that grows at random, with what agents, providers and summaries may put into one.
type Talk struct {
	*rand.Rand
	// Contents is what was said so far.
	Contents []*genai.Content
	// Own returns a part with a provider's own data; it may be nil.
	Own func(r *rand.Rand, n int) *genai.Part

	n    int
	open []*genai.FunctionCall // calls without a result
}

// New returns an empty conversation; the same seed makes the same one.
func New(seed uint64, own func(r *rand.Rand, n int) *genai.Part) *Talk {
	return &Talk{Rand: rand.New(rand.NewPCG(seed, 7)), Own: own}
}

// tools are names that wires take, and such as they do not.
var tools = []string{"look", "fs.read", "fs:read", "fs_read", "now", "gone:tool"}

// texts are what is hard to encode.
var texts = []string{"hi", "", " ", "\n\n", "naïve 'text' <a & b> </script>", "\u2028 \" \\ \x01", "two\nlines", "世界"}

// Pick is one of some.
func Pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// Request returns the next request: after something more was said, was summarized, or was not. kept may be nil.
func (t *Talk) Request(kept *encoded.Conversation) *model.Request {
	switch n := len(t.Contents); {
	case n > 4 && t.IntN(8) == 0: // a summary in place of the beginning
		t.Contents = append([]*genai.Content{t.text(genai.RoleUser, "summary")}, t.Contents[t.IntN(n):]...)
	case n > 0 && t.IntN(12) == 0: // what was said last is taken back
		t.Contents = slices.Clone(t.Contents[:t.IntN(n)])
	}
	for range t.IntN(4) {
		t.Contents = append(t.Contents, t.more())
	}
	t.Contents = append(t.Contents, t.text(genai.RoleUser, "next"))
	req := &model.Request{Contents: slices.Clone(t.Contents), Config: t.config(), Encoded: kept}
	if t.IntN(3) == 0 {
		req.Cache = &model.Cache{Key: Pick(t.Rand, "", "k1", "k2")}
	}
	if t.IntN(5) == 0 {
		req.Deferred = []string{"fs.read"}
		req.ToolSearch = t.IntN(2) == 0
	}
	return req
}

// config is made anew for each call, as the engine makes it, and seldom differs.
func (t *Talk) config() *genai.GenerateContentConfig {
	cfg := &genai.GenerateContentConfig{
		SystemInstruction: genai.NewContentFromText("be <brief>: \"messages\":[] \"input\":[]", genai.RoleUser),
		MaxOutputTokens:   100,
		Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{
			{Name: "look", Description: "looks", ParametersJsonSchema: map[string]any{
				"type": "object", "properties": map[string]any{
					"messages": map[string]any{"type": "array", "default": []any{}},
					"input":    map[string]any{"default": []any{}},
				},
			}},
			{Name: "fs.read"},
		}}},
	}
	switch t.IntN(8) {
	case 0:
		of := cfg.Tools[0]
		of.FunctionDeclarations = append(of.FunctionDeclarations, &genai.FunctionDeclaration{Name: "fs:read"})
	case 1:
		cfg.SystemInstruction = nil
	case 2:
		cfg.Tools = nil
	case 3:
		cfg.ThinkingConfig = &genai.ThinkingConfig{ThinkingLevel: genai.ThinkingLevelLow}
	}
	return cfg
}

func (t *Talk) text(role, what string) *genai.Content {
	t.n++
	return genai.NewContentFromText(fmt.Sprint(what, " ", t.n), genai.Role(role))
}

// more is something more that is said.
func (t *Talk) more() *genai.Content {
	switch t.IntN(10) {
	case 0:
		return Pick(t.Rand, nil, &genai.Content{Role: genai.RoleModel},
			&genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{nil}},
			&genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{nil}})
	case 1, 2, 3, 4:
		c := &genai.Content{Role: genai.RoleModel}
		for range 1 + t.IntN(4) {
			c.Parts = append(c.Parts, t.said())
		}
		return c
	default:
		c := &genai.Content{Role: genai.RoleUser}
		for range 1 + t.IntN(3) {
			c.Parts = append(c.Parts, t.user())
		}
		return c
	}
}

func (t *Talk) said() *genai.Part {
	t.n++
	switch t.IntN(6) {
	case 0:
		return &genai.Part{Text: Pick(t.Rand, texts...)}
	case 1:
		return &genai.Part{Text: "foreign", Thought: true, PartMetadata: map[string]any{seam.MetaProvider: "elsewhere"}}
	case 2:
		return &genai.Part{InlineData: &genai.Blob{MIMEType: "image/png", Data: []byte("drawn")}}
	case 3:
		if t.Own != nil {
			return t.Own(t.Rand, t.n)
		}
		fallthrough
	default:
		return t.call()
	}
}

// call is one as the engine stores it.
func (t *Talk) call() *genai.Part {
	own := fmt.Sprint("call_", t.n)
	own = Pick(t.Rand, own, own, "call_0", "call_1", "call/1", "V2bduoFbR", "")
	p := adapter.NewCall(fmt.Sprint("adk-", t.n), Pick(t.Rand, tools...),
		Pick(t.Rand, `{"at": 1, "why":"<a & b>"}`, "", `{"broken`, `[1]`))
	p.PartMetadata[seam.MetaCallID] = own
	t.open = append(t.open, p.FunctionCall)
	return p
}

func (t *Talk) user() *genai.Part {
	t.n++
	switch t.IntN(6) {
	case 0:
		return &genai.Part{Text: Pick(t.Rand, texts...)}
	case 1:
		return &genai.Part{InlineData: &genai.Blob{
			MIMEType: Pick(t.Rand, "image/png", "application/pdf"), Data: []byte("file")}}
	case 2:
		return nil
	default:
		return t.result()
	}
}

func (t *Talk) result() *genai.Part {
	r := &genai.FunctionResponse{ID: Pick(t.Rand, "adk-1", "unknown"), Name: "look"}
	if n := len(t.open); n > 0 {
		r.ID, r.Name = t.open[n-1].ID, t.open[n-1].Name
		t.open = t.open[:n-1]
	}
	r.Response = Pick(t.Rand, map[string]any{"output": fmt.Sprint("r", t.n)}, map[string]any{"error": "no <file>"},
		map[string]any{"output": ""}, nil, map[string]any{"a": 1.5, "b": []any{"x"}})
	if t.IntN(4) == 0 {
		r.Parts = []*genai.FunctionResponsePart{{InlineData: &genai.FunctionResponseBlob{
			MIMEType: "image/png", Data: []byte("shot")}}}
	}
	p := &genai.Part{FunctionResponse: r}
	if t.IntN(6) == 0 {
		p = seam.Refer(p, "fs.read", "unheard")
	}
	return p
}

// Long is a request with a long conversation.
func Long(own func(r *rand.Rand, n int) *genai.Part) *model.Request {
	t := New(1, own)
	for range 80 {
		t.Contents = append(t.Contents, t.more())
	}
	t.Contents = append(t.Contents, t.text(genai.RoleUser, "next"))
	return &model.Request{Contents: t.Contents, Config: Settings()}
}

// Next returns a request with what is kept, and what makes the body of one.
type Next func(kept *encoded.Conversation) (*model.Request, func(*model.Request) ([]byte, error))

// KeptEqual holds the bodies of a conversation's requests with what is kept against those without.
func (t *Talk) KeptEqual(tb testing.TB, requests int, next Next) {
	tb.Helper()
	room := encoded.NewRoom(Pick(t.Rand, int64(1<<20), 1<<20, 2000, 0))
	kept := room.Conversation()
	for n := range requests {
		req, body := next(kept)
		fresh := *req
		fresh.Encoded = nil
		want, wantErr := body(&fresh)
		for range 2 {
			got, err := body(req)
			if !bytes.Equal(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				tb.Fatalf("request %d: with what is kept\n%s, %v\nwithout\n%s, %v", n, got, err, want, wantErr)
			}
		}
	}
	kept.Forget()
	if room.Bytes() != 0 {
		tb.Errorf("%d bytes remain", room.Bytes())
	}
}

// Golden holds JSON against a file, or with update writes the file.
func Golden(t *testing.T, file string, body []byte, update bool) {
	t.Helper()
	var got bytes.Buffer
	if err := json.Indent(&got, append(body, '\n'), "", "  "); err != nil {
		t.Fatal(err)
	}
	if update {
		if err := os.WriteFile(file, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the request differs from %s (rewrite with -update):\n%s", file, got.Bytes())
	}
}

// Round is what a user says, what the model answers, and what its tools return.
func Round(n int) []*genai.Content {
	id := fmt.Sprint("adk-", n)
	call := adapter.NewCall(id, "look", fmt.Sprintf(`{"at":%d,"why":"<a & b>"}`, n))
	call.PartMetadata[seam.MetaCallID] = fmt.Sprint("call_", n)
	return []*genai.Content{
		genai.NewContentFromText(fmt.Sprintf("question %d: naïve 'text' </script>", n), genai.RoleUser),
		{Role: genai.RoleModel, Parts: []*genai.Part{{Text: "let me see"}, call}},
		{Role: genai.RoleUser, Parts: []*genai.Part{{FunctionResponse: &genai.FunctionResponse{
			ID: id, Name: "look", Response: map[string]any{"output": fmt.Sprint("r", n)}}}}},
	}
}

// Settings are those of an agent with a tool, made anew.
func Settings() *genai.GenerateContentConfig {
	return &genai.GenerateContentConfig{
		SystemInstruction: genai.NewContentFromText("be brief", genai.RoleUser),
		MaxOutputTokens:   100,
		Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{
			Name: "look", Description: "looks", ParametersJsonSchema: map[string]any{
				"type": "object", "properties": map[string]any{"at": map[string]any{"type": "integer"}}}}}}},
	}
}
