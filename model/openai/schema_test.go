package openai

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
)

func TestStrict(t *testing.T) {
	properties := func(n int) string {
		var names, props []string
		for i := range n {
			names, props = append(names, fmt.Sprintf("%q", fmt.Sprint(i))), append(props, fmt.Sprintf(`"%d":{"type":"null"}`, i))
		}
		return `{"type":"object","properties":{` + strings.Join(props, ",") + `},"required":[` + strings.Join(names, ",") + `],"additionalProperties":false}`
	}
	with := func(property string) string {
		return `{"type":"object","properties":{"a":` + property + `},"required":["a"],"additionalProperties":false}`
	}
	enum := func(n int) string { return with(`{"type":"integer","enum":[` + strings.Repeat("1,", n-1) + "1]}") }
	deep := func(n int) string {
		schema := with(`{"type":"null"}`)
		for range n {
			schema = with(schema)
		}
		return schema
	}
	for _, c := range []struct {
		name, schema string
		want         bool
	}{
		{"closed", with(`{"type":["string","null"],"description":"d","pattern":"^a"}`), true},
		{"all that is known", `{"type":"object","title":"t","properties":{"a":{"$ref":"#/$defs/x"},"b":{"type":"array","items":{"anyOf":[{"type":"integer","minimum":0},{"type":"null"}]},"minItems":1},"c":{"type":"string","format":"date-time","enum":["a"]}},"required":["c","a","b"],"additionalProperties":false,"$defs":{"x":` + with(`{"type":"string","const":"a"}`) + `}}`, true},
		{"open", `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`, false},
		{"open below", with(`{"type":"array","items":{"type":"object","properties":{}}}`), false},
		{"open definition", `{"type":"object","properties":{},"additionalProperties":false,"$defs":{"a":{"type":"object"}}}`, false},
		{"map", `{"type":"object","properties":{},"additionalProperties":{"type":"string"}}`, false},
		{"optional property", `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a"],"additionalProperties":false}`, false},
		{"optional, nullable object", with(`{"type":["object","null"],"properties":{"b":{"type":"null"}},"additionalProperties":false}`), false},
		{"no object", `{"type":"array","items":{"type":"string"}}`, false},
		{"alternatives at the top", `{"type":"object","anyOf":[{"type":"object"}],"properties":{},"additionalProperties":false}`, false},
		{"other keyword", with(`{"type":"string","minLength":1}`), false},
		{"default", with(`{"type":"string","default":""}`), false},
		{"intersection", with(`{"allOf":[{"type":"string"}]}`), false},
		{"any value", with(`{}`), false},
		{"true", with(`true`), false},
		{"reference with more", with(`{"$ref":"#","description":"d"}`), false},
		{"recursion", with(`{"$ref":"#"}`), true},
		{"unknown format", with(`{"type":"string","format":"uri"}`), false},
		{"ten levels", deep(9), true},
		{"more levels", deep(11), false},
		{"many properties", properties(5000), true},
		{"too many properties", properties(5001), false},
		{"long enum", enum(250), true},
		{"too long enum", enum(251), false},
		{"no schema", `7`, false},
	} {
		if got := strict(json.RawMessage(c.schema)); got != c.want {
			t.Errorf("%s: strict is %v", c.name, got)
		}
	}
}

// TestTakesSchema names a schema in the request only where that is taken.
func TestTakesSchema(t *testing.T) {
	functions := []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "f"}}}}
	search := []*genai.Tool{{GoogleSearch: &genai.GoogleSearch{}}}
	for _, c := range []struct {
		baseURL, model string
		api            API
		tools          []*genai.Tool
		want           bool
	}{
		{"", "gpt-5", Responses, functions, true},
		{"", "gpt-5", Responses, search, true},
		{"", "gpt-4.1", Chat, functions, true},
		{"", "gpt-4o", Chat, nil, true},
		{"", "o3", Responses, nil, true},
		{"", "gpt-4", Chat, nil, false},
		{"", "gpt-4-turbo", Responses, nil, false},
		{"", "gpt-4o-2024-05-13", Responses, nil, false},
		{"", "gpt-3.5-turbo", Chat, nil, false},
		{"", "chatgpt-4o-latest", Chat, nil, false},
		{"", "o1-mini", Chat, nil, false},
		{"", "ft:gpt-3.5-turbo-0125:acme::abc", Responses, nil, false},
		{"", "ft:gpt-4:acme::abc", Chat, nil, false},
		{"", "ft:gpt-4o-2024-08-06:acme::abc", Responses, functions, true},
		{"https://eu.api.openai.com/v1", "gpt-5", Responses, functions, true},
		{"https://eu.api.openai.com/v1", "gpt-4", Chat, nil, false},
		{"https://x.openai.azure.com/openai/v1", "mine", Chat, functions, true},
		{"http://127.0.0.1:8000/v1", "qwen", Chat, nil, true},
		{"http://127.0.0.1:8000/v1", "qwen", Chat, functions, false},
		{"http://127.0.0.1:8000/v1", "qwen", Responses, functions, false},
		{"https://api.deepseek.com/v1", "deepseek-chat", Chat, nil, false},
		{"https://api.groq.com/openai/v1", "llama", Chat, nil, false},
		{"https://x.openai.azure.com.example/v1", "mine", Chat, functions, false},
	} {
		req := &model.Request{Config: &genai.GenerateContentConfig{Tools: c.tools}}
		if got := openFor(t, Config{BaseURL: c.baseURL, API: c.api}, c.model).takesSchema(req); got != c.want {
			t.Errorf("%s at %q with %d tools: %v", c.model, c.baseURL, len(c.tools), got)
		}
	}
}
