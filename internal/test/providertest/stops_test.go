package providertest_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/anthropic"
	"github.com/apzuk3/agentd/model/gemini"
	"github.com/apzuk3/agentd/model/openai"
)

// ending is a stream that says "Half." and ends for a reason, the wire's own.
func ending(wire providertest.Wire, reason string) string {
	switch wire {
	case providertest.OpenAIChat:
		calls := ""
		if reason == "tool_calls" || reason == "function_call" {
			calls = `,"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]`
		}
		return `data: {"choices":[{"index":0,"delta":{"content":"Half."` + calls + `}}]}` + "\n\n" +
			`data: {"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}` + "\n\ndata: [DONE]\n\n"
	case providertest.OpenAIResponses:
		status, why, found := strings.Cut(reason, "/")
		more := `"error":null`
		if found && status == "failed" {
			more = `"error":{"code":"` + why + `","message":"Half."}`
		} else if found {
			more = `"incomplete_details":{"reason":"` + why + `"}`
		}
		return `data: {"type":"response.output_text.delta","output_index":0,"delta":"Half."}` + "\n\n" +
			`data: {"type":"response.` + status + `","response":{"status":"` + status + `",` + more + `,"output":[]}}` + "\n\n"
	case providertest.Anthropic:
		block := `{"type":"text","text":"Half."}`
		if reason == "tool_use" {
			block = `{"type":"tool_use","id":"c","name":"f","input":{}}`
		}
		return `data: {"type":"message_start","message":{"model":"m","usage":{"input_tokens":1}}}` + "\n\n" +
			`data: {"type":"content_block_start","index":0,"content_block":` + block + `}` + "\n\n" +
			`data: {"type":"content_block_stop","index":0}` + "\n\n" +
			`data: {"type":"message_delta","delta":{"stop_reason":"` + reason + `"},"usage":{"output_tokens":1}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n"
	default:
		if why, ok := strings.CutPrefix(reason, "block/"); ok {
			return `data: {"promptFeedback":{"blockReason":"` + why + `"}}` + "\n\n"
		}
		return `data: {"candidates":[{"content":{"parts":[{"text":"Half."}]},"finishReason":"` + reason + `"}]}` + "\n\n"
	}
}

// TestStopReasons holds every reason that the providers document, and those that
// compatible servers send, against what it has to become: a finish reason, or the
// kind of an error.
func TestStopReasons(t *testing.T) {
	stop, most, other := string(genai.FinishReasonStop), string(genai.FinishReasonMaxTokens), string(genai.FinishReasonOther)
	blocked, broken, invalid := string(model.KindBlocked), string(model.KindUnavailable), string(model.KindInvalid)
	for wire, reasons := range map[providertest.Wire]map[string]string{
		providertest.OpenAIChat: {
			"stop": stop, "tool_calls": stop, "function_call": stop, "length": most, "content_filter": blocked,
			"model_length": most, "max_tokens": most, "eos": stop, "eos_token": stop, "stop_sequence": stop,
			"error": broken, "abort": broken, "insufficient_system_resource": broken, "news": other,
		},
		providertest.OpenAIResponses: {
			"completed": stop, "incomplete/max_output_tokens": most, "incomplete/content_filter": blocked, "incomplete/news": broken, "cancelled": broken,
			"failed/server_error": broken, "failed/rate_limit_exceeded": string(model.KindRateLimited), "failed/invalid_prompt": blocked,
			"failed/bio_policy": blocked, "failed/data_residency_mismatch": invalid, "failed/vector_store_timeout": broken, "failed/invalid_image": invalid,
			"failed/failed_to_download_image": invalid, "failed/image_content_policy_violation": blocked, "failed/context_length_exceeded": string(model.KindContextTooLong),
			"failed/news": broken,
		},
		providertest.Anthropic: {
			"end_turn": stop, "stop_sequence": stop, "tool_use": stop, "max_tokens": most, "model_context_window_exceeded": most,
			"refusal": blocked, "pause_turn": broken, "news": other,
		},
		providertest.Gemini: {
			"STOP": stop, "MAX_TOKENS": most, "SAFETY": blocked, "RECITATION": blocked, "LANGUAGE": blocked, "BLOCKLIST": blocked,
			"PROHIBITED_CONTENT": blocked, "SPII": blocked, "IMAGE_SAFETY": blocked, "IMAGE_PROHIBITED_CONTENT": blocked, "IMAGE_RECITATION": blocked,
			"OTHER": broken, "MALFORMED_FUNCTION_CALL": broken, "UNEXPECTED_TOOL_CALL": broken, "TOO_MANY_TOOL_CALLS": broken, "NO_IMAGE": broken,
			"IMAGE_OTHER": broken, "CONTINUATION": broken, "FINISH_REASON_UNSPECIFIED": broken, "NEWS": broken,
			"block/SAFETY": blocked, "block/OTHER": blocked, "block/BLOCKLIST": blocked, "block/PROHIBITED_CONTENT": blocked,
			"block/IMAGE_SAFETY": blocked, "block/JAILBREAK": blocked, "block/MODEL_ARMOR": blocked,
		},
	} {
		from := &memory{}
		llm := reader(t, wire, from)
		for reason, want := range reasons {
			t.Run(string(wire)+"/"+reason, func(t *testing.T) {
				from.stream = ending(wire, reason)
				resp, err := llm.Generate(t.Context(), &model.Request{Contents: genai.Text("hello"), Config: &genai.GenerateContentConfig{}}, func(model.Delta) {})
				got := ""
				if e, ok := errors.AsType[*model.Error](err); ok {
					got = string(e.Kind)
				} else if err == nil {
					got = string(resp.FinishReason)
				}
				if got != want {
					t.Errorf("it became %q (%v), want %q", got, err, want)
				}
			})
		}
	}
}

// refuser answers with an error.
type refuser struct {
	status int
	body   string
}

// RoundTrip implements http.RoundTripper.
func (f *refuser) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: f.status, Status: fmt.Sprint(f.status), Request: r, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(f.body)),
	}, nil
}

// TestContextOverflow: prompts that do not fit, in the words of the providers and
// of the servers that are compatible with them.
func TestContextOverflow(t *testing.T) {
	type refusal struct {
		wire    providertest.Wire
		status  int
		message string // the body's message, or the body itself
	}
	for name, c := range map[string]refusal{
		"OpenAI":           {providertest.OpenAIResponses, 400, `{"error":{"message":"Your input exceeds the context window of this model.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}`},
		"OpenAI chat":      {providertest.OpenAIChat, 400, `{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","code":"context_length_exceeded"}}`},
		"vLLM":             {providertest.OpenAIChat, 400, `{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.","type":"BadRequestError","param":null,"code":400}`},
		"llama.cpp":        {providertest.OpenAIChat, 400, `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}`},
		"Ollama":           {providertest.OpenAIChat, 500, `{"error":{"message":"the input length exceeds the context length","type":"api_error"}}`},
		"LM Studio":        {providertest.OpenAIChat, 400, `{"error":"Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens."}`},
		"Mistral":          {providertest.OpenAIChat, 400, `{"object":"error","message":"Prompt contains 40000 tokens, too large for model with 32768 maximum context length","type":"invalid_request_error","code":null}`},
		"Mistral, shorter": {providertest.OpenAIChat, 400, `{"message":"Prompt contains 40000 tokens, too large for model","type":"invalid_request_error"}`},
		"OpenRouter":       {providertest.OpenAIChat, 400, `{"error":{"message":"This endpoint's maximum context length is 131072 tokens.","code":400}}`},
		"xAI":              {providertest.OpenAIChat, 400, `{"code":"400","error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}`},
		"TGI":              {providertest.OpenAIChat, 422, `{"error":"Input validation error: ` + "`inputs` tokens + `max_new_tokens`" + ` must be <= 8193","error_type":"validation"}`},
		"Moonshot":         {providertest.OpenAIChat, 400, `{"error":{"message":"Invalid request: Your request exceeded model token limit: 8192","type":"invalid_request_error"}}`},
		"DashScope":        {providertest.OpenAIChat, 400, `{"error":{"message":"Range of input length should be [1, 30720]","type":"invalid_request_error"}}`},
		"Bedrock":          {providertest.OpenAIChat, 400, `{"message":"Input is too long for requested model."}`},
		"too large":        {providertest.OpenAIChat, 413, `{}`},
		"Anthropic":        {providertest.Anthropic, 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}`},
		"Anthropic, both":  {providertest.Anthropic, 400, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000\"}}"},
		"Anthropic, bytes": {providertest.Anthropic, 413, `{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}`},
		"Gemini":           {providertest.Gemini, 400, `{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}`},
		"Vertex AI":        {providertest.Gemini, 400, `[{"error":{"code":400,"message":"The input token count is 1500000 but model only supports up to 1048576.","status":"INVALID_ARGUMENT"}}]`},
		"Gemini, bytes":    {providertest.Gemini, 400, `{"error":{"code":400,"message":"Request payload size exceeds the limit: 20971520 bytes.","status":"INVALID_ARGUMENT"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			from := &refuser{c.status, c.message}
			var p model.Provider
			switch c.wire {
			case providertest.OpenAIChat:
				p = openai.New(openai.Config{APIKey: apiKey, API: openai.Chat, Transport: from})
			case providertest.OpenAIResponses:
				p = openai.New(openai.Config{APIKey: apiKey, Transport: from})
			case providertest.Anthropic:
				p = anthropic.New(anthropic.Config{APIKey: apiKey, Transport: from})
			default:
				p = gemini.New(gemini.Config{APIKey: apiKey, Transport: from})
			}
			llm, err := p.Open("any", "")
			if err != nil {
				t.Fatal(err)
			}
			_, err = llm.Generate(t.Context(), &model.Request{Contents: genai.Text("hello"), Config: &genai.GenerateContentConfig{}}, func(model.Delta) {})
			if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.KindContextTooLong || e.Temporary() {
				t.Errorf("error %v, want one of kind %s", err, model.KindContextTooLong)
			}
		})
	}
}
