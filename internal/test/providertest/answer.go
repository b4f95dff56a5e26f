package providertest

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Answer is what a model call brought, in terms all wires share.
type Answer struct {
	// Text is the text, all blocks joined as they are.
	Text string
	// Thoughts are the blocks or summaries of the model's thinking that hold text.
	Thoughts []string
	// Calls are the tool calls that the client has to answer, in order.
	Calls []ToolCall
	// Items are the texts, the calls and what the provider's own tools have said, in
	// order, as later requests carry them. Runs of OpenAI's code_interpreter, which
	// name a container that may be gone by then, are not among them.
	Items []Item
	// Usage is what the provider reported.
	Usage Usage
	// Finish is the provider's own finish reason: of a response its status, or
	// the reason why it is incomplete.
	Finish string
	// Model is the model that the provider says it served.
	Model string
	// Status is the HTTP status. From 400 on there is no answer but Message.
	Status int
	// Message is the provider's error message.
	Message string
}

// ToolCall is a model's call of a client's tool.
type ToolCall struct {
	// ID is the provider's id, or "" where it gave none.
	ID, Name string
	// Args is the JSON text of the arguments.
	Args string
}

// Usage counts tokens, of every wire in the same way. Prompt includes what the
// provider's own tools put into the prompt, what was read from a cache and what was
// written to it; Cached and CacheWrite are those parts, CacheWriteHour is the part of
// CacheWrite that is kept for an hour. Thoughts is a part of Completion. Total is
// Prompt plus Completion.
type Usage struct {
	Prompt, Completion, Cached, CacheWrite, CacheWriteHour, Thoughts, Total int64
}

// Add returns the sum of both.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Prompt: u.Prompt + v.Prompt, Completion: u.Completion + v.Completion, Cached: u.Cached + v.Cached,
		CacheWrite: u.CacheWrite + v.CacheWrite, CacheWriteHour: u.CacheWriteHour + v.CacheWriteHour,
		Thoughts: u.Thoughts + v.Thoughts, Total: u.Total + v.Total,
	}
}

// answerOf reads a recorded answer, a stream or a JSON document.
func answerOf(e *Exchange) (Answer, error) {
	if e.Status >= 400 {
		return Answer{Status: e.Status, Message: errorMessage(e)}, nil
	}
	doc := e.JSON
	if e.Stream() {
		var err error
		if doc, err = assemble(e.Wire, parseEvents(e.Text)); err != nil {
			return Answer{}, err
		}
	}
	var body object
	if err := json.Unmarshal(doc, &body); err != nil {
		return Answer{}, fmt.Errorf("reading a recorded answer: %w", err)
	}
	a := Answer{Status: e.Status}
	switch e.Wire {
	case OpenAIChat:
		a.chat(body)
	case OpenAIResponses:
		a.responses(body)
	case Anthropic:
		a.anthropic(body)
	case Gemini:
		a.gemini(body)
	default:
		return Answer{}, fmt.Errorf("reading a recorded answer: unknown wire %q", e.Wire)
	}
	return a, nil
}

func errorMessage(e *Exchange) string {
	var body object
	if json.Unmarshal(e.JSON, &body) != nil {
		return e.Text
	}
	if msg := body.obj("error").str("message"); msg != "" {
		return msg
	}
	return body.str("message")
}

func (a *Answer) thought(s string) {
	if s != "" {
		a.Thoughts = append(a.Thoughts, s)
	}
}

func (a *Answer) chat(body object) {
	a.Model = body.str("model")
	usage := body.obj("usage")
	a.Usage = Usage{
		Prompt: number(usage, "prompt_tokens"), Completion: number(usage, "completion_tokens"),
		Cached:     number(usage.obj("prompt_tokens_details"), "cached_tokens"),
		CacheWrite: number(usage.obj("prompt_tokens_details"), "cache_write_tokens"),
		Thoughts:   number(usage.obj("completion_tokens_details"), "reasoning_tokens"),
	}
	a.Usage.Total = a.Usage.Prompt + a.Usage.Completion
	choices := body.list("choices")
	if len(choices) == 0 {
		return
	}
	a.Finish = choices[0].str("finish_reason")
	msg := choices[0].obj("message")
	if msg.has("reasoning_content") {
		a.thought(msg.str("reasoning_content"))
	} else {
		a.thought(msg.str("reasoning"))
	}
	a.Text = msg.str("content") + msg.str("refusal")
	for _, part := range msg.list("content") {
		a.Text += part.str("text")
		var thinking strings.Builder
		for _, t := range part.list("thinking") {
			thinking.WriteString(t.str("text"))
		}
		a.thought(thinking.String())
	}
	for _, call := range msg.list("tool_calls") {
		fn := call.obj("function")
		a.Calls = append(a.Calls, ToolCall{ID: call.str("id"), Name: fn.str("name"), Args: fn.str("arguments")})
	}
	said := Request{}
	said.add(Item{Kind: Assistant, Text: a.Text})
	for _, c := range a.Calls {
		said.add(Item{Kind: Call, ID: c.ID, Name: c.Name, Args: c.Args})
	}
	a.Items = said.Items
}

func (a *Answer) responses(body object) {
	a.Model = body.str("model")
	usage := body.obj("usage")
	a.Usage = Usage{
		Prompt: number(usage, "input_tokens"), Completion: number(usage, "output_tokens"),
		Cached:     number(usage.obj("input_tokens_details"), "cached_tokens"),
		CacheWrite: number(usage.obj("input_tokens_details"), "cache_write_tokens"),
		Thoughts:   number(usage.obj("output_tokens_details"), "reasoning_tokens"),
	}
	a.Usage.Total = a.Usage.Prompt + a.Usage.Completion
	a.Finish = body.str("status")
	if reason := body.obj("incomplete_details").str("reason"); reason != "" {
		a.Finish = reason
	}
	said := Request{}
	for _, item := range body.list("output") {
		if item.str("type") != "code_interpreter_call" {
			said.item(item)
		}
		switch item.str("type") {
		case "message":
			for _, part := range item.list("content") {
				a.Text += part.str("text") + part.str("refusal")
			}
		case "reasoning":
			for _, part := range append(item.list("summary"), item.list("content")...) {
				a.thought(part.str("text"))
			}
		case "function_call":
			call := ToolCall{ID: item.str("call_id"), Name: item.str("name"), Args: item.str("arguments")}
			a.Calls = append(a.Calls, call)
		}
	}
	a.Items = said.Items
}

func (a *Answer) anthropic(body object) {
	a.Model, a.Finish = body.str("model"), body.str("stop_reason")
	usage := body.obj("usage")
	a.Usage = Usage{
		Prompt: number(usage, "input_tokens") + number(usage, "cache_creation_input_tokens") +
			number(usage, "cache_read_input_tokens"),
		Completion:     number(usage, "output_tokens"),
		Cached:         number(usage, "cache_read_input_tokens"),
		Thoughts:       number(usage.obj("output_tokens_details"), "thinking_tokens"),
		CacheWrite:     number(usage, "cache_creation_input_tokens"),
		CacheWriteHour: number(usage.obj("cache_creation"), "ephemeral_1h_input_tokens"),
	}
	a.Usage.Total = a.Usage.Prompt + a.Usage.Completion
	said := Request{}
	for _, block := range body.list("content") {
		said.block(Assistant, block)
		switch block.str("type") {
		case "text":
			a.Text += block.str("text")
		case "thinking":
			a.thought(block.str("thinking"))
		case "tool_use":
			call := ToolCall{ID: block.str("id"), Name: block.str("name"), Args: string(block["input"])}
			a.Calls = append(a.Calls, call)
		}
	}
	a.Items = said.Items
}

func (a *Answer) gemini(body object) {
	a.Model = body.str("modelVersion")
	usage := body.obj("usageMetadata")
	a.Usage = Usage{
		Prompt:     number(usage, "promptTokenCount") + number(usage, "toolUsePromptTokenCount"),
		Completion: number(usage, "candidatesTokenCount") + number(usage, "thoughtsTokenCount"),
		Cached:     number(usage, "cachedContentTokenCount"), Thoughts: number(usage, "thoughtsTokenCount"),
	}
	a.Usage.Total = a.Usage.Prompt + a.Usage.Completion
	a.Finish = body.obj("promptFeedback").str("blockReason")
	candidates := body.list("candidates")
	if len(candidates) == 0 {
		return
	}
	a.Finish = candidates[0].str("finishReason")
	said := Request{}
	for _, part := range candidates[0].obj("content").list("parts") {
		said.part(Assistant, part)
		switch {
		case part.has("functionCall"):
			call := part.obj("functionCall")
			args := string(call["args"])
			if args == "" {
				args = "{}"
			}
			a.Calls = append(a.Calls, ToolCall{ID: call.str("id"), Name: call.str("name"), Args: args})
		case string(part["thought"]) == "true":
			a.thought(part.str("text"))
		default:
			a.Text += part.str("text")
		}
	}
	a.Items = said.Items
}

// number returns the integer at a key, 0 if there is none.
func number(o object, key string) int64 {
	var n int64
	if json.Unmarshal(o[key], &n) != nil {
		return 0
	}
	return n
}
