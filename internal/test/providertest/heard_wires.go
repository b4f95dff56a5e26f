package providertest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
)

func (h *hearing) chat(data []byte) {
	type message struct {
		Content          json.RawMessage `json:"content"`
		ReasoningContent string          `json:"reasoning_content"`
		Reasoning        string          `json:"reasoning"`
		Refusal          string          `json:"refusal"`
		Calls            []struct {
			Index    int `json:"index"`
			Function struct {
				Arguments json.RawMessage `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	}
	chunk := lenient[struct {
		Error   json.RawMessage `json:"error"`
		Choices []struct {
			Index   int      `json:"index"`
			Delta   *message `json:"delta"`
			Message *message `json:"message"`
			Finish  string   `json:"finish_reason"`
		} `json:"choices"`
	}](data)
	h.fails(chunk.Error)
	for _, c := range chunk.Choices {
		m := c.Delta
		if m == nil {
			m = c.Message
		}
		if c.Index != 0 {
			continue
		}
		h.Ended = h.Ended || c.Finish != ""
		h.Refused = h.Refused || c.Finish == "content_filter"
		if m == nil {
			continue
		}
		if m.ReasoningContent == "" {
			m.ReasoningContent = m.Reasoning
		}
		h.thoughts.WriteString(m.ReasoningContent)
		h.text.WriteString(text(m.Content))
		for _, p := range lenient[[]struct {
			Type     string `json:"type"`
			Text     string `json:"text"`
			Thinking []struct {
				Text string `json:"text"`
			} `json:"thinking"`
		}](m.Content) {
			for _, t := range p.Thinking {
				h.thoughts.WriteString(t.Text)
			}
			if p.Type == "text" {
				h.text.WriteString(p.Text)
			}
		}
		h.Refused = h.Refused || m.Refusal != ""
		for _, call := range m.Calls {
			args := text(call.Function.Arguments)
			if args == "" && present(call.Function.Arguments) && call.Function.Arguments[0] != '"' {
				args = string(call.Function.Arguments)
			}
			h.call(call.Index).WriteString(args)
		}
	}
}

// said is an item or the whole of a response.
type said struct {
	CallID    string     `json:"call_id"`
	Type      string     `json:"type"`
	Arguments string     `json:"arguments"`
	Content   []saidPart `json:"content"`
	Summary   []saidPart `json:"summary"`
}

type saidPart struct {
	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
}

// text is the text of a message.
func (s *said) text() string {
	var b strings.Builder
	for _, c := range s.Content {
		if c.Type == "output_text" {
			b.WriteString(c.Text)
		}
	}
	return b.String()
}

func (h *hearing) responses(data []byte) (last bool) {
	ev := lenient[struct {
		Type      string          `json:"type"`
		Index     int             `json:"output_index"`
		Delta     string          `json:"delta"`
		Arguments string          `json:"arguments"`
		Item      json.RawMessage `json:"item"`
		Response  struct {
			Error  json.RawMessage   `json:"error"`
			Output []json.RawMessage `json:"output"`
		} `json:"response"`
	}](data)
	if h.items[ev.Index] == nil {
		h.items[ev.Index] = new(heardItem)
	}
	it := h.items[ev.Index]
	switch ev.Type {
	case "response.output_text.delta":
		h.text.WriteString(ev.Delta)
		it.text += ev.Delta
	case "response.refusal.delta":
		h.Refused = true
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		h.thoughts.WriteString(ev.Delta)
		it.thought += ev.Delta
	case "response.function_call_arguments.delta":
		it.args += ev.Delta
	case "response.function_call_arguments.done":
		it.args = cmp.Or(ev.Arguments, it.args)
	case "response.output_item.done":
		h.done = true
		h.item(it, lenient[said](ev.Item))
	case "error", "":
		h.Broken, h.Refused = true, true
	case "response.failed", "response.cancelled":
		h.Broken, h.Refused, last = true, true, true
	case "response.completed", "response.incomplete":
		h.Ended, last = true, true
		h.fails(ev.Response.Error)
		h.Refused = h.Refused || ev.Type == "response.incomplete"
		h.whole(ev.Response.Output)
	}
	return last
}

// item hears a finished item, of which a part was streamed.
func (h *hearing) item(streamed *heardItem, s said) {
	switch s.Type {
	case "message":
		whole := s.text()
		if rest, ok := strings.CutPrefix(whole, streamed.text); ok {
			h.text.WriteString(rest)
		} else if strings.TrimSpace(whole) != strings.TrimSpace(streamed.text) && whole != "" {
			h.Broken = true
		}
		for _, c := range s.Content {
			h.Refused = h.Refused || c.Type == "refusal"
		}
	case "reasoning":
		if streamed.thought == "" {
			for _, p := range append(s.Summary, s.Content...) {
				h.thoughts.WriteString(p.Text)
			}
		}
	case "function_call":
		h.call(len(h.calls)).WriteString(cmp.Or(s.Arguments, streamed.args))
	}
}

// whole hears the items that the last event repeats: all there is when none was
// finished before, else nothing new.
func (h *hearing) whole(output []json.RawMessage) {
	var words strings.Builder
	calls := map[string]bool{}
	for _, raw := range output {
		s := lenient[said](raw)
		words.WriteString(s.text())
		if s.Type == "function_call" {
			calls[s.CallID] = true
		}
	}
	if !h.done {
		for i, raw := range output {
			streamed := h.items[i]
			if streamed == nil {
				streamed = new(heardItem)
			}
			h.item(streamed, lenient[said](raw))
		}
		return
	}
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
	if words.Len() > 0 && squeeze(words.String()) != squeeze(h.text.String()) {
		h.Broken = h.Broken || !h.Refused
	}
	if len(calls) > len(h.order) {
		h.Broken = h.Broken || !h.Refused
	}
}

func (h *hearing) anthropic(data []byte) (last bool) {
	ev := lenient[struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
		Block struct {
			Type     string          `json:"type"`
			Text     string          `json:"text"`
			Thinking string          `json:"thinking"`
			Input    json.RawMessage `json:"input"`
		} `json:"content_block"`
		Delta struct {
			Type     string `json:"type"`
			Text     string `json:"text"`
			Thinking string `json:"thinking"`
			Partial  string `json:"partial_json"`
			Stop     string `json:"stop_reason"`
		} `json:"delta"`
	}](data)
	switch ev.Type {
	case "content_block_start":
		h.other = ev.Block.Type != "tool_use"
		switch ev.Block.Type {
		case "text":
			h.text.WriteString(ev.Block.Text)
		case "thinking":
			h.thoughts.WriteString(ev.Block.Thinking)
		case "tool_use":
			h.begun = false
			args := h.call(len(h.calls))
			if in := string(bytes.TrimSpace(ev.Block.Input)); in != "{}" && in != "null" {
				args.WriteString(in)
				h.begun = true
			}
		}
	case "content_block_delta":
		switch ev.Delta.Type {
		case "text_delta":
			h.text.WriteString(ev.Delta.Text)
		case "thinking_delta":
			h.thoughts.WriteString(ev.Delta.Thinking)
		case "input_json_delta":
			if n := len(h.calls); n > 0 && !h.other {
				if h.begun && ev.Delta.Partial != "" {
					h.call(n - 1).Reset() // The pieces are the whole of it.
					h.begun = false
				}
				h.call(n - 1).WriteString(ev.Delta.Partial)
			}
		}
	case "message_delta":
		h.Refused = h.Refused || ev.Delta.Stop == "refusal"
	case "error":
		h.Broken, h.Refused = true, true
	case "message_stop":
		h.Ended, last = true, true
	}
	return last
}

func (h *hearing) gemini(data []byte) {
	chunk := lenient[struct {
		Error      json.RawMessage `json:"error"`
		Candidates []struct {
			Index   int `json:"index"`
			Content struct {
				Parts []struct {
					Text    string `json:"text"`
					Thought bool   `json:"thought"`
					Call    *struct {
						Args json.RawMessage `json:"args"`
					} `json:"functionCall"`
				} `json:"parts"`
			} `json:"content"`
			Finish string `json:"finishReason"`
		} `json:"candidates"`
		Feedback struct {
			Block string `json:"blockReason"`
		} `json:"promptFeedback"`
	}](data)
	h.fails(chunk.Error)
	if chunk.Feedback.Block != "" {
		h.Broken, h.Refused = true, true
	}
	for _, c := range chunk.Candidates {
		if c.Index != 0 {
			continue
		}
		h.Ended = h.Ended || c.Finish != ""
		for _, p := range c.Content.Parts {
			switch {
			case p.Call != nil:
				h.call(len(h.calls)).Write(p.Call.Args)
			case p.Thought:
				h.thoughts.WriteString(p.Text)
			default:
				h.text.WriteString(p.Text)
			}
		}
	}
}
