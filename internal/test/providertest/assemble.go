package providertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// errTruncated is a stream without the event that ends it.
var errTruncated = errors.New("the stream has no end: it was cut short")

// assemble joins the events of a stream to the JSON document that a client that
// does not stream would have got; as far as [Answer] goes, no further.
func assemble(wire Wire, events []event) (json.RawMessage, error) {
	var objs []object
	for _, e := range events {
		if e.data == "[DONE]" {
			break
		}
		var o object
		if err := json.Unmarshal([]byte(e.data), &o); err != nil {
			return nil, fmt.Errorf("event %d of a stream: %w", len(objs), err)
		}
		objs = append(objs, o)
	}
	switch wire {
	case OpenAIChat:
		return assembleChat(objs)
	case OpenAIResponses:
		for _, o := range objs {
			switch o.str("type") {
			case "response.completed", "response.incomplete", "response.failed":
				return o["response"], nil
			}
		}
		return nil, errTruncated
	case Anthropic:
		return assembleAnthropic(objs)
	case Gemini:
		return assembleGemini(objs)
	default:
		return nil, fmt.Errorf("assembling a stream: unknown wire %q", wire)
	}
}

func assembleChat(chunks []object) (json.RawMessage, error) {
	doc := make(object)
	texts := make(map[string]string)
	calls := make(map[int64]object)
	var parts []json.RawMessage
	finish := ""
	for _, chunk := range chunks {
		for _, k := range []string{"model", "usage"} {
			if chunk.has(k) {
				doc[k] = chunk[k]
			}
		}
		for _, choice := range chunk.list("choices") {
			delta := choice.obj("delta")
			for _, k := range []string{"content", "reasoning_content", "reasoning", "refusal"} {
				texts[k] += delta.str(k)
			}
			for _, part := range delta.list("content") {
				parts = append(parts, encode(part))
			}
			for _, call := range delta.list("tool_calls") {
				mergeCall(calls, call)
			}
			if f := choice.str("finish_reason"); f != "" {
				finish = f
			}
		}
	}
	if finish == "" {
		return nil, errTruncated
	}
	msg := make(object)
	for k, v := range texts {
		if v != "" {
			msg[k] = encode(v)
		}
	}
	if len(parts) > 0 {
		text := encode(object{"type": encode("text"), "text": encode(texts["content"])})
		msg["content"] = encode(append(mergeThinking(parts), text))
	}
	list := []object{}
	for _, i := range slices.Sorted(maps.Keys(calls)) {
		list = append(list, calls[i])
	}
	msg["tool_calls"] = encode(list)
	doc["choices"] = encode([]object{{"message": encode(msg), "finish_reason": encode(finish)}})
	return encode(doc), nil
}

// mergeThinking joins the thinking parts of all deltas to one.
func mergeThinking(parts []json.RawMessage) []json.RawMessage {
	var all []json.RawMessage
	for _, part := range parts {
		var o object
		if json.Unmarshal(part, &o) == nil {
			for _, t := range o.list("thinking") {
				all = append(all, encode(t))
			}
		}
	}
	return []json.RawMessage{encode(object{"type": encode("thinking"), "thinking": encode(all)})}
}

// mergeCall adds a piece of a tool call to what is known of it.
func mergeCall(calls map[int64]object, piece object) {
	index := number(piece, "index")
	call := calls[index]
	if call == nil {
		call = object{"function": encode(object{})}
	}
	if piece.has("id") {
		call["id"] = piece["id"]
	}
	fn, more := call.obj("function"), piece.obj("function")
	if name := more.str("name"); name != "" {
		fn["name"] = encode(name)
	}
	fn["arguments"] = encode(fn.str("arguments") + more.str("arguments"))
	call["function"] = encode(fn)
	calls[index] = call
}

func assembleAnthropic(events []object) (json.RawMessage, error) {
	doc := make(object)
	var blocks []object
	ended := false
	for _, e := range events {
		switch e.str("type") {
		case "message_start":
			doc = e.obj("message")
		case "content_block_start":
			block := e.obj("content_block")
			delete(block, "input")
			blocks = append(blocks, block)
		case "content_block_delta":
			i := number(e, "index")
			if i < 0 || i >= int64(len(blocks)) {
				return nil, fmt.Errorf("a delta of block %d, which was not started", i)
			}
			mergeDelta(blocks[i], e.obj("delta"))
		case "message_delta":
			usage := doc.obj("usage")
			maps.Copy(usage, e.obj("usage"))
			doc["usage"] = encode(usage)
			maps.Copy(doc, e.obj("delta"))
		case "message_stop":
			ended = true
		}
	}
	if !ended {
		return nil, errTruncated
	}
	for _, block := range blocks {
		if block.str("type") != "tool_use" {
			continue
		}
		input := block.str("partial")
		if input == "" {
			input = "{}"
		}
		if !json.Valid([]byte(input)) {
			return nil, fmt.Errorf("the input of tool %q is not JSON: %s", block.str("name"), input)
		}
		block["input"] = json.RawMessage(input)
	}
	doc["content"] = encode(blocks)
	return encode(doc), nil
}

// mergeDelta adds a delta to its block; pieces of input gather under "partial".
func mergeDelta(block, delta object) {
	fields := map[string][2]string{
		"text_delta":       {"text", "text"},
		"thinking_delta":   {"thinking", "thinking"},
		"signature_delta":  {"signature", "signature"},
		"input_json_delta": {"partial", "partial_json"},
	}
	if f, ok := fields[delta.str("type")]; ok {
		block[f[0]] = encode(block.str(f[0]) + delta.str(f[1]))
	}
}

func assembleGemini(chunks []object) (json.RawMessage, error) {
	doc := make(object)
	var parts []object
	finish := ""
	for _, chunk := range chunks {
		maps.Copy(doc, chunk)
		for _, c := range chunk.list("candidates") {
			if f := c.str("finishReason"); f != "" {
				finish = f
			}
			for _, p := range c.obj("content").list("parts") {
				parts = appendPart(parts, p)
			}
		}
	}
	if doc.has("promptFeedback") && !doc.has("candidates") {
		return encode(doc), nil
	}
	if finish == "" {
		return nil, errTruncated
	}
	content := object{"role": encode("model"), "parts": encode(parts)}
	doc["candidates"] = encode([]object{{"content": encode(content), "finishReason": encode(finish)}})
	return encode(doc), nil
}

// appendPart joins neighboring texts of one kind, up to a signature.
func appendPart(parts []object, p object) []object {
	n := len(parts)
	if n > 0 && p.has("text") && parts[n-1].has("text") && !parts[n-1].has("thoughtSignature") &&
		string(parts[n-1]["thought"]) == string(p["thought"]) {
		p = p.with("text", parts[n-1].str("text")+p.str("text"))
		parts[n-1] = p
		return parts
	}
	return append(parts, p)
}
