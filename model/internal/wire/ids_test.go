package wire

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/encoded"
	"github.com/apzuk3/agentd/model"
)

// TestKeptNames: names that were kept between requests are those made anew, and while State stays, a name or an id that
// was there before goes out as it went out.
func TestKeptNames(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		kept := encoded.NewRoom(1 << 20).Conversation()
		ids := []string{"e1", "e2", "e3", "e4", "call_0", "call_1", "V2bduoFbR", "call/1", ""}
		tools := []string{"a.b", "a:b", "a_b", "now", "look"}
		pick := func(from []string) string { return from[r.IntN(len(from))] }
		var contents []*genai.Content
		was, state := map[string]string{}, uint64(0)
		stayed := 0
		for range 12 {
			if r.IntN(6) == 0 {
				contents = append([]*genai.Content(nil), contents[r.IntN(len(contents)+1):]...)
			}
			for range r.IntN(3) {
				id := pick(ids)
				if r.IntN(2) == 0 {
					id = fmt.Sprint("adk-", r.IntN(1000))
				}
				part := callPart(id, pick(ids))
				part.FunctionCall.Name = pick(tools)
				contents = append(contents, &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{part}})
			}
			req := &model.Request{Contents: contents, Config: &genai.GenerateContentConfig{Tools: []*genai.Tool{{
				FunctionDeclarations: []*genai.FunctionDeclaration{{Name: pick(tools[:2])}}}}}, Encoded: kept}
			fresh := *req
			fresh.Encoded = nil
			with, without := NewNames(64, req), NewNames(64, &fresh)
			if seed%2 == 0 {
				with, without = with.WithIDs(9), without.WithIDs(9)
			}
			now := map[string]string{}
			for _, id := range ids {
				now["id "+id] = without.ID(id)
				if got := with.ID(id); got != without.ID(id) {
					t.Fatalf("seed %d: id %q goes out as %q, want %q", seed, id, got, without.ID(id))
				}
			}
			for _, name := range tools {
				now["name "+name] = without.Wire(name)
				if got := with.Wire(name); got != without.Wire(name) {
					t.Fatalf("seed %d: name %q goes out as %q, want %q", seed, name, got, without.Wire(name))
				}
			}
			if with.State() == state {
				stayed++
				for key, out := range was {
					if now[key] != out {
						t.Fatalf("seed %d: %s was %q, is %q in the same state", seed, key, out, now[key])
					}
				}
			}
			was, state = now, with.State()
			with.Leave(req)
		}
		if seed == 0 && stayed == 0 {
			t.Error("the state never stays")
		}
	}
}
