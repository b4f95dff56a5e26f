package providertest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// Heard is what the bytes of an event stream say up to its provider's own end
// marker, whatever happened to them on the way. An answer that an adapter takes
// for complete must be exactly this.
type Heard struct {
	// Ended is true when the end marker came: a finish reason (Gemini, chat),
	// message_stop (Anthropic), or the event that ends a response.
	Ended bool
	// Broken is true when the stream holds what no answer may be made of: data
	// that is not JSON, an error, or a last event that contradicts the ones before.
	Broken bool
	// Refused is true when the stream says an error, a refusal or a block in the
	// provider's own words, whose kind is then theirs.
	Refused bool
	// Text and Thoughts are the pieces joined.
	Text, Thoughts string
	// Calls is the number of tool calls, -1 where only the provider's heuristics
	// tell; Args are the texts of their arguments, joined, "" for each that is
	// blank or null.
	Calls int
	Args  string
}

// Hear reads a stream. It never fails: what it does not understand it does not
// hear.
func Hear(wire Wire, stream string) Heard {
	stream = strings.ReplaceAll(strings.ReplaceAll(strings.TrimPrefix(stream, "\ufeff"), "\r\n", "\n"), "\r", "\n")
	h := &hearing{calls: map[int]*strings.Builder{}, items: map[int]*heardItem{}}
	for _, e := range parseEvents(stream) {
		if (wire == OpenAIChat || wire == OpenAIResponses) && strings.HasPrefix(strings.TrimSpace(e.data), "[DONE]") {
			if wire == OpenAIChat {
				break
			}
			continue
		}
		if strings.TrimSpace(e.data) == "" {
			continue
		}
		if !json.Valid([]byte(e.data)) {
			h.Broken = true
			break
		}
		if h.event(wire, []byte(e.data)) {
			break
		}
	}
	h.Text, h.Thoughts = h.text.String(), h.thoughts.String()
	h.Calls = len(h.order)
	for _, args := range h.order {
		if s := strings.TrimSpace(args.String()); s != "null" {
			h.Args += s
		}
	}
	if wire == OpenAIChat && h.Calls > 0 {
		h.Calls = -1
	}
	return h.Heard
}

// heardItem is what was streamed of an item before it was finished.
type heardItem struct{ text, args, thought string }

// hearing is a stream being heard.
type hearing struct {
	Heard
	text, thoughts strings.Builder
	calls          map[int]*strings.Builder // arguments by the number of the call
	items          map[int]*heardItem       // by the number of the item
	order          []*strings.Builder       // arguments in the calls' order
	done           bool                     // whether an item was finished
	begun          bool                     // whether the newest call came with its arguments
}

// call returns the arguments of the call of that number.
func (h *hearing) call(n int) *strings.Builder {
	if h.calls[n] == nil {
		h.calls[n] = new(strings.Builder)
		h.order = append(h.order, h.calls[n])
	}
	return h.calls[n]
}

// event hears one event and reports whether it is the last one.
func (h *hearing) event(wire Wire, data []byte) (last bool) {
	switch wire {
	case OpenAIChat:
		h.chat(data)
	case OpenAIResponses:
		return h.responses(data)
	case Anthropic:
		return h.anthropic(data)
	case Gemini:
		h.gemini(data)
	}
	return false
}

// lenient decodes what fits and leaves the rest.
func lenient[T any](data []byte) (v T) {
	_ = json.Unmarshal(data, &v) // A field of another type is not heard.
	return v
}

func (h *hearing) fails(raw json.RawMessage) {
	if present(raw) {
		h.Broken, h.Refused = true, true
	}
}

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
		for _, p := range objects(m.Content) {
			for _, t := range p.list("thinking") {
				h.thoughts.WriteString(t.str("text"))
			}
			if p.str("type") == "text" {
				h.text.WriteString(p.str("text"))
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
	if words.Len() > 0 && strings.Join(strings.Fields(words.String()), "") != strings.Join(strings.Fields(h.text.String()), "") {
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
			if n := len(h.calls); n > 0 {
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

// Streams returns the answers of the synthetic recordings of a wire as the event
// streams that their providers would have sent.
func Streams(tb testing.TB, wire Wire) map[string]string {
	tb.Helper()
	streams := map[string]string{}
	for _, rec := range Synthetic(tb) {
		for _, e := range rec.Calls() {
			if e.Wire != wire || e.Status >= 400 {
				continue
			}
			body, err := e.EventStream()
			if err != nil {
				tb.Fatal(err)
			}
			streams[fmt.Sprintf("%s.%d", rec.Name, len(streams))] = body
		}
	}
	return streams
}

// EventStream is the answer as an event stream, recorded or made of the recorded
// JSON.
func (e *Exchange) EventStream() (string, error) {
	if e.Stream() {
		return e.Text, nil
	}
	u, err := url.Parse(e.URL)
	if err != nil {
		return "", err
	}
	events, err := stream(wireOf(u.Path), object{"stream_options": encode(object{"include_usage": encode(true)})}, e.JSON)
	if err != nil {
		return "", err
	}
	return string(encodeEvents(e.Wire, events)), nil
}

// Events cuts a stream behind each event; joined, the pieces are the stream.
func Events(stream string) []string {
	var out []string
	for _, piece := range splitEvents([]byte(stream)) {
		out = append(out, string(piece))
	}
	return out
}

// Differs says in what an answer is not what the bytes of its stream say, "" if
// it is.
func Differs(wire Wire, heard, got Heard) string {
	// Between the pieces of a summary an adapter may break the line.
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
	// Where the calls begin is an adapter's to tell on chat's wire, and a call
	// without arguments has an empty object.
	letters := func(s string) string {
		b := []byte(strings.NewReplacer("{", "", "}", "", " ", "", "\n", "", "\t", "", "\r", "").Replace(strings.ToValidUTF8(s, "\uFFFD")))
		if wire == OpenAIChat {
			slices.Sort(b)
		}
		return string(b)
	}
	switch {
	case !heard.Ended:
		return "the stream has no end"
	case heard.Broken:
		return "the stream holds what is no answer"
	case heard.Text != got.Text:
		return fmt.Sprintf("text %q, the stream says %q", got.Text, heard.Text)
	case squeeze(heard.Thoughts) != squeeze(got.Thoughts):
		return fmt.Sprintf("thoughts %q, the stream says %q", got.Thoughts, heard.Thoughts)
	case heard.Calls >= 0 && got.Calls >= 0 && heard.Calls != got.Calls:
		return fmt.Sprintf("%d calls, the stream says %d", got.Calls, heard.Calls)
	case letters(heard.Args) != letters(got.Args):
		return fmt.Sprintf("arguments %q, the stream says %q", got.Args, heard.Args)
	default:
		return ""
	}
}
