package wire

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"
)

func TestResponseSchema(t *testing.T) {
	const text = `{"z":1,"a":"<b>"}`
	for name, c := range map[string]struct {
		cfg  genai.GenerateContentConfig
		want string
		bad  bool
	}{
		"none":         {},
		"as written":   {cfg: genai.GenerateContentConfig{ResponseJsonSchema: json.RawMessage(text)}, want: text},
		"decoded":      {cfg: genai.GenerateContentConfig{ResponseJsonSchema: map[string]any{"type": "object"}}, want: `{"type":"object"}`},
		"genai's form": {cfg: genai.GenerateContentConfig{ResponseSchema: &genai.Schema{Type: genai.TypeString}}, want: `{"type":"string"}`},
		"no JSON":      {cfg: genai.GenerateContentConfig{ResponseJsonSchema: json.RawMessage(`{`)}, bad: true},
	} {
		got, err := ResponseSchema(&c.cfg)
		if string(got) != c.want || (err != nil) != c.bad {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	if words := AskForSchema(json.RawMessage(text)); !strings.HasSuffix(words, "\n\n"+text) {
		t.Errorf("words %q", words)
	}
}

func TestMembers(t *testing.T) {
	members, ok := Members(json.RawMessage(` {"z":{"y":[1.0]},"a\u0062":null} `))
	if !ok || len(members) != 2 || members[1].Key != "ab" {
		t.Fatalf("members %v, %v", members, ok)
	}
	if got := string(Object(members)); got != `{"z":{"y":[1.0]},"ab":null}` {
		t.Errorf("object %s", got)
	}
	if got := string(Find(members, "z")); got != `{"y":[1.0]}` || Find(members, "x") != nil {
		t.Errorf("found %s", got)
	}
	for _, text := range []string{"", "[]", "null", `{"a"`, `{"a":`, `{"a":1`, `{a:1}`} {
		if members, ok := Members(json.RawMessage(text)); ok {
			t.Errorf("%q holds %v", text, members)
		}
	}
}

func TestStrings(t *testing.T) {
	for text, want := range map[string][]string{`"a"`: {"a"}, `["a","b"]`: {"a", "b"}, `[]`: {}, `null`: nil, ``: nil, `1`: nil, `["a",1]`: nil} {
		got, ok := Strings(json.RawMessage(text))
		if ok != (want != nil) || ok && !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
}
