package adkbridge

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"
	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/internal/encoded"
)

// TestPromptProperties plays random histories, valid or not: a prompt that was
// built step by step is the one built at once, is valid, and what was handed out
// does not change.
func TestPromptProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		agents := []string{"a", "b", "c"}
		branches := []string{"", "p.a", "p.b", "p.b.q.c"}
		h := newHistory()
		type handed struct {
			text, key string
			contents  []*genai.Content
		}
		var out []handed
		var open []*genai.FunctionCall
		var authors []string
		id := 0
		for seq := range rapid.IntRange(0, 40).Draw(t, "events") {
			it := &item{seq: int64(seq + 1), author: rapid.SampledFrom(append(agents, user)).Draw(t, "author"), branch: rapid.SampledFrom(branches).Draw(t, "branch")}
			switch kind := rapid.IntRange(0, 4).Draw(t, "kind"); {
			case it.author == user:
				it.branch, it.content = "", genai.NewContentFromText(fmt.Sprint("prompt ", seq), "user")
			case kind == 0:
				it.content = &genai.Content{Role: "model"}
			case kind == 1 || kind == 2 && len(open) == 0:
				it.content = genai.NewContentFromText(fmt.Sprint("text ", seq), "model")
			case kind == 2: // some open calls of one author get their results
				it.author, it.content = authors[0], &genai.Content{Role: "user"}
				for i := range open {
					if authors[i] == it.author && rapid.Bool().Draw(t, "answered") {
						it.content.Parts = append(it.content.Parts, responsePart(open[i], map[string]any{}))
					}
				}
			default:
				it.content = &genai.Content{Role: "model"}
				for range rapid.IntRange(1, 3).Draw(t, "calls") {
					id++
					call := &genai.FunctionCall{ID: fmt.Sprint("call_", id), Name: "t", Args: map[string]any{}}
					open, authors = append(open, call), append(authors, it.author)
					it.content.Parts = append(it.content.Parts, &genai.Part{FunctionCall: call})
				}
			}
			h.add(it, 1)
			if rapid.Bool().Draw(t, "ask") {
				agent, branch := rapid.SampledFrom(agents).Draw(t, "agent"), rapid.SampledFrom(branches).Draw(t, "asking")
				contents := h.prompt(agent, branch, 0)
				checkValid(t, contents)
				out = append(out, handed{compact(contents), agent + "|" + branch, contents})
			}
		}
		for _, o := range out {
			if compact(o.contents) != o.text {
				t.Fatalf("a prompt that was handed out has changed:\n%s\n%s", o.text, compact(o.contents))
			}
		}
		// Closing the history decides the order; without it, order of asking is free.
		if slices.ContainsFunc(out, func(o handed) bool { return strings.Contains(o.text, lostText) }) {
			return
		}
		for _, agent := range agents {
			for _, branch := range branches {
				fresh := newHistory()
				fresh.items = h.items
				if got, want := compact(h.prompt(agent, branch, 0)), compact(fresh.prompt(agent, branch, 0)); got != want {
					t.Fatalf("%s|%s: step by step\n%s\nat once\n%s", agent, branch, got, want)
				}
			}
		}
	})
}

// TestLateEvents: an event that is added late appears in its place.
func TestLateEvents(t *testing.T) {
	h := newHistory()
	text := func(seq int64, author, s string) *item {
		return &item{seq: seq, author: author, content: genai.NewContentFromText(s, "model")}
	}
	h.add(text(1, "a", "one"), 1)
	h.add(text(4, "a", "four"), 1)
	before := h.prompt("a", "", 0)
	h.add(text(2, "b", "two"), 1)
	h.add(text(3, "a", "three"), 1)
	if got := transcript(h.prompt("a", "", 0)); got != "model: one\nuser: For context: [b] said: two\nmodel: three\nmodel: four\nuser: "+continueText+"\n" {
		t.Errorf("prompt\n%s", got)
	}
	if len(before) != 3 || before[1].Parts[0].Text != "four" {
		t.Errorf("the old prompt has changed:\n%s", transcript(before))
	}
}

func TestVisible(t *testing.T) {
	for _, tc := range []struct {
		mine, other string
		want        bool
	}{
		{"", "p.a", true}, {"p.a", "", true}, {"p.a", "p.a", true}, {"p.a.q.b", "p.a", true},
		{"p.a", "p.a.q.b", false}, {"p.a", "p.b", false}, {"p.aa", "p.a", false},
	} {
		if got := visible(tc.mine, tc.other); got != tc.want {
			t.Errorf("visible(%q, %q) = %v", tc.mine, tc.other, got)
		}
	}
}

func TestCache(t *testing.T) {
	sized := func(n int, upto int64) *history {
		h := newHistory()
		h.bytes, h.upto = n, upto
		return h
	}
	c := newCache(2, 100)
	a, b := sized(10, 5), sized(20, 5)
	c.put(cacheKey{id: "a"}, a)
	c.put(cacheKey{id: "b"}, b)
	if c.take(cacheKey{id: "a"}, 6) != a || c.take(cacheKey{id: "a"}, 6) == a {
		t.Error("a history is taken once")
	}
	c.put(cacheKey{id: "a"}, a)
	c.put(cacheKey{id: "c"}, sized(1, 1)) // drops b, the least recently used
	if got := c.take(cacheKey{id: "b"}, 6); got == b || got.upto != 0 {
		t.Error("b is still there")
	}
	c.put(cacheKey{id: "big"}, sized(101, 1))
	if c.entries.Contains(cacheKey{id: "big"}) || !c.entries.Contains(cacheKey{id: "a"}) {
		t.Error("a history above the bound is kept")
	}
	c.put(cacheKey{id: "d"}, sized(95, 1)) // drops by size
	if c.entries.Contains(cacheKey{id: "a"}) || !c.entries.Contains(cacheKey{id: "c"}) || c.bytes != 96 {
		t.Errorf("%d entries, %d bytes", c.entries.Len(), c.bytes)
	}
	c.put(cacheKey{id: "c"}, a)
	if c.take(cacheKey{id: "c"}, 5) == a {
		t.Error("a history that knows the turn already is used")
	}
	if c.put(cacheKey{id: "d"}, sized(3, 1)); c.bytes != 3 || c.entries.Len() != 1 {
		t.Errorf("%d entries, %d bytes", c.entries.Len(), c.bytes)
	}
}

// TestKeptRequests: what is kept of requests is memory of a session, and no part of its next request; it goes with the
// prompt that it is of.
func TestKeptRequests(t *testing.T) {
	h := newHistory()
	h.add(&item{seq: 1, author: user, content: genai.NewContentFromText("hello", genai.RoleUser)}, 100)
	contents, kept := h.request("a", "", 0)
	pieces := func(*genai.Content) ([]encoded.Piece, error) { return []encoded.Piece{{JSON: make([]byte, 1000)}}, nil }
	if _, err := kept.Pieces("wire", contents, pieces); err != nil {
		t.Fatal(err)
	}
	if size, memory := h.size(), h.memory(); size != 100 || memory < 1100 {
		t.Errorf("the size is %d and the memory %d", size, memory)
	}
	if _, again := h.request("a", "", 0); again != kept {
		t.Error("the next request of the same prompt has something else")
	}
	c := newCache(10, 1000)
	if c.put(cacheKey{id: "s"}, h); c.entries.Len() != 0 {
		t.Error("a history that takes more than there may be is kept")
	}
	h.prune(func(string) bool { return false })
	if memory := h.memory(); memory != 100 {
		t.Errorf("the memory is %d once the prompt is gone", memory)
	}
}
