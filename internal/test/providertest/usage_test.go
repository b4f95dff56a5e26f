package providertest_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
)

// reporting is a whole answer whose provider reports usage so, a JSON object.
func reporting(wire providertest.Wire, usage string) string {
	switch wire {
	case providertest.OpenAIChat:
		return strings.Replace(ending(wire, "stop"), "data: [DONE]", `data: {"choices":[],"usage":`+usage+"}\n\ndata: [DONE]", 1)
	case providertest.OpenAIResponses:
		return strings.Replace(ending(wire, "completed"), `"output":[]`, `"output":[],"usage":`+usage, 1)
	case providertest.Anthropic:
		return strings.Replace(ending(wire, "end_turn"), `{"input_tokens":1}`, usage, 1)
	default:
		return strings.Replace(ending(wire, "STOP"), `{"candidates"`, `{"usageMetadata":`+usage+`,"candidates"`, 1)
	}
}

// TestUsageMeaning: the same answer counts the same, whoever has given it, and what a
// server counts in another way, or says that cannot be, fails no answer.
func TestUsageMeaning(t *testing.T) {
	// 100 tokens asked, of which 60 were read from a cache and 30 written into it; 40
	// answered, of which 15 were thoughts.
	whole := model.Usage{Prompt: 100, Cached: 60, CacheWrite: 30, Completion: 40, Thoughts: 15, Total: 140}
	unwritten := whole
	unwritten.CacheWrite = 0
	const most = 1<<31 - 1
	chat, responses, anthropic, gemini := providertest.OpenAIChat, providertest.OpenAIResponses, providertest.Anthropic, providertest.Gemini
	for name, c := range map[string]struct {
		wire  providertest.Wire
		usage string
		want  model.Usage
	}{
		"OpenAI chat": {chat, `{"prompt_tokens":100,"completion_tokens":40,"total_tokens":140,"prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":30},"completion_tokens_details":{"reasoning_tokens":15}}`, whole},
		"OpenAI":      {responses, `{"input_tokens":100,"output_tokens":40,"total_tokens":140,"input_tokens_details":{"cached_tokens":60,"cache_write_tokens":30},"output_tokens_details":{"reasoning_tokens":15}}`, whole},
		"Anthropic":   {anthropic, `{"input_tokens":10,"cache_read_input_tokens":60,"cache_creation_input_tokens":30,"output_tokens_details":{"thinking_tokens":15}}`, model.Usage{Prompt: 100, Cached: 60, CacheWrite: 30, Completion: 16, Thoughts: 15, Total: 116}},
		"Gemini":      {gemini, `{"promptTokenCount":80,"toolUsePromptTokenCount":20,"cachedContentTokenCount":60,"candidatesTokenCount":25,"thoughtsTokenCount":15,"totalTokenCount":140}`, unwritten},

		"xAI, thoughts apart":         {chat, `{"prompt_tokens":100,"completion_tokens":25,"total_tokens":140,"prompt_tokens_details":{"cached_tokens":60},"completion_tokens_details":{"reasoning_tokens":15}}`, unwritten},
		"Google, thoughts in total":   {chat, `{"prompt_tokens":100,"completion_tokens":25,"total_tokens":140}`, model.Usage{Prompt: 100, Completion: 40, Total: 140}},
		"DeepSeek":                    {chat, `{"prompt_tokens":100,"completion_tokens":40,"total_tokens":140,"prompt_cache_hit_tokens":60,"completion_tokens_details":{"reasoning_tokens":15}}`, unwritten},
		"a proxy, cached apart":       {chat, `{"prompt_tokens":10,"completion_tokens":40,"prompt_tokens_details":{"cached_tokens":60},"completion_tokens_details":{"reasoning_tokens":15}}`, model.Usage{Prompt: 70, Cached: 60, Completion: 40, Thoughts: 15, Total: 110}},
		"a proxy whose total says so": {chat, `{"prompt_tokens":90,"completion_tokens":40,"total_tokens":190,"prompt_tokens_details":{"cached_tokens":60}}`, model.Usage{Prompt: 150, Cached: 60, Completion: 40, Total: 190}},
		"more cached than asked":      {gemini, `{"promptTokenCount":10,"cachedContentTokenCount":60,"candidatesTokenCount":1}`, model.Usage{Prompt: 70, Cached: 60, Completion: 1, Total: 71}},

		"chat, that cannot be":      {chat, `{"prompt_tokens":-5,"completion_tokens":1e30,"total_tokens":"many"}`, model.Usage{Completion: most, Total: most}},
		"Responses, that cannot be": {responses, `{"input_tokens":99999999999999999999,"output_tokens":1.5,"total_tokens":null}`, model.Usage{Prompt: most, Completion: 1, Total: most + 1}},
		"Anthropic, that cannot be": {anthropic, `{"input_tokens":-1,"cache_read_input_tokens":[],"cache_creation_input_tokens":9e99}`, model.Usage{Prompt: most, CacheWrite: most, Completion: 1, Total: most + 1}},
		"Gemini, that cannot be":    {gemini, `{"promptTokenCount":4e9,"candidatesTokenCount":-1,"thoughtsTokenCount":{}}`, model.Usage{Prompt: most, Total: most}},
		"chat, of another form":     {chat, `"none"`, model.Usage{}},
	} {
		t.Run(name, func(t *testing.T) {
			from := &memory{reporting(c.wire, c.usage)}
			llm := reader(t, c.wire, from)
			resp, err := llm.Generate(t.Context(), &model.Request{Contents: genai.Text("hello"), Config: &genai.GenerateContentConfig{}}, func(model.Delta) {})
			if err != nil {
				t.Fatal(err)
			}
			if resp.Usage != c.want {
				t.Errorf("usage %+v, want %+v", resp.Usage, c.want)
			}
		})
	}
}

// TestUsageOfErrors: an error within a stream that says what the call took is counted,
// be it said with the error or before, and once.
func TestUsageOfErrors(t *testing.T) {
	const chat = `{"prompt_tokens":100,"completion_tokens":40}`
	const responses = `{"input_tokens":100,"output_tokens":40}`
	for name, c := range map[string]struct {
		wire   providertest.Wire
		events []string
	}{
		"OpenRouter": {providertest.OpenAIChat, []string{
			`{"choices":[{"index":0,"delta":{"content":"Ha"}}]}`,
			`{"error":{"code":502,"message":"gone"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}],"usage":` + chat + `}`,
		}},
		"chat, before the error":      {providertest.OpenAIChat, []string{`{"choices":[],"usage":` + chat + `}`, `{"error":{"message":"gone"}}`}},
		"chat, with the end":          {providertest.OpenAIChat, []string{`{"choices":[{"index":0,"delta":{},"finish_reason":"error"}],"usage":` + chat + `}`}},
		"Responses":                   {providertest.OpenAIResponses, []string{`{"type":"error","code":"server_error","message":"gone","usage":` + responses + `}`}},
		"Responses, failed":           {providertest.OpenAIResponses, []string{`{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"gone"},"usage":` + responses + `}}`}},
		"Responses, before the error": {providertest.OpenAIResponses, []string{`{"type":"response.in_progress","response":{"status":"in_progress","usage":` + responses + `}}`, `{"type":"error","code":"server_error","message":"gone"}`}},
		"Responses, cut off":          {providertest.OpenAIResponses, []string{`{"type":"response.in_progress","response":{"status":"in_progress","usage":` + responses + `}}`}},
		"Anthropic":                   {providertest.Anthropic, []string{`{"type":"message_start","message":{"usage":{"input_tokens":100,"output_tokens":1}}}`, `{"type":"error","error":{"type":"api_error","message":"gone"},"usage":{"output_tokens":40}}`}},
		"Anthropic, at once":          {providertest.Anthropic, []string{`{"type":"error","error":{"type":"overloaded_error","message":"gone"},"usage":{"input_tokens":100,"output_tokens":40}}`}},
		"Gemini":                      {providertest.Gemini, []string{`{"error":{"code":503,"message":"gone","status":"UNAVAILABLE"},"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":40}}`}},
		"Gemini, before the error":    {providertest.Gemini, []string{`{"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":40}}`, `{"error":{"code":503,"message":"gone","status":"UNAVAILABLE"}}`}},
	} {
		t.Run(name, func(t *testing.T) {
			from := &memory{"data: " + strings.Join(c.events, "\n\ndata: ") + "\n\n"}
			llm := modelcall.Guard(reader(t, c.wire, from), modelcall.Limits{})
			_, err := llm.Generate(t.Context(), &model.Request{Contents: genai.Text("hello"), Config: &genai.GenerateContentConfig{}}, func(model.Delta) {})
			want := []model.Usage{{Prompt: 100, Completion: 40, Total: 140}}
			if took := modelcall.Took(err); err == nil || !slices.Equal(took, want) {
				t.Errorf("error %v took %+v, want %+v", err, took, want)
			}
		})
	}
}
