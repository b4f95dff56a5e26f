package providertest

import "encoding/json"

// anthropicStream writes the events of one message.
type anthropicStream struct {
	events []event
}

func streamAnthropic(body object) []event {
	s := &anthropicStream{}
	begun := body.with("content", []any{})
	begun["stop_reason"], begun["stop_sequence"] = encode(nil), encode(nil)
	begun["usage"] = encode(body.obj("usage").with("output_tokens", 1))
	s.emit("message_start", object{"message": encode(begun)})
	for i, block := range body.list("content") {
		s.block(i, block)
	}
	delta := object{"stop_reason": body["stop_reason"], "stop_sequence": encode(nil)}
	if body.has("stop_sequence") {
		delta["stop_sequence"] = body["stop_sequence"]
	}
	usage := make(object)
	for _, k := range []string{
		"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens", "server_tool_use",
	} {
		if v, ok := body.obj("usage")[k]; ok {
			usage[k] = v
		}
	}
	s.emit("message_delta", object{"delta": encode(delta), "usage": encode(usage)})
	s.emit("message_stop", object{})
	return s.events
}

// block writes one content block. A ping follows the first start, as the real
// service has it; blocks that have no deltas come whole with their start.
func (s *anthropicStream) block(index int, block object) {
	start, deltas := block, []object(nil)
	switch block.str("type") {
	case "text":
		start = block.with("text", "")
		delete(start, "citations")
		for _, c := range block.list("citations") {
			deltas = append(deltas, object{"type": encode("citations_delta"), "citation": encode(c)})
		}
		deltas = append(deltas, textDeltas("text_delta", "text", block["text"])...)
	case "thinking":
		start = block.with("thinking", "").with("signature", "")
		deltas = textDeltas("thinking_delta", "thinking", block["thinking"])
		if block.has("signature") {
			deltas = append(deltas, object{"type": encode("signature_delta"), "signature": block["signature"]})
		}
	case "tool_use", "server_tool_use", "mcp_tool_use":
		start = block.with("input", object{})
		deltas = inputDeltas(block["input"])
	}
	s.emit("content_block_start", object{"index": encode(index), "content_block": encode(start)})
	if index == 0 {
		s.emit("ping", object{})
	}
	for _, d := range deltas {
		s.emit("content_block_delta", object{"index": encode(index), "delta": encode(d)})
	}
	s.emit("content_block_stop", object{"index": encode(index)})
}

func textDeltas(kind, field string, value json.RawMessage) []object {
	var deltas []object
	for _, piece := range pieces(text(value)) {
		deltas = append(deltas, object{"type": encode(kind), field: encode(piece)})
	}
	return deltas
}

// inputDeltas cuts a tool's input into pieces of JSON. The first is always
// empty, and of an input without fields it is the only one.
func inputDeltas(input json.RawMessage) []object {
	values := []string{""}
	if string(input) != "{}" {
		values = append(values, pieces(string(input))...)
	}
	var deltas []object
	for _, v := range values {
		deltas = append(deltas, object{"type": encode("input_json_delta"), "partial_json": encode(v)})
	}
	return deltas
}

func (s *anthropicStream) emit(name string, fields object) {
	s.events = append(s.events, event{name: name, data: string(encode(fields.with("type", name)))})
}
