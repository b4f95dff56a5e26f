package providertest

import (
	"encoding/json"
	"fmt"
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
// hear. As in Go's JSON, the name of a field may be in other letters than the
// provider's, and the last one of several counts.
func Hear(wire Wire, stream string) Heard {
	stream = strings.ReplaceAll(strings.ReplaceAll(strings.TrimPrefix(stream, "\ufeff"), "\r\n", "\n"), "\r", "\n")
	h := &hearing{calls: map[int]*strings.Builder{}, items: map[int]*heardItem{}}
	for _, e := range parseEvents(stream) {
		data := strings.TrimSpace(e.data) // which may be more than JSON's space
		if (wire == OpenAIChat || wire == OpenAIResponses) && strings.HasPrefix(data, "[DONE]") {
			if wire == OpenAIChat {
				break
			}
			continue
		}
		if data == "" {
			continue
		}
		if !json.Valid([]byte(data)) {
			h.Broken = true
			break
		}
		if h.event(wire, []byte(data)) {
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
	other          bool                     // whether the newest block is no call: what comes of it is of none
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
	events, err := stream(e.Wire, object{"stream_options": encode(object{"include_usage": encode(true)})}, e.JSON)
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
		s = strings.ToValidUTF8(s, "\uFFFD")
		b := []byte(strings.NewReplacer("{", "", "}", "", " ", "", "\n", "", "\t", "", "\r", "").Replace(s))
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
