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
			asked := ids
			if seed%3 == 0 { // an id that is asked for and is no call's is another matter
				asked = nil
				for c := range calls(contents) {
					asked = append(asked, c.FunctionCall.ID)
				}
			}
			for _, id := range asked {
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
					if again, ok := now[key]; ok && again != out {
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

// TestShortIDTaken: an id of one length that a later call brings along is that call's, and the state says that another
// one goes out as something else.
func TestShortIDTaken(t *testing.T) {
	kept := encoded.NewRoom(1 << 20).Conversation()
	req := &model.Request{Config: &genai.GenerateContentConfig{}, Encoded: kept,
		Contents: []*genai.Content{{Role: genai.RoleModel, Parts: []*genai.Part{callPart("e1", "")}}}}
	n := NewNames(64, req).WithIDs(9)
	short, state := n.ID("e1"), n.State()
	n.Leave(req)
	req.Contents = append(req.Contents, &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{callPart("e2", short)}})
	n = NewNames(64, req).WithIDs(9)
	if n.ID("e2") != short || n.ID("e1") == short || n.State() == state {
		t.Errorf("e1 goes out as %q, e2 as %q, %q is taken; the state is %d, was %d", n.ID("e1"), n.ID("e2"), short, n.State(), state)
	}
}
