package adapter_test

import (
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

func TestParseArgs(t *testing.T) {
	for text, want := range map[string]map[string]any{
		"":                          {},
		" \n":                       {},
		"null":                      {},
		"{}":                        {},
		`{"a":1,"b":{"c":[true]}}`:  {"a": json.Number("1"), "b": map[string]any{"c": []any{true}}},
		`{"n":9007199254740993}`:    {"n": json.Number("9007199254740993")},
		`{"n":0.30000000000000004}`: {"n": json.Number("0.30000000000000004")},
		` {"s":"}{\"[[["} `:         {"s": `}{"[[[`},
		strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100): nested(100),
	} {
		got, err := adapter.ParseArgs(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("ParseArgs(%.60q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		`{"a":`:                    "not JSON",
		`{"a":1}{}`:                "more than one",
		`[1]`:                      "an array",
		`"x"`:                      "a string",
		`7`:                        "a number",
		`true`:                     "a boolean",
		strings.Repeat("[", 1<<20): "nest deeper than 100",
	} {
		got, err := adapter.ParseArgs(text)
		if err == nil || !strings.Contains(err.Error(), want) || got == nil || len(got) != 0 {
			t.Errorf("ParseArgs(%.60q) = %v, %v; want an empty map and %q", text, got, err, want)
		}
	}
}

func nested(n int) map[string]any {
	if n == 1 {
		return map[string]any{"a": json.Number("1")}
	}
	return map[string]any{"a": nested(n - 1)}
}

// What a model writes as arguments never breaks a part, and what is an object
// goes back as it came.
func FuzzNewCall(f *testing.F) {
	for _, s := range []string{"", "null", `{"z":1,"a":"\u2028"}`, `{"a":`, "[[", "\xff", `{"a":1} `, `{"\ud800":1}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p := adapter.NewCall("id", "f", text)
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var back genai.Part
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		sent := adapter.ArgsText(&back)
		args, err := adapter.ParseArgs(sent)
		if err != nil || !strings.HasPrefix(strings.TrimSpace(sent), "{") {
			t.Fatalf("arguments %q go back as %q: %v", text, sent, err)
		}
		if !reflect.DeepEqual(args, p.FunctionCall.Args) {
			t.Fatalf("arguments %q were read as %v and go back as %v", text, p.FunctionCall.Args, args)
		}
	})
}

// A text goes back as it is if ParseArgs has taken it and it is an object.
func TestArgsTextIsWhatParseArgsTakes(t *testing.T) {
	deep := strings.Repeat("[", 99) + strings.Repeat("]", 99)
	for _, text := range []string{
		`{}`, " {\t}\n", `{"a":1e999,"a":[{}]}`, "{\"a\":\"\xff\"}", `{"a":` + deep + `}`, "\u00a0{}",
		``, ` `, `null`, `[]`, `1`, `{`, `{}}`, `{} {}`, `{},`, `{"a":01}`, `{"a":"\x"}`, "{\"a\":\"\n\"}", `{"a":[` + deep + `]}`, `{'a':1}`, `{"a":NaN}`,
	} {
		_, err := adapter.ParseArgs(text)
		takes := err == nil && strings.HasPrefix(strings.TrimSpace(text), "{")
		p := &genai.Part{FunctionCall: &genai.FunctionCall{}, PartMetadata: map[string]any{seam.MetaArgs: text}}
		if got := adapter.ArgsText(p); (got == text) != (takes || text == "{}") {
			t.Errorf("%.40q goes back as %.40q, ParseArgs says %v", text, got, err)
		}
	}
}

func TestArgsTextWithoutMetadata(t *testing.T) {
	p := &genai.Part{FunctionCall: &genai.FunctionCall{Args: map[string]any{"b": "<&>", "a": json.Number("9007199254740993")}}}
	if got := adapter.ArgsText(p); got != `{"a":9007199254740993,"b":"<&>"}` {
		t.Error(got)
	}
	if got := adapter.ArgsText(&genai.Part{FunctionCall: &genai.FunctionCall{}}); got != "{}" {
		t.Error(got)
	}
}

func TestCallIDs(t *testing.T) {
	withID := adapter.NewCall("adk-1", "f", "")
	withID.PartMetadata[seam.MetaCallID] = "own"
	got := adapter.CallIDs([]*genai.Content{
		{Role: genai.RoleModel, Parts: []*genai.Part{{Text: "x"}, withID, adapter.NewCall("adk-2", "f", "")}},
	})
	if want := map[string]string{"adk-1": "own", "adk-2": ""}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestBuilder(t *testing.T) {
	var deltas []model.Delta
	b := &adapter.Builder{Provider: "p", Emit: func(d model.Delta) { deltas = append(deltas, d) }}
	b.Thought("a")
	b.Thought("b")
	b.Sign([]byte("s1"), true)
	b.Thought("c")
	b.Text("")
	b.Text("d")
	b.Text("e\xff")
	b.Part(adapter.NewCall("1", "f", "{}"))
	b.Sign([]byte("s2"), false)
	b.Text("f")
	b.Sign([]byte("s3"), true)
	b.Opaque(map[string]any{"k": "v"}, true)
	b.Text("g")
	meta := map[string]any{seam.MetaProvider: "p"}
	want := &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{
		{Text: "ab", Thought: true, ThoughtSignature: []byte("s1"), PartMetadata: meta},
		{Text: "c", Thought: true},
		{Text: "de\uFFFD"},
		{
			FunctionCall: &genai.FunctionCall{ID: "1", Name: "f", Args: map[string]any{}}, ThoughtSignature: []byte("s2"),
			PartMetadata: map[string]any{seam.MetaArgs: "{}", seam.MetaProvider: "p"},
		},
		{Text: "f"},
		{Thought: true, ThoughtSignature: []byte("s3"), PartMetadata: meta},
		{Thought: true, PartMetadata: map[string]any{seam.MetaOpaque: map[string]any{"k": "v"}, seam.MetaProvider: "p"}},
		{Text: "g"},
	}}
	if got := b.Content(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %s\nwant %s", toJSON(t, got), toJSON(t, want))
	}
	if len(deltas) != 7 || deltas[4].Text != "e\uFFFD" {
		t.Errorf("deltas %v", deltas)
	}
	for i, p := range want.Parts {
		if adapter.Owned(p, "p") != (p.PartMetadata[seam.MetaProvider] != nil) || adapter.Owned(p, "q") {
			t.Errorf("part %d: wrong owner", i)
		}
	}
	if got := (&adapter.Builder{Provider: "p"}).Content(); got != nil {
		t.Errorf("an empty answer has content %v", got)
	}
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := rawjson.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// events reads a stream to its end.
func events(r io.Reader) (out []adapter.Event, err error) {
	for ev, e := range adapter.ReadEvents(r, 0) {
		if e != nil {
			return out, e
		}
		out = append(out, ev)
	}
	return out, nil
}

func TestReadEvents(t *testing.T) {
	for in, want := range map[string][]adapter.Event{
		"":                                       nil,
		"data: a\n\ndata:b\r\n\r\ndata: c\r\r":   {{Data: "a"}, {Data: "b"}, {Data: "c"}},
		"event: x\nid: 1\nretry: 5\ndata: a\n\n": {{Name: "x", Data: "a"}},
		": hi\n\ndata: a\n: there\ndata:  b\n\n": {{Data: "a\n b"}},
		"event: x\n\ndata: a\n\n":                {{Data: "a"}},
		"data: no blank line":                    {{Data: "no blank line"}},
		"data\n\n":                               nil,
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(in), "bytewise": iotest.OneByteReader(strings.NewReader(in))} {
			got, err := events(r)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%q, %s: %v, %v; want %v", in, name, got, err, want)
			}
		}
	}
	if _, err := events(strings.NewReader("data: a\n\n<html>\n")); err == nil || !strings.Contains(err.Error(), "no event stream") {
		t.Errorf("HTML: %v", err)
	}
	if _, err := events(strings.NewReader("data: " + strings.Repeat("x", seam.MaxLine) + "\n\n")); !errors.Is(err, seam.ErrLineTooLong) {
		t.Errorf("a long line: %v", err)
	}
	if _, err := events(strings.NewReader(strings.Repeat("data: "+strings.Repeat("x", 1<<19)+"\n", 9) + "\n")); err == nil {
		t.Error("an event of many lines has no bound")
	}
	broken := errors.New("broken")
	got, err := events(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || len(got) != 1 {
		t.Errorf("a broken stream: %v, %v", got, err)
	}
}

// However a stream is cut into reads, the events are the same.
func FuzzReadEvents(f *testing.F) {
	f.Add("data: a\n\ndata: b\r\n\r\n")
	f.Add("event: x\rdata: a\r\rdata:")
	f.Add(": c\n\n\xff: x\n")
	f.Fuzz(func(t *testing.T, in string) {
		whole, err1 := events(strings.NewReader(in))
		bytewise, err2 := events(iotest.OneByteReader(strings.NewReader(in)))
		if !reflect.DeepEqual(whole, bytewise) || (err1 == nil) != (err2 == nil) {
			t.Fatalf("%v, %v and %v, %v", whole, err1, bytewise, err2)
		}
		for _, e := range whole {
			if e.Data == "" {
				t.Fatal("an event without data")
			}
		}
	})
}
