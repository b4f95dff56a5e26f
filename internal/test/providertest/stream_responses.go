package providertest

import "encoding/json"

// responsesStream writes the events of one response.
type responsesStream struct {
	events []event
}

func streamResponses(body object) []event {
	s := &responsesStream{}
	begun := body.with("status", "in_progress")
	begun["output"] = encode([]any{})
	begun["usage"] = encode(nil)
	s.emit("response.created", object{"response": encode(begun)})
	s.emit("response.in_progress", object{"response": encode(begun)})
	for i, item := range body.list("output") {
		s.item(i, item)
	}
	switch status := body.str("status"); status {
	case "incomplete", "failed":
		s.emit("response."+status, object{"response": encode(body)})
	default:
		s.emit("response.completed", object{"response": encode(body)})
	}
	return s.events
}

// item writes one output item: added without its content, then the content in
// pieces, then the whole item as done.
func (s *responsesStream) item(index int, item object) {
	added := item
	if item.has("status") {
		added = added.with("status", "in_progress")
	}
	at := object{"output_index": encode(index), "item_id": item["id"]}
	switch item.str("type") {
	case "message":
		s.added(index, added.with("content", []any{}))
		s.parts(at, item)
	case "reasoning":
		added = added.with("summary", []any{})
		delete(added, "content")
		if enc := item.str("encrypted_content"); enc != "" {
			// What comes first is not yet what comes at the end.
			added["encrypted_content"] = encode(enc[:len(enc)/2])
		}
		s.added(index, added)
		s.summary(at, item)
		s.parts(at, item)
	case "function_call":
		s.added(index, added.with("arguments", ""))
		s.deltas("response.function_call_arguments", at, "arguments", item["arguments"])
	default:
		s.added(index, added)
	}
	s.emit("response.output_item.done", object{"output_index": encode(index), "item": encode(item)})
}

func (s *responsesStream) added(index int, item object) {
	s.emit("response.output_item.added", object{"output_index": encode(index), "item": encode(item)})
}

// summary writes the parts of a reasoning summary.
func (s *responsesStream) summary(at, item object) {
	for i, part := range item.list("summary") {
		at := at.with("summary_index", i)
		s.emit("response.reasoning_summary_part.added", at.with("part", part.with("text", "")))
		s.deltas("response.reasoning_summary_text", at, "text", part["text"])
		s.emit("response.reasoning_summary_part.done", at.with("part", part))
	}
}

// parts writes the content parts of a message or of open reasoning.
func (s *responsesStream) parts(at, item object) {
	for i, part := range item.list("content") {
		at := at.with("content_index", i)
		kind, field := part.str("type"), "text"
		if kind == "refusal" {
			field = "refusal"
		}
		empty := part.with(field, "")
		if part.has("annotations") {
			empty["annotations"] = encode([]any{})
		}
		s.emit("response.content_part.added", at.with("part", empty))
		s.deltas("response."+kind, at, field, part[field])
		for j, annotation := range part.list("annotations") {
			e := at.with("annotation_index", j)
			e["annotation"] = encode(annotation)
			s.emit("response.output_text.annotation.added", e)
		}
		s.emit("response.content_part.done", at.with("part", part))
	}
}

// deltas writes a string as deltas of a name and the done event, which repeats
// it under a field.
func (s *responsesStream) deltas(name string, at object, field string, value json.RawMessage) {
	for _, piece := range pieces(text(value)) {
		s.emit(name+".delta", at.with("delta", piece))
	}
	s.emit(name+".done", at.with(field, value))
}

func (s *responsesStream) emit(name string, fields object) {
	data := fields.with("type", name)
	data["sequence_number"] = encode(len(s.events))
	if name == "response.output_text.delta" || name == "response.output_text.done" {
		data["logprobs"] = encode([]any{})
	}
	s.events = append(s.events, event{name: name, data: string(encode(data))})
}
