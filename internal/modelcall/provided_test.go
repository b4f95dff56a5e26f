package modelcall_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/genai"
	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
)

// fixed answers every request with one response.
type fixed struct{ resp *model.Response }

func (f fixed) Generate(context.Context, *model.Request, func(model.Delta)) (*model.Response, error) {
	return f.resp, nil
}

func passed(t interface{ Fatal(...any) }, text string, p *model.Provided) *model.Provided {
	resp := &model.Response{Content: genai.NewContentFromText(text, genai.RoleModel), FinishReason: genai.FinishReasonStop, Provided: p}
	got, err := modelcall.Guard(fixed{resp}, modelcall.Limits{}).Generate(context.Background(), &model.Request{}, func(model.Delta) {})
	if err != nil {
		t.Fatal(err)
	}
	return got.Provided
}

// TestProvidedBounds: whatever an adapter tells comes out bounded, as UTF-8 and
// JSON, and about parts that the text has.
func TestProvidedBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		long := func(name string) string {
			piece := rapid.SampledFrom([]string{"", "x", `{"a":"ü"}`, "\xff", `"`, "🗼", "\n", `{"k":[1,2,3]} `}).Draw(rt, name)
			return strings.Repeat(piece, rapid.SampledFrom([]int{1, 3, 3000, 20000}).Draw(rt, name+" times"))
		}
		p := &model.Provided{}
		for range rapid.SampledFrom([]int{0, 1, 5, 300}).Draw(rt, "uses") {
			p.Uses = append(p.Uses, model.Use{Name: "n"})
		}
		for range rapid.SampledFrom([]int{0, 1, 5, 2000}).Draw(rt, "citations") {
			p.Citations = append(p.Citations, model.Cite{URI: "u"})
		}
		if len(p.Uses) > 0 {
			p.Uses[0] = model.Use{ID: long("id"), Name: long("name"), Input: long("input"), Output: long("output"), Error: long("error")}
		}
		if len(p.Citations) > 0 {
			p.Citations[0] = model.Cite{URI: long("uri"), Title: long("title"), Text: long("text"), Start: rapid.IntRange(-2, 12).Draw(rt, "start"), End: rapid.IntRange(-2, 12).Draw(rt, "end")}
		}
		const text = "a ü 🗼 b"
		got := passed(rt, text, p)
		if got == nil {
			if len(p.Uses)+len(p.Citations) > 0 {
				rt.Fatal("all of it is gone")
			}
			return
		}
		if len(got.Uses) != min(len(p.Uses), seam.MaxUses) || len(got.Citations) != min(len(p.Citations), seam.MaxCitations) {
			rt.Errorf("%d uses of %d and %d citations of %d", len(got.Uses), len(p.Uses), len(got.Citations), len(p.Citations))
		}
		for _, u := range got.Uses {
			for _, v := range []string{u.Input, u.Output} {
				if v != "" && !json.Valid([]byte(v)) || len(v) > 2*seam.MaxUseValue {
					rt.Errorf("%d bytes of %.40q", len(v), v)
				}
			}
			checkTexts(rt, u.ID, u.Name, u.Input, u.Output, u.Error)
		}
		for _, c := range got.Citations {
			checkTexts(rt, c.URI, c.Title, c.Text)
			if (c.Start != 0 || c.End != 0) && (c.Start >= c.End || !utf8.ValidString(text[c.Start:c.End])) {
				rt.Errorf("citation from %d to %d", c.Start, c.End)
			}
		}
	})
}

func checkTexts(t *rapid.T, texts ...string) {
	for _, s := range texts {
		if !utf8.ValidString(s) || len(s) > 2*seam.MaxUseValue {
			t.Errorf("%d bytes of %.40q", len(s), s)
		}
	}
}

// TestProvidedKept: what is within bounds comes out as it is, also a citation of
// all of the text.
func TestProvidedKept(t *testing.T) {
	p := &model.Provided{
		Uses: []model.Use{
			{ID: "1", Name: "web_search", Input: `{"b":1, "a":2}`, Output: `[ ]`},
			{Name: "code_execution", Input: `"` + strings.Repeat("x", seam.MaxUseValue-2) + `"`, Error: "failed"},
		},
		Citations: []model.Cite{{URI: "https://lights.example", Title: "t", Text: "w", Start: 0, End: 5}, {URI: "x", Start: 1, End: 2}},
	}
	got := passed(t, "ü 🗼"[:3]+"ab", p)
	want := *p
	want.Citations = []model.Cite{p.Citations[0], {URI: "x"}} // It would begin in the middle of a letter.
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if !bytes.Equal(a, b) {
		t.Errorf("got %s\nwant %s", a, b)
	}
	long := passed(t, "x", &model.Provided{Uses: []model.Use{{Name: "n", Output: `"` + strings.Repeat("y", seam.MaxUseValue) + `"`}}})
	var head string
	if err := json.Unmarshal([]byte(long.Uses[0].Output), &head); err != nil || !strings.HasPrefix(head, `"yyy`) || !strings.HasSuffix(head, "…") {
		t.Errorf("a long value became %.40s: %v", long.Uses[0].Output, err)
	}
}
