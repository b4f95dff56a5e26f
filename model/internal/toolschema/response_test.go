package toolschema

import (
	"encoding/json"
	"testing"

	"google.golang.org/genai"
)

func TestResponse(t *testing.T) {
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
		got, err := Response(&c.cfg)
		if string(got) != c.want || (err != nil) != c.bad {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}
