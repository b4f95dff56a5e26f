package harness

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// blockedAnswer is an answer that a provider, or its model, refuses.
type blockedAnswer struct {
	Wire   providertest.Wire
	status int // 0 is 200, and an event stream
	body   []string
	Text   string   // what was shown before
	Says   []string // of the message
	Tokens int32    // in total
}

// BlockedAnswers repeat what the user has said, which no log may hold.
var BlockedAnswers = map[string]blockedAnswer{
	"Gemini, the prompt": {
		Wire: providertest.Gemini,
		body: []string{
			`{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT","blockReasonMessage":"no: ` + PromptCanary + `",` +
				`"safetyRatings":[{"category":"HARM_CATEGORY_HARASSMENT","probability":"HIGH","blocked":true},` +
				`{"category":"HARM_CATEGORY_HATE_SPEECH","probability":"LOW"}]},` +
				`"usageMetadata":{"promptTokenCount":4,"totalTokenCount":4}}`,
		},
		Says: []string{
			"the prompt was blocked with PROHIBITED_CONTENT",
			"HARM_CATEGORY_HARASSMENT (HIGH)",
			"no: " + PromptCanary,
		},
		Tokens: 4,
	},
	"Gemini, half way": {
		Wire: providertest.Gemini,
		body: []string{
			`{"candidates":[{"content":{"role":"model","parts":[{"text":"Half."}]},"index":0}]}`,
			`{"candidates":[{"finishReason":"SAFETY","index":0,"safetyRatings":[` +
				`{"category":"HARM_CATEGORY_DANGEROUS_CONTENT","probability":"MEDIUM","blocked":true}]}],` +
				`"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":3,"totalTokenCount":7}}`,
		},
		Text:   "Half.",
		Says:   []string{"the model stopped with SAFETY", "HARM_CATEGORY_DANGEROUS_CONTENT (MEDIUM)"},
		Tokens: 7,
	},
	"Gemini, the prompt, behind text": {
		Wire: providertest.Gemini,
		body: []string{
			`{"candidates":[{"content":{"role":"model","parts":[{"text":"Half."}]},"index":0}]}`,
			`{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":4,"totalTokenCount":4}}`,
		},
		Text:   "Half.",
		Says:   []string{"the prompt was blocked with SAFETY"},
		Tokens: 4,
	},
	"Gemini, a call before": {
		Wire: providertest.Gemini,
		body: []string{
			`{"candidates":[{"content":{"role":"model","parts":` +
				`[{"functionCall":{"name":"look","args":{}}}]},"index":0}]}`,
			`{"candidates":[{"finishReason":"RECITATION","finishMessage":"` + PromptCanary + `","index":0}],` +
				`"usageMetadata":{"promptTokenCount":4,"totalTokenCount":4}}`,
		},
		Says:   []string{"the model stopped with RECITATION"},
		Tokens: 4,
	},
	"Anthropic": {
		Wire: providertest.Anthropic,
		body: []string{
			`{"type":"message_start","message":{"model":"m","usage":{"input_tokens":5,"output_tokens":1}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Half."}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":` +
				`{"type":"refusal","category":"cyber","explanation":"about ` + PromptCanary + `"}},` +
				`"usage":{"output_tokens":3}}`,
			`{"type":"message_stop"}`,
		},
		Text:   "Half.",
		Says:   []string{"the model refused to respond: cyber: about " + PromptCanary},
		Tokens: 8,
	},
	"Anthropic, nothing said": {
		Wire: providertest.Anthropic,
		body: []string{
			`{"type":"message_start","message":{"model":"m","usage":{"input_tokens":5,"output_tokens":1}}}`,
			`{"type":"message_delta","delta":{"stop_reason":"refusal"},"usage":{"output_tokens":1}}`,
			`{"type":"message_stop"}`,
		},
		Says:   []string{"the model refused to respond"},
		Tokens: 6,
	},
	"Anthropic, a status": {
		Wire:   providertest.Anthropic,
		status: 400,
		body: []string{
			`{"type":"error","error":{"type":"invalid_request_error",` +
				`"message":"Output blocked by content filtering policy"}}`,
		},
		Says: []string{"Output blocked by content filtering policy"},
	},
	"chat, the filter": {
		Wire: providertest.OpenAIChat,
		body: []string{
			`{"choices":[{"index":0,"delta":{"role":"assistant","content":"Half."}}]}`,
			`{"choices":[{"index":0,"delta":{},"finish_reason":"content_filter","content_filter_results":` +
				`{"hate":{"filtered":true,"severity":"high"},"violence":{"filtered":false,"severity":"safe"}}}]}`,
			`{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":3,"total_tokens":7}}`,
			`[DONE]`,
		},
		Text:   "Half.",
		Says:   []string{"the provider's content filter stopped the response: hate (high)"},
		Tokens: 7,
	},
	"chat, a refusal": {
		Wire: providertest.OpenAIChat,
		body: []string{
			`{"choices":[{"index":0,"delta":{"role":"assistant","refusal":"I will not say "}}]}`,
			`{"choices":[{"index":0,"delta":{"refusal":"` + PromptCanary + `"},"finish_reason":"stop"}],` +
				`"usage":{"prompt_tokens":4,"completion_tokens":3,"total_tokens":7}}`,
			`[DONE]`,
		},
		Says:   []string{"the model refused to respond: I will not say " + PromptCanary},
		Tokens: 7,
	},
	"chat, Azure's prompt filter": {
		Wire:   providertest.OpenAIChat,
		status: 400,
		body: []string{
			`{"error":{"message":"The prompt triggered the policy","type":null,"param":"prompt",` +
				`"code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation",` +
				`"content_filter_result":{"jailbreak":{"filtered":true,"detected":true},` +
				`"hate":{"filtered":false,"severity":"safe"}}}}}`,
		},
		Says: []string{"content_filter", "The prompt triggered the policy: jailbreak"},
	},
	"Responses, the filter": {
		Wire: providertest.OpenAIResponses,
		body: []string{
			`{"type":"response.output_text.delta","output_index":0,"delta":"Half."}`,
			`{"type":"response.incomplete","response":{"status":"incomplete","model":"m",` +
				`"incomplete_details":{"reason":"content_filter"},"output":[],` +
				`"usage":{"input_tokens":4,"output_tokens":3,"total_tokens":7}}}`,
		},
		Text:   "Half.",
		Says:   []string{"the provider's content filter stopped the response"},
		Tokens: 7,
	},
	"Responses, a refusal": {
		Wire: providertest.OpenAIResponses,
		body: []string{
			`{"type":"response.output_text.delta","output_index":0,"delta":"Half."}`,
			`{"type":"response.output_item.done","output_index":0,"item":` +
				`{"type":"message","content":[{"type":"output_text","text":"Half."}]}}`,
			`{"type":"response.refusal.delta","output_index":1,"delta":"I will not say ` + PromptCanary + `"}`,
			`{"type":"response.output_item.done","output_index":1,"item":` +
				`{"type":"message","content":[{"type":"refusal","refusal":"I will not say ` + PromptCanary + `"}]}}`,
			`{"type":"response.completed","response":{"status":"completed","model":"m","output":[],` +
				`"usage":{"input_tokens":4,"output_tokens":3,"total_tokens":7}}}`,
		},
		Text:   "Half.",
		Says:   []string{"the model refused to respond: I will not say " + PromptCanary},
		Tokens: 7,
	},
	"Responses, a failure": {
		Wire: providertest.OpenAIResponses,
		body: []string{
			`{"type":"response.failed","response":{"status":"failed",` +
				`"error":{"code":"invalid_prompt","message":"flagged: ` + PromptCanary + `"},` +
				`"usage":{"input_tokens":4,"output_tokens":0,"total_tokens":4}}}`,
		},
		Says:   []string{"invalid_prompt", "flagged: " + PromptCanary},
		Tokens: 4,
	},
}

// Script answers every call with it.
func (b blockedAnswer) Script() fakeprovider.Script {
	if b.status != 0 {
		return fakeprovider.Answer(fakeprovider.Reply{Status: b.status, Body: b.body[0]})
	}
	var events []string
	for _, data := range b.body {
		events = append(events, "data: "+data+"\n\n")
	}
	return fakeprovider.Answer(fakeprovider.Reply{Events: events})
}

// tooLong are the words of each wire's provider for a prompt that does not fit.
var tooLong = map[providertest.Wire]string{
	providertest.OpenAIResponses: `{"error":{"message":"Your input exceeds the context window of this model.",` +
		`"type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}`,
	providertest.OpenAIChat: `{"error":{"message":"This model's maximum context length is 8192 tokens.",` +
		`"type":"invalid_request_error","code":"context_length_exceeded"}}`,
	providertest.Anthropic: `{"type":"error","error":{"type":"invalid_request_error",` +
		`"message":"prompt is too long: 208310 tokens > 200000 maximum"}}`,
	providertest.Gemini: `{"error":{"code":400,"message":"The input token count (1200000) exceeds ` +
		`the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}`,
}

// Windowed is a provider whose model has a context window: it counts four bytes of
// a request as a token. Its model calls a tool in every third turn, and its
// summaries are numbered.
type Windowed struct {
	T      *testing.T
	Wire   providertest.Wire
	Window int64

	Mu        sync.Mutex // protects the fields below
	Calls     int
	Refused   int
	Summaries int
	Known     int // the newest summary that prompts begin with; 0 is none
	Largest   int64
}

// Reply answers a model call; it is a fakeprovider.Script.
func (p *Windowed) Reply(_ context.Context, c *fakeprovider.Call) fakeprovider.Reply {
	req, err := c.Request()
	if err != nil {
		p.T.Error(err)
		return fakeprovider.Reply{Drop: true}
	}
	if err := providertest.CheckHistory(c.Body, p.Wire, req.Items); err != nil {
		p.T.Errorf("a request that no provider would take: %v\n%s", err, c.Body)
	}
	tokens := int64(len(c.Body) / 4)
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if tokens > p.Window {
		p.Refused++
		return fakeprovider.Reply{Status: http.StatusBadRequest, Body: tooLong[p.Wire]}
	}
	p.Calls++
	p.Largest = max(p.Largest, tokens)
	var calls []providertest.ToolCall
	text := fmt.Sprintf("answer %d %s", p.Calls, strings.Repeat("a", 400))
	switch last := req.Items[len(req.Items)-1]; {
	case strings.HasPrefix(req.System, "You write the memory"):
		p.Summaries++
		p.Known = p.Summaries
		text = fmt.Sprintf("summary %d", p.Summaries)
		if len(req.Tools) > 0 || len(req.Items) != 1 {
			p.T.Errorf("asked for a summary by %s", c.Body)
		}
	case p.Known > 0 && !strings.Contains(req.Items[0].Text, fmt.Sprintf("summary %d\n", p.Known)):
		p.T.Errorf("after summary %d a prompt begins with %q", p.Known, req.Items[0].Text)
	case p.Calls%3 == 0 && last.Kind == providertest.User:
		call := providertest.ToolCall{
			ID:   fmt.Sprintf("c%d", p.Calls),
			Name: "look",
			Args: fmt.Sprintf(`{"n":%d}`, p.Calls),
		}
		calls = []providertest.ToolCall{call}
	}
	completion := int64(len(text) / 4)
	usage := providertest.Usage{Prompt: tokens, Completion: completion, Total: tokens + completion}
	return fakeprovider.Reply{Text: []string{text}, Calls: calls, Usage: usage}
}

// Invented is the name that an agent has for a wire's model.
func Invented(wire providertest.Wire) string {
	return WireProviders[wire].Describe().Name + "/invented"
}

// Refused is a fault of a request: an error of the wire's provider.
func Refused(wire providertest.Wire, status int) providertest.Fault {
	return providertest.Fault{
		Action: providertest.Refuse,
		Status: status,
		Header: http.Header{"Content-Type": {"application/json"}},
		Again:  true,
		Bytes:  providertest.ErrorBody(wire, status, "some_code", "no luck with "+KeyCanary),
	}
}

// Backed is an agent with a model and others behind it.
func Backed(wires []providertest.Wire, tools ...string) *agentdv1.Agent {
	agent := LLMAgent("root", Invented(wires[0]), "", tools...)
	for _, wire := range wires[1:] {
		agent.GetLlm().FallbackModels = append(agent.GetLlm().FallbackModels, Invented(wire))
	}
	return agent
}

// Look is an answer that calls a tool and says nothing.
var Look = providertest.Answer{
	Calls: []providertest.ToolCall{{ID: "call_1", Name: "look", Args: `{"where":"north","deep":true}`}},
	Usage: providertest.Usage{Prompt: 4, Completion: 3, Total: 7},
}

// EventStreams are answers as a wire's provider streams them.
func EventStreams(t *testing.T, wire providertest.Wire, answers ...providertest.Answer) []string {
	t.Helper()
	var out []string
	for _, e := range providertest.Invent(wire, answers...).Calls() {
		s, err := e.EventStream()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}
