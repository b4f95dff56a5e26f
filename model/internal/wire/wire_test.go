package wire

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"
	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
)

// declare is a request that declares tools of the given names.
func declare(names ...string) *model.Request {
	tool := &genai.Tool{}
	for _, n := range names {
		tool.FunctionDeclarations = append(tool.FunctionDeclarations, &genai.FunctionDeclaration{Name: n})
	}
	return &model.Request{Config: &genai.GenerateContentConfig{Tools: []*genai.Tool{tool}}}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("x", 63) + "."
	for _, c := range []struct {
		names []string
		want  map[string]string
	}{
		{[]string{"greet", "Add_2-b"}, map[string]string{"greet": "greet", "Add_2-b": "Add_2-b"}},
		{[]string{"fs.read"}, map[string]string{"fs.read": "fs_read"}},
		{[]string{"fs.read", "fs_read"}, map[string]string{"fs.read": "fs_read_4074bc02", "fs_read": "fs_read"}},
		{[]string{"a.b", "a:b"}, map[string]string{"a.b": "a_b_2e7336dc", "a:b": "a_b_6783a31e"}},
		{[]string{long}, map[string]string{long: strings.Repeat("x", 63) + "_"}},
		{[]string{""}, map[string]string{"": "_"}},
	} {
		n := NewNames(64, declare(c.names...))
		for name, want := range c.want {
			if got := n.Wire(name); got != want {
				t.Errorf("%q among %q goes out as %q, want %q", name, c.names, got, want)
			}
			if got := n.Original(n.Wire(name)); got != name {
				t.Errorf("%q comes back as %q", name, got)
			}
		}
	}
	if got := NewNames(64, declare("a.b")).Original("made_up"); got != "made_up" {
		t.Errorf("a name that the model made up comes back as %q", got)
	}
}

// TestNamesProperties: the mapping is reversible, acceptable to the wire and
// independent of the order of the names.
func TestNamesProperties(t *testing.T) {
	ok := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,20}$`)
	rapid.Check(t, func(rt *rapid.T) {
		list := rapid.SliceOfDistinct(rapid.StringMatching(`[ab._:-]{0,24}|a_[0-9a-f]{8}`), rapid.ID).Draw(rt, "names")
		n := NewNames(20, declare(list...))
		reversed := slices.Clone(list)
		slices.Reverse(reversed)
		other := NewNames(20, declare(reversed...))
		for _, name := range list {
			w := n.Wire(name)
			if !ok.MatchString(w) {
				rt.Fatalf("%q goes out as %q", name, w)
			}
			if n.Original(w) != name {
				rt.Fatalf("%q goes out as %q and comes back as %q", name, w, n.Original(w))
			}
			if other.Wire(name) != w {
				rt.Fatalf("%q goes out as %q or %q, by the order of the tools", name, w, other.Wire(name))
			}
		}
	})
}

func callPart(id, own string) *genai.Part {
	p := &genai.Part{FunctionCall: &genai.FunctionCall{ID: id, Name: "f"}}
	if own != "" {
		p.PartMetadata = map[string]any{seam.MetaCallID: own}
	}
	return p
}

func TestIDs(t *testing.T) {
	for name, c := range map[string]struct {
		parts []*genai.Part
		want  map[string]string
	}{
		"the provider's own":     {[]*genai.Part{callPart("e1", "call_a"), callPart("e2", "call_b")}, map[string]string{"e1": "call_a", "e2": "call_b"}},
		"none":                   {[]*genai.Part{callPart("e1", "")}, map[string]string{"e1": "e1", "unknown": "unknown"}},
		"used twice":             {[]*genai.Part{callPart("e1", "call_0"), callPart("e2", "call_0"), callPart("e3", "call_1")}, map[string]string{"e1": "e1", "e2": "e2", "e3": "call_1"}},
		"that of another":        {[]*genai.Part{callPart("e1", "e2"), callPart("e2", "")}, map[string]string{"e1": "e1", "e2": "e2"}},
		"not rewritten":          {[]*genai.Part{callPart("call_a", "call_a")}, map[string]string{"call_a": "call_a"}},
		"refused by others":      {[]*genai.Part{callPart("e1", "call/1"), callPart("e2", strings.Repeat("x", 41))}, map[string]string{"e1": "e1", "e2": "e2"}},
		"the first keeps its id": {[]*genai.Part{callPart("x", "x"), callPart("e2", "x")}, map[string]string{"x": "x", "e2": "e2"}},
	} {
		n := NewNames(64, &model.Request{Config: &genai.GenerateContentConfig{}, Contents: []*genai.Content{{Role: genai.RoleModel, Parts: c.parts}}})
		for id, want := range c.want {
			if got := n.ID(id); got != want {
				t.Errorf("%s: %q goes out as %q, want %q", name, id, got, want)
			}
		}
	}
}

// TestIDsOfLength: on a wire with ids of one length each call has its own, a fine one
// stays, and what a call goes out with does not depend on calls that follow.
func TestIDsOfLength(t *testing.T) {
	first := map[string]string{}
	parts := []*genai.Part{callPart("e1", "V2bduoFbR"), callPart("e2", "toolu_01A"), callPart("e3", ""), callPart("e4", "call_0"), callPart("e5", "call_0")}
	for i := range 2000 {
		parts = append(parts, callPart(fmt.Sprintf("adk-%d", i), ""))
	}
	for _, some := range [][]*genai.Part{parts[:5], parts} {
		n := NewNames(64, &model.Request{Config: &genai.GenerateContentConfig{}, Contents: []*genai.Content{{Role: genai.RoleModel, Parts: some}}}).WithIDs(9)
		seen := map[string]bool{}
		for _, p := range some {
			id := p.FunctionCall.ID
			got := n.ID(id)
			if !regexp.MustCompile(`^[a-zA-Z0-9]{9}$`).MatchString(got) || seen[got] || id == "e1" && got != "V2bduoFbR" || first[id] != "" && got != first[id] {
				t.Errorf("%s goes out as %q, before as %q", id, got, first[id])
			}
			seen[got], first[id] = true, got
		}
	}
	// Of two ids with one hash, the second gets another.
	taken := idMap{"a": "x", "b": "x"}.ofLength(9)
	if taken["a"] == taken["b"] {
		t.Errorf("two calls go out as %q", taken["a"])
	}
}

func TestSpans(t *testing.T) {
	result := func(id string) *genai.Part {
		return &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: id}}
	}
	text := func(s string) *genai.Part { return &genai.Part{Text: s} }
	contents := []*genai.Content{
		nil,
		{Role: genai.RoleUser, Parts: []*genai.Part{text("a")}},
		{Role: genai.RoleModel},
		{Role: genai.RoleUser, Parts: []*genai.Part{text("b"), nil}},
		{Role: genai.RoleModel, Parts: []*genai.Part{text("c")}},
		{Role: genai.RoleModel, Parts: []*genai.Part{text("d")}},
		{Role: genai.RoleUser, Parts: []*genai.Part{result("1"), text("e")}},
		{Role: genai.RoleUser, Parts: []*genai.Part{text("f"), result("2")}},
	}
	var got []string
	for turn := range Spans(contents) {
		var b strings.Builder
		if turn.Model {
			b.WriteString("model:")
		}
		for _, c := range contents[turn.From:turn.To] {
			for _, p := range c.Parts {
				switch {
				case p == nil:
				case p.FunctionResponse != nil:
					b.WriteString(p.FunctionResponse.ID)
				default:
					b.WriteString(p.Text)
				}
			}
		}
		got = append(got, b.String())
	}
	if want := []string{"ab", "model:cd", "1ef2"}; !slices.Equal(got, want) {
		t.Errorf("turns %q, want %q", got, want)
	}
}

func TestProviderTools(t *testing.T) {
	cfg := &genai.GenerateContentConfig{Tools: []*genai.Tool{
		nil,
		{GoogleSearch: &genai.GoogleSearch{ExcludeDomains: []string{"a.example"}}},
		{URLContext: &genai.URLContext{}, CodeExecution: &genai.ToolCodeExecution{}},
	}}
	asked, other := ProviderTools(cfg)
	if asked.Search == nil || !slices.Equal(asked.Search.Excluded, []string{"a.example"}) || asked.Code || asked.URLs {
		t.Errorf("asked for %+v", asked)
	}
	if want := []string{"code_execution", "url_context"}; !slices.Equal(other, want) {
		t.Errorf("other tools %q, want %q", other, want)
	}
	if asked, other := ProviderTools(cfg, "code_execution"); !asked.Code || asked.URLs || !slices.Equal(other, []string{"url_context"}) {
		t.Errorf("asked for %+v, other tools %q", asked, other)
	}
	if asked, other := ProviderTools(declare("f").Config); asked != (Asked{}) || other != nil {
		t.Errorf("functions alone ask for %v, %v", asked, other)
	}
}

func TestFloat(t *testing.T) {
	for f, want := range map[float32]string{0.7: "0.7", 0: "0", 1: "1", 0.1: "0.1", 1e-7: "1e-07"} {
		if got := fmt.Sprint(Float(f)); got != want {
			t.Errorf("Float(%v) = %s, want %s", f, got, want)
		}
	}
}

func TestBound(t *testing.T) {
	resp := &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(zeroes{})}
	bound(resp)
	n, err := io.Copy(io.Discard, resp.Body)
	if n != maxResponse || err == nil {
		t.Errorf("read %d bytes of an endless answer with error %v, want %d and an error", n, err, int64(maxResponse))
	}
}

// The body of an error ends early, and without an error.
func TestBoundOfAnError(t *testing.T) {
	resp := &http.Response{StatusCode: http.StatusBadRequest, Body: io.NopCloser(zeroes{})}
	bound(resp)
	if n, err := io.Copy(io.Discard, resp.Body); n != maxRefusal || err != nil {
		t.Errorf("read %d bytes of an endless error: %v, want %d", n, err, maxRefusal)
	}
}

// zeroes is endless.
type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { return len(p), nil }
