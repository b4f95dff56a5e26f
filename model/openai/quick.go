package openai

import (
	"encoding/json"

	"github.com/apzuk3/agentd/model/internal/wire"
)

// quickChunk is where the common event of a chat completions stream is decoded, one after another: text or thinking of
// one choice.
type quickChunk struct {
	chunk   chunk
	choices [1]chatChoice
	delta   chatDelta
}

// read returns what json.Unmarshal makes of an event, and nil for one that is not common. It is valid until the next
// event is read, and as long as data. model is the name that the model probably has.
func (q *quickChunk) read(data []byte, model string) *chunk {
	q.chunk = chunk{}
	s := wire.NewScan(data)
	chosen := false
	for s.Enter('{'); s.Next('}'); {
		switch key := s.Key(); string(key) {
		case "model":
			q.chunk.Model = s.String(model)
		case "choices":
			s.Once(&chosen)
			q.readChoices(&s)
		case "usage":
			q.chunk.Usage = json.RawMessage(s.Raw())
		case "x_groq", "error", "search_results":
			s.Fail()
		default:
			s.Unknown(key, "model", "choices", "usage", "x_groq", "error", "search_results")
		}
	}
	if !s.Done() {
		return nil
	}
	return &q.chunk
}

func (q *quickChunk) readChoices(s *wire.Scan) {
	q.chunk.Choices = q.choices[:0]
	for s.Enter('['); s.Next(']'); {
		if len(q.chunk.Choices) == 1 {
			s.Fail()
			return
		}
		q.chunk.Choices = q.choices[:]
		q.choices[0], q.delta = chatChoice{}, chatDelta{}
		q.readChoice(s, &q.choices[0])
	}
}

func (q *quickChunk) readChoice(s *wire.Scan, c *chatChoice) {
	changed := false
	for s.Enter('{'); s.Next('}'); {
		switch key := s.Key(); string(key) {
		case "index":
			c.Index = s.Int()
		case "delta":
			s.Once(&changed)
			c.Delta = &q.delta
			q.delta.quick(s)
		case "finish_reason":
			readText(s, &c.FinishReason)
		case "content_filter_results":
			c.Filter = json.RawMessage(s.Raw())
		case "message":
			s.Fail()
		default:
			s.Unknown(key, "index", "delta", "finish_reason", "content_filter_results", "message")
		}
	}
}

func (d *chatDelta) quick(s *wire.Scan) {
	for s.Enter('{'); s.Next('}'); {
		switch key := s.Key(); string(key) {
		case "content":
			if d.text = ""; !s.Null() {
				d.text = s.String("")
			}
		case "reasoning_content":
			readText(s, &d.ReasoningContent)
		case "reasoning":
			readText(s, &d.Reasoning)
		case "refusal":
			readText(s, &d.Refusal)
		case "reasoning_details", "tool_calls", "annotations", "executed_tools":
			s.Fail()
		default:
			s.Unknown(key, "content", "reasoning_content", "reasoning", "refusal", "reasoning_details", "tool_calls",
				"annotations", "executed_tools")
		}
	}
}

// readText reads a text, which a null leaves as it is.
func readText(s *wire.Scan, to *string) {
	if !s.Null() {
		*to = s.String("")
	}
}

// quick decodes a piece of text, thinking or arguments into ev, whatever it held, as json.Unmarshal does, and reports
// whether data is one. Most of a stream of responses is such pieces.
func (ev *responsesEvent) quick(data []byte) bool {
	kind := ev.Type // as a rule that of the event before
	*ev = responsesEvent{}
	s := wire.NewScan(data)
	for s.Enter('{'); s.Next('}'); {
		switch key := s.Key(); string(key) {
		case "type":
			ev.Type = s.String(kind)
		case "output_index":
			ev.OutputIndex = s.Int()
		case "summary_index":
			ev.SummaryIndex = s.Int()
		case "delta":
			ev.Delta = s.String("")
		case "arguments", "item", "response", "usage":
			s.Fail()
		default:
			s.Unknown(key, "type", "output_index", "summary_index", "delta", "arguments", "item", "response", "usage")
		}
	}
	if !s.Done() {
		return false
	}
	switch ev.Type {
	case "response.output_text.delta", "response.refusal.delta", "response.reasoning_summary_text.delta",
		"response.reasoning_text.delta", "response.function_call_arguments.delta":
		return true
	default:
		return false
	}
}
