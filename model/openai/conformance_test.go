package openai

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/modeltest"
)

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func dataFrame(v any) string { return "data: " + mustJSON(v) + "\n\n" }

type obj = map[string]any

// chatFrame is one chunk with a delta, as OpenAI sends it.
func chatFrame(delta obj, finish any) string {
	return dataFrame(obj{
		"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "test-model-1", "usage": nil,
		"choices": []any{obj{"index": 0, "delta": delta, "finish_reason": finish}},
	})
}

func encodeChat(a modeltest.Response) modeltest.Wire {
	frames := []string{chatFrame(obj{"role": "assistant", "content": nil}, nil)}
	finish, calls := "stop", 0
	for _, p := range a.Pieces {
		switch {
		case p.Text != "":
			frames = append(frames, chatFrame(obj{"content": p.Text}, nil))
		case p.Thought != "":
			frames = append(frames, chatFrame(obj{"reasoning_content": p.Thought}, nil))
		case p.Call != nil:
			finish = "tool_calls"
			half := len(p.Call.Args) / 2
			first := obj{"index": calls, "type": "function", "function": obj{"name": p.Call.Name, "arguments": p.Call.Args[:half]}}
			if p.Call.ID != "" {
				first["id"] = p.Call.ID
			}
			frames = append(frames,
				chatFrame(obj{"tool_calls": []any{first}}, nil),
				chatFrame(obj{"tool_calls": []any{obj{"index": calls, "function": obj{"arguments": p.Call.Args[half:]}}}}, nil))
			calls++
		}
	}
	if a.Finish == genai.FinishReasonMaxTokens {
		finish = "length"
	}
	u := a.Usage
	frames = append(frames, chatFrame(obj{}, finish),
		dataFrame(obj{"model": "test-model-1", "choices": []any{}, "usage": obj{
			"prompt_tokens": u.Prompt, "completion_tokens": u.Completion, "total_tokens": u.Total,
			"prompt_tokens_details": obj{"cached_tokens": u.Cached, "cache_write_tokens": u.CacheWrite}, "completion_tokens_details": obj{"reasoning_tokens": u.Thoughts},
		}}),
		"data: [DONE]\n\n")
	return modeltest.Wire{Frames: frames, Needed: len(frames) - 1}
}

// event is one event of the Responses API.
func event(kind string, fields obj) string {
	fields["type"] = kind
	return "event: " + kind + "\n" + dataFrame(fields)
}

// responsesEncoder numbers the items of one answer.
type responsesEncoder struct {
	frames []string
	output []any
	open   string
	text   strings.Builder
}

func (e *responsesEncoder) emit(kind string, fields obj) {
	fields["output_index"] = len(e.output)
	e.frames = append(e.frames, event(kind, fields))
}

func (e *responsesEncoder) done(item obj) {
	e.emit("response.output_item.done", obj{"item": item})
	e.output = append(e.output, item)
	e.open = ""
	e.text.Reset()
}

func (e *responsesEncoder) into(kind string) {
	if e.open == kind {
		return
	}
	e.stop()
	e.open = kind
	e.emit("response.output_item.added", obj{"item": obj{"type": kind, "id": "item_1"}})
}

func (e *responsesEncoder) stop() {
	switch text := e.text.String(); e.open {
	case "message":
		e.done(obj{"type": "message", "id": "msg_1", "role": "assistant", "content": []any{obj{"type": "output_text", "text": text, "annotations": []any{}}}})
	case "reasoning":
		e.done(obj{"type": "reasoning", "id": "rs_1", "summary": []any{obj{"type": "summary_text", "text": text}}, "encrypted_content": "ZW5j"})
	}
}

func encodeResponses(a modeltest.Response) modeltest.Wire {
	e := &responsesEncoder{frames: []string{event("response.created", obj{"response": obj{"status": "in_progress", "model": "test-model-1", "output": []any{}, "error": nil}})}}
	for _, p := range a.Pieces {
		switch {
		case p.Text != "":
			e.into("message")
			e.text.WriteString(p.Text)
			e.emit("response.output_text.delta", obj{"delta": p.Text})
		case p.Thought != "":
			e.into("reasoning")
			e.text.WriteString(p.Thought)
			e.emit("response.reasoning_summary_text.delta", obj{"delta": p.Thought})
		case p.Call != nil:
			e.stop()
			e.emit("response.output_item.added", obj{"item": obj{"type": "function_call", "call_id": p.Call.ID, "name": p.Call.Name, "arguments": ""}})
			e.emit("response.function_call_arguments.delta", obj{"delta": p.Call.Args})
			e.emit("response.function_call_arguments.done", obj{"arguments": p.Call.Args})
			e.done(obj{"type": "function_call", "id": "fc_1", "call_id": p.Call.ID, "name": p.Call.Name, "arguments": p.Call.Args, "status": "completed"})
		}
	}
	e.stop()
	u := a.Usage
	last := obj{"status": "completed", "model": "test-model-1", "output": e.output, "error": nil, "usage": obj{
		"input_tokens": u.Prompt, "output_tokens": u.Completion, "total_tokens": u.Total,
		"input_tokens_details": obj{"cached_tokens": u.Cached, "cache_write_tokens": u.CacheWrite}, "output_tokens_details": obj{"reasoning_tokens": u.Thoughts},
	}}
	kind := "response.completed"
	if a.Finish == genai.FinishReasonMaxTokens {
		kind, last["status"], last["incomplete_details"] = "response.incomplete", "incomplete", obj{"reason": "max_output_tokens"}
	}
	return modeltest.Wire{Frames: append(e.frames, event(kind, obj{"response": last}))}
}

func errorBody(code, msg string) string {
	return mustJSON(obj{"error": obj{"message": msg, "type": "invalid_request_error", "param": nil, "code": code}})
}

// after is an answer that begins well and then has the given frames.
func after(encode func(modeltest.Response) modeltest.Wire, kind model.Kind, frames ...string) modeltest.Refusal {
	good := encode(modeltest.Response{Pieces: []modeltest.Piece{{Text: "well"}}})
	return modeltest.Refusal{Kind: kind, Wire: modeltest.Wire{Frames: append(good.Frames[:2:2], frames...)}}
}

func harness(api API, encode func(modeltest.Response) modeltest.Wire) modeltest.Harness {
	httpError := func(kind model.Kind, status int, code, msg string) modeltest.Refusal {
		return modeltest.Refusal{Kind: kind, Wire: modeltest.Wire{Status: status, Frames: []string{errorBody(code, msg)}}}
	}
	transport := http.DefaultTransport
	return modeltest.Harness{
		Open: func(_ testing.TB, baseURL, key string) model.Provider {
			return New(Config{APIKey: key, BaseURL: baseURL + "/v1", API: api, Transport: transport})
		},
		Model:       "test-model",
		Encode:      encode,
		EncodeError: func(_ int, code, msg string) string { return errorBody(code, msg) },
		Refusals: map[string]modeltest.Refusal{
			"too long":        httpError(model.KindContextTooLong, 400, "context_length_exceeded", "Your input exceeds the context window"),
			"too long, vLLM":  httpError(model.KindContextTooLong, 400, "400", "This model's maximum context length is 4096 tokens"),
			"too long, llama": httpError(model.KindContextTooLong, 400, "exceed_context_size_error", "the request exceeds the available size"),
			"filtered":        httpError(model.KindBlocked, 400, "content_filter", "The prompt was filtered"),
			"policy":          httpError(model.KindBlocked, 400, "invalid_prompt", "Invalid prompt: flagged as potentially violating our usage policy"),
			"no quota":        httpError(model.KindRateLimited, 429, "insufficient_quota", "You exceeded your current quota"),
			"in the stream":   after(encode, model.KindUnavailable, dataFrame(obj{"error": obj{"message": "boom", "code": 502}})),
			"rate limit":      after(encode, model.KindRateLimited, dataFrame(obj{"error": obj{"message": "slow down", "code": "rate_limit_exceeded"}})),
			"as text":         after(encode, model.KindUnavailable, dataFrame(obj{"error": "boom"})),
		},
		Can: modeltest.Can{Thoughts: true, CallIDs: true, CallsWithoutID: true, BadArgs: true, ArgsText: true, CachedUsage: true, CacheWriteUsage: true, ThoughtsUsage: true},
	}
}

func TestChatConformance(t *testing.T) {
	h := harness(Chat, encodeChat)
	h.Refusals["filtered answer"] = after(encodeChat, model.KindBlocked, chatFrame(obj{}, "content_filter"), "data: [DONE]\n\n")
	h.Refusals["refused"] = after(encodeChat, model.KindBlocked, chatFrame(obj{"refusal": "no"}, nil), chatFrame(obj{}, "stop"), "data: [DONE]\n\n")
	h.Refusals["stopped by the server"] = after(encodeChat, model.KindUnavailable, chatFrame(obj{}, "error"), "data: [DONE]\n\n")
	h.Refusals["done without a reason"] = after(encodeChat, model.KindUnavailable, "data: [DONE]\n\n")
	modeltest.Run(t, h)
}

func TestResponsesConformance(t *testing.T) {
	ended := func(kind string, fields obj) string {
		fields["model"], fields["output"] = "test-model-1", []any{}
		return event(kind, obj{"response": fields})
	}
	h := harness(Responses, encodeResponses)
	h.Refusals["error event"] = after(encodeResponses, model.KindRateLimited, event("error", obj{"code": "rate_limit_exceeded", "message": "slow down"}))
	h.Refusals["failed"] = after(encodeResponses, model.KindUnavailable, ended("response.failed", obj{"status": "failed", "error": obj{"code": "server_error", "message": "boom"}}))
	h.Refusals["failed, too long"] = after(encodeResponses, model.KindContextTooLong, ended("response.failed", obj{"status": "failed", "error": obj{"code": "context_length_exceeded", "message": "Your input exceeds the context window"}}))
	h.Refusals["filtered answer"] = after(encodeResponses, model.KindBlocked, ended("response.incomplete", obj{"status": "incomplete", "incomplete_details": obj{"reason": "content_filter"}}))
	h.Refusals["incomplete"] = after(encodeResponses, model.KindUnavailable, ended("response.incomplete", obj{"status": "incomplete"}))
	h.Refusals["cancelled"] = after(encodeResponses, model.KindUnavailable, ended("response.cancelled", obj{"status": "cancelled"}))
	h.Refusals["refused"] = after(encodeResponses, model.KindBlocked, event("response.refusal.delta", obj{"output_index": 1, "delta": "no"}), ended("response.completed", obj{"status": "completed"}))
	modeltest.Run(t, h)
}
