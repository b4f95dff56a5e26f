package providertest

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// Wires are all wires.
var Wires = []Wire{Anthropic, Gemini, OpenAIChat, OpenAIResponses}

// Invent returns a recording of model calls on a wire that were answered so.
// Of the answers Text, Calls and Usage count; the arguments of calls have to be
// JSON objects. Its requests are empty: it can be served, and expects nothing.
func Invent(wire Wire, answers ...Answer) *Recording {
	rec := &Recording{Name: "invented " + string(wire)}
	for _, a := range answers {
		rec.Exchanges = append(rec.Exchanges, Exchange{
			Method: http.MethodPost, Wire: wire, Status: http.StatusOK,
			Header: http.Header{"Content-Type": {"application/json"}}, JSON: encode(invented[wire](a)),
		})
	}
	return rec
}

// ErrorBody is the body of an error in the form of a wire's provider.
func ErrorBody(wire Wire, status int, code, message string) []byte {
	switch wire {
	case Anthropic:
		return encode(map[string]any{"type": "error", "error": map[string]any{"type": code, "message": message}})
	case Gemini:
		return encode(map[string]any{"error": map[string]any{"code": status, "message": message, "status": code}})
	default:
		said := map[string]any{"message": message, "type": code, "param": nil, "code": code}
		return encode(map[string]any{"error": said})
	}
}

// invented are the answers' documents by wire.
var invented = map[Wire]func(Answer) any{
	Anthropic: func(a Answer) any {
		blocks, stop := []any{}, "end_turn"
		if a.Text != "" {
			blocks = append(blocks, map[string]any{"type": "text", "text": a.Text})
		}
		for i, c := range a.Calls {
			stop = "tool_use"
			blocks = append(blocks, map[string]any{
				"type": "tool_use", "id": callID(c, i), "name": c.Name, "input": json.RawMessage(c.Args),
			})
		}
		return map[string]any{
			"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-invented", "content": blocks,
			"stop_reason": stop, "stop_sequence": nil,
			"usage": map[string]any{
				"input_tokens":                a.Usage.Prompt - a.Usage.CacheWrite - a.Usage.Cached,
				"cache_creation_input_tokens": a.Usage.CacheWrite,
				"cache_read_input_tokens":     a.Usage.Cached,
				"output_tokens":               a.Usage.Completion,
			},
		}
	},
	Gemini: func(a Answer) any {
		parts := []any{}
		if a.Text != "" {
			parts = append(parts, map[string]any{"text": a.Text})
		}
		for _, c := range a.Calls {
			call := map[string]any{"name": c.Name, "args": json.RawMessage(c.Args)}
			if c.ID != "" {
				call["id"] = c.ID
			}
			parts = append(parts, map[string]any{"functionCall": call})
		}
		return map[string]any{
			"candidates": []any{map[string]any{
				"content": map[string]any{"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0,
			}},
			"usageMetadata": map[string]any{
				"promptTokenCount":        a.Usage.Prompt,
				"candidatesTokenCount":    a.Usage.Completion - a.Usage.Thoughts,
				"cachedContentTokenCount": a.Usage.Cached,
				"thoughtsTokenCount":      a.Usage.Thoughts,
				"totalTokenCount":         a.Usage.Total,
			},
			"modelVersion": "gemini-invented", "responseId": "1",
		}
	},
	OpenAIChat: func(a Answer) any {
		msg, finish := map[string]any{"role": "assistant", "content": nil, "refusal": nil}, "stop"
		if a.Text != "" {
			msg["content"] = a.Text
		}
		var calls []any
		for i, c := range a.Calls {
			finish = "tool_calls"
			calls = append(calls, map[string]any{
				"id": callID(c, i), "type": "function", "function": map[string]any{"name": c.Name, "arguments": c.Args},
			})
		}
		if calls != nil {
			msg["tool_calls"] = calls
		}
		return map[string]any{
			"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-invented",
			"choices": []any{map[string]any{"index": 0, "message": msg, "logprobs": nil, "finish_reason": finish}},
			"usage": map[string]any{
				"prompt_tokens": a.Usage.Prompt, "completion_tokens": a.Usage.Completion, "total_tokens": a.Usage.Total,
				"prompt_tokens_details":     map[string]any{"cached_tokens": a.Usage.Cached},
				"completion_tokens_details": map[string]any{"reasoning_tokens": a.Usage.Thoughts},
			},
		}
	},
	OpenAIResponses: func(a Answer) any {
		output := []any{}
		if a.Text != "" {
			output = append(output, map[string]any{
				"id": "msg_1", "type": "message", "status": "completed", "role": "assistant",
				"content": []any{map[string]any{"type": "output_text", "text": a.Text, "annotations": []any{}}},
			})
		}
		for i, c := range a.Calls {
			output = append(output, map[string]any{
				"id": fmt.Sprintf("fc_%d", i), "type": "function_call", "status": "completed",
				"call_id": callID(c, i), "name": c.Name, "arguments": c.Args,
			})
		}
		return map[string]any{
			"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "gpt-invented",
			"error": nil, "incomplete_details": nil, "output": output,
			"usage": map[string]any{
				"input_tokens": a.Usage.Prompt, "output_tokens": a.Usage.Completion, "total_tokens": a.Usage.Total,
				"input_tokens_details":  map[string]any{"cached_tokens": a.Usage.Cached},
				"output_tokens_details": map[string]any{"reasoning_tokens": a.Usage.Thoughts},
			},
		}
	},
}

// callID is the id of an answer's i-th call, on wires that need one.
func callID(c ToolCall, i int) string {
	if c.ID == "" {
		return fmt.Sprintf("call_%d", i)
	}
	return c.ID
}
