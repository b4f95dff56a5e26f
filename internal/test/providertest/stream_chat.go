package providertest

import (
	"encoding/json"
	"maps"
)

// chatStream writes the chunks of one chat completion.
type chatStream struct {
	// base holds what every chunk repeats.
	base object
	// noUsage is set where chunks carry "usage": null because the last one has it.
	noUsage bool
	events  []event
}

func streamChat(request, body object) []event {
	s := &chatStream{noUsage: includeUsage(request)}
	s.base = make(object)
	for k, v := range body {
		if k != "choices" && k != "usage" {
			s.base[k] = v
		}
	}
	s.base["object"] = encode("chat.completion.chunk")
	for _, choice := range body.list("choices") {
		s.choice(choice)
	}
	if s.noUsage {
		chunk := s.base.with("choices", []any{})
		chunk["usage"] = body["usage"]
		s.events = append(s.events, event{data: string(encode(chunk))})
	}
	return append(s.events, event{data: "[DONE]"})
}

// includeUsage reports whether the client asked for the chunk with the usage;
// without stream_options.include_usage a stream has none.
func includeUsage(request object) bool {
	return string(request.obj("stream_options")["include_usage"]) == "true"
}

// choice writes one choice: the role, then reasoning, with its signatures behind it,
// text and refusal, the tool calls, whatever else the message holds, and the finish reason.
func (s *chatStream) choice(choice object) {
	msg := choice.obj("message")
	first := object{"role": encode("assistant")}
	if len(msg.list("tool_calls")) == 0 {
		first["content"] = encode("")
	}
	s.delta(choice, first, "")
	details := msg.list("reasoning_details")
	for _, field := range []string{"reasoning_content", "reasoning"} {
		for _, piece := range pieces(msg.str(field)) {
			delta := object{field: encode(piece)}
			for _, d := range details {
				if d.str("text") == msg.str(field) {
					d = d.with("text", piece)
					delete(d, "signature")
					delta["reasoning_details"] = encode([]object{d})
				}
			}
			s.delta(choice, delta, "")
		}
	}
	for _, d := range details {
		if d.has("text") {
			if !d.has("signature") {
				continue
			}
			d = d.with("text", "")
		}
		s.delta(choice, object{"reasoning_details": encode([]object{d})}, "")
	}
	s.content(choice, msg["content"])
	for _, piece := range pieces(msg.str("refusal")) {
		s.delta(choice, object{"refusal": encode(piece)}, "")
	}
	for i, call := range msg.list("tool_calls") {
		s.call(choice, i, call)
	}
	rest := maps.Clone(msg)
	for _, k := range []string{
		"role", "content", "reasoning_content", "reasoning", "reasoning_details", "refusal", "tool_calls",
	} {
		delete(rest, k)
	}
	maps.DeleteFunc(rest, func(_ string, v json.RawMessage) bool { return !present(v) || string(v) == "[]" })
	if len(rest) > 0 {
		s.delta(choice, rest, "")
	}
	s.delta(choice, object{}, choice.str("finish_reason"))
}

// content writes a message's content: a string, or the parts that some servers
// send when the model thinks; those stay parts in the deltas of the thinking.
func (s *chatStream) content(choice object, content json.RawMessage) {
	for _, piece := range pieces(text(content)) {
		s.delta(choice, object{"content": encode(piece)}, "")
	}
	for _, part := range objects(content) {
		if part.str("type") == "text" {
			s.content(choice, part["text"])
			continue
		}
		for _, thought := range part.list("thinking") {
			for _, piece := range pieces(thought.str("text")) {
				delta := object{"type": encode("thinking"), "thinking": encode([]object{thought.with("text", piece)})}
				s.delta(choice, object{"content": encode([]object{delta})}, "")
			}
		}
	}
}

// call writes one tool call: id and name first, then the arguments in pieces.
func (s *chatStream) call(choice object, index int, call object) {
	fn := call.obj("function")
	start := call.with("index", index)
	start["type"] = encode("function")
	start["function"] = encode(object{"name": fn["name"], "arguments": encode("")})
	s.delta(choice, object{"tool_calls": encode([]object{start})}, "")
	for _, piece := range pieces(fn.str("arguments")) {
		more := object{"index": encode(index), "function": encode(object{"arguments": encode(piece)})}
		s.delta(choice, object{"tool_calls": encode([]object{more})}, "")
	}
}

func (s *chatStream) delta(choice, delta object, finish string) {
	c := object{"index": choice["index"], "delta": encode(delta), "finish_reason": encode(nil)}
	if _, ok := choice["logprobs"]; ok {
		c["logprobs"] = encode(nil)
	}
	if finish != "" {
		c["finish_reason"] = encode(finish)
	}
	chunk := s.base.with("choices", []object{c})
	if s.noUsage {
		chunk["usage"] = encode(nil)
	}
	s.events = append(s.events, event{data: string(encode(chunk))})
}
