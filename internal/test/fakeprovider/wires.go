package fakeprovider

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/apzuk3/agentd/internal/test/providertest"
)

// object is a JSON object.
type object = map[string]any

// data is an event without a name.
func data(v any) string { return "data: " + encode(v) + "\n\n" }

// named is an event whose name is its type.
func named(kind string, v object) string {
	v["type"] = kind
	return "event: " + kind + "\n" + data(v)
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	return string(b)
}

// idOf is the id of an answer's i-th call.
func idOf(c providertest.ToolCall, i int) string { return cmp.Or(c.ID, fmt.Sprintf("call_%d", i)) }

// argsOf are the arguments of a call; none are an empty object.
func argsOf(c providertest.ToolCall) string { return cmp.Or(c.Args, "{}") }

// chatEvents is an answer of OpenAI's chat completions.
func chatEvents(r *Reply) (said, end []string) {
	chunk := func(choices ...any) object {
		if choices == nil {
			choices = []any{}
		}
		return object{"id": "1", "object": "chat.completion.chunk", "created": 1, "model": r.Model, "choices": choices}
	}
	delta := func(d object, finish any) string {
		return data(chunk(object{"index": 0, "delta": d, "finish_reason": finish}))
	}
	for _, piece := range r.Thoughts {
		said = append(said, delta(object{"reasoning_content": piece}, nil))
	}
	for _, piece := range r.Text {
		said = append(said, delta(object{"content": piece}, nil))
	}
	finish := "stop"
	if len(r.Calls) > 0 {
		finish = "tool_calls"
	}
	for i, c := range r.Calls {
		said = append(said, delta(object{"tool_calls": []any{object{
			"index": i, "id": idOf(c, i), "type": "function",
			"function": object{"name": c.Name, "arguments": argsOf(c)},
		}}}, nil))
	}
	last := chunk()
	last["usage"] = object{
		"prompt_tokens": r.Usage.Prompt, "completion_tokens": r.Usage.Completion, "total_tokens": r.Usage.Total,
		"prompt_tokens_details":     object{"cached_tokens": r.Usage.Cached, "cache_write_tokens": r.Usage.CacheWrite},
		"completion_tokens_details": object{"reasoning_tokens": r.Usage.Thoughts},
	}
	return said, []string{delta(object{}, finish), data(last), "data: [DONE]\n\n"}
}

// anthropicEvents is an answer of Anthropic's messages.
func anthropicEvents(r *Reply) (said, end []string) {
	u := r.Usage
	usage := object{
		"input_tokens":                u.Prompt - u.Cached - u.CacheWrite,
		"cache_read_input_tokens":     u.Cached,
		"cache_creation_input_tokens": u.CacheWrite,
		"cache_creation": object{
			"ephemeral_5m_input_tokens": u.CacheWrite - u.CacheWriteHour,
			"ephemeral_1h_input_tokens": u.CacheWriteHour,
		},
		"output_tokens": 1,
	}
	said = append(said, named("message_start", object{"message": object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": r.Model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": usage,
	}}))
	index := 0
	block := func(start object, deltas ...object) {
		event := named("content_block_start", object{"index": index, "content_block": start})
		for _, d := range deltas {
			said = append(said, event+named("content_block_delta", object{"index": index, "delta": d}))
			event = ""
		}
		said[len(said)-1] += named("content_block_stop", object{"index": index})
		index++
	}
	var thoughts, text []object
	for _, piece := range r.Thoughts {
		thoughts = append(thoughts, object{"type": "thinking_delta", "thinking": piece})
	}
	for _, piece := range r.Text {
		text = append(text, object{"type": "text_delta", "text": piece})
	}
	if len(thoughts) > 0 {
		thoughts = append(thoughts, object{"type": "signature_delta", "signature": "ZmFrZQ=="})
		block(object{"type": "thinking", "thinking": "", "signature": ""}, thoughts...)
	}
	if len(text) > 0 {
		block(object{"type": "text", "text": ""}, text...)
	}
	for i, c := range r.Calls {
		block(object{"type": "tool_use", "id": idOf(c, i), "name": c.Name, "input": object{}},
			object{"type": "input_json_delta", "partial_json": argsOf(c)})
	}
	stop := "end_turn"
	if len(r.Calls) > 0 {
		stop = "tool_use"
	}
	return said, []string{
		named("message_delta", object{
			"delta": object{"stop_reason": stop, "stop_sequence": nil},
			"usage": object{"output_tokens": u.Completion},
		}),
		named("message_stop", object{}),
	}
}

// geminiEvents is an answer of Gemini's streamGenerateContent.
func geminiEvents(r *Reply) (said, end []string) {
	part := func(p object) {
		said = append(said, data(object{
			"candidates":   []any{object{"content": object{"role": "model", "parts": []any{p}}, "index": 0}},
			"modelVersion": r.Model, "responseId": "1",
		}))
	}
	for _, piece := range r.Thoughts {
		part(object{"text": piece, "thought": true})
	}
	for _, piece := range r.Text {
		part(object{"text": piece})
	}
	for _, c := range r.Calls {
		call := object{"name": c.Name, "args": json.RawMessage(argsOf(c))}
		if c.ID != "" {
			call["id"] = c.ID
		}
		part(object{"functionCall": call})
	}
	return said, []string{data(object{
		"candidates": []any{object{
			"content":      object{"role": "model", "parts": []any{object{"text": ""}}},
			"finishReason": "STOP",
			"index":        0,
		}},
		"usageMetadata": object{
			"promptTokenCount":        r.Usage.Prompt,
			"candidatesTokenCount":    r.Usage.Completion - r.Usage.Thoughts,
			"cachedContentTokenCount": r.Usage.Cached,
			"thoughtsTokenCount":      r.Usage.Thoughts,
			"totalTokenCount":         r.Usage.Total,
		},
		"modelVersion": r.Model, "responseId": "1",
	})}
}

// responsesEvents is an answer of OpenAI's responses.
func responsesEvents(r *Reply) (said, end []string) {
	number := -1
	emit := func(kind string, v object) string {
		number++
		v["sequence_number"] = number
		return named(kind, v)
	}
	response := func(status string, output []any, usage any) object {
		return object{"response": object{
			"id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": r.Model,
			"error": nil, "incomplete_details": nil, "output": output, "usage": usage,
		}}
	}
	said = append(said, emit("response.created", response("in_progress", []any{}, nil)))
	output := []any{}
	// item sends an item whose parts come in pieces between before and behind.
	item := func(open, done object, before, behind string, piece string, pieces []string, at object) {
		at["output_index"], at["item_id"] = len(output), done["id"]
		with := func(more object) object {
			all := maps.Clone(at)
			maps.Copy(all, more)
			return all
		}
		event := emit("response.output_item.added", object{"output_index": len(output), "item": open})
		if before != "" {
			event += emit(before, with(object{"part": partOf(done, "")}))
		}
		for _, p := range pieces {
			said = append(said, event+emit(piece, with(object{"delta": p})))
			event = ""
		}
		if behind != "" {
			event = emit(behind, with(object{"part": partOf(done, strings.Join(pieces, ""))}))
		}
		whole := object{"output_index": len(output), "item": done}
		said[len(said)-1] += event + emit("response.output_item.done", whole)
		output = append(output, done)
	}
	if len(r.Thoughts) > 0 {
		summary := []any{object{"type": "summary_text", "text": strings.Join(r.Thoughts, "")}}
		item(object{"id": "rs_1", "type": "reasoning", "summary": []any{}},
			object{"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": "ZmFrZQ=="},
			"response.reasoning_summary_part.added", "response.reasoning_summary_part.done",
			"response.reasoning_summary_text.delta", r.Thoughts, object{"summary_index": 0})
	}
	if len(r.Text) > 0 {
		item(object{"id": "msg_1", "type": "message", "status": "in_progress", "role": "assistant", "content": []any{}},
			object{"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": []any{
				object{"type": "output_text", "text": strings.Join(r.Text, ""), "annotations": []any{}},
			}},
			"response.content_part.added", "response.content_part.done",
			"response.output_text.delta", r.Text, object{"content_index": 0})
	}
	for i, c := range r.Calls {
		call := func(status, args string) object {
			return object{
				"id": fmt.Sprintf("fc_%d", i), "type": "function_call", "status": status,
				"call_id": idOf(c, i), "name": c.Name, "arguments": args,
			}
		}
		item(call("in_progress", ""), call("completed", argsOf(c)), "", "",
			"response.function_call_arguments.delta", []string{argsOf(c)}, object{})
	}
	usage := object{
		"input_tokens":          r.Usage.Prompt,
		"output_tokens":         r.Usage.Completion,
		"total_tokens":          r.Usage.Total,
		"input_tokens_details":  object{"cached_tokens": r.Usage.Cached},
		"output_tokens_details": object{"reasoning_tokens": r.Usage.Thoughts},
	}
	return said, []string{emit("response.completed", response("completed", output, usage))}
}

// partOf is the part of an item that has one, with a text.
func partOf(item object, text string) object {
	if item["type"] == "reasoning" {
		return object{"type": "summary_text", "text": text}
	}
	return object{"type": "output_text", "text": text, "annotations": []any{}}
}
