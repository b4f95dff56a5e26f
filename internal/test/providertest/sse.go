package providertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// event is one server-sent event.
type event struct {
	// name is the event's type, "" for the wires that send data alone.
	name string
	// data is one line.
	data string
}

// encodeEvents writes events as each wire's servers do: Gemini's end their lines
// with CRLF.
func encodeEvents(wire Wire, events []event) []byte {
	nl := "\n"
	if wire == Gemini {
		nl = "\r\n"
	}
	var b bytes.Buffer
	for _, e := range events {
		if e.name != "" {
			b.WriteString("event: " + e.name + nl)
		}
		b.WriteString("data: " + e.data + nl + nl)
	}
	return b.Bytes()
}

// parseEvents reads the events of a stream; comments and unknown fields are
// skipped.
func parseEvents(stream string) []event {
	var events []event
	var cur event
	flush := func() {
		if cur.data != "" {
			events = append(events, cur)
		}
		cur = event{}
	}
	for line := range strings.Lines(stream) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			flush()
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			cur.name = value
		case "data":
			if cur.data != "" {
				cur.data += "\n"
			}
			cur.data += value
		}
	}
	flush()
	return events
}

// splitEvents cuts a stream behind each empty line; joined, the pieces are the
// stream byte for byte.
func splitEvents(stream []byte) [][]byte {
	var pieces [][]byte
	start := 0
	for i := range stream {
		if stream[i] != '\n' {
			continue
		}
		rest := stream[i+1:]
		if bytes.HasPrefix(rest, []byte("\n")) || bytes.HasPrefix(rest, []byte("\r\n")) {
			end := i + 1 + bytes.IndexByte(rest, '\n') + 1
			if end > start {
				pieces = append(pieces, stream[start:end])
			}
			start = max(start, end)
		}
	}
	if start < len(stream) {
		pieces = append(pieces, stream[start:])
	}
	return pieces
}

// object is a JSON object whose values keep their text.
type object map[string]json.RawMessage

// str returns the string at a key, "" if there is none.
func (o object) str(key string) string { return text(o[key]) }

// has reports whether a key has a value other than null.
func (o object) has(key string) bool { return present(o[key]) }

// obj returns the object at a key, empty if there is none.
func (o object) obj(key string) object {
	var v object
	if json.Unmarshal(o[key], &v) != nil || v == nil {
		return object{}
	}
	return v
}

// list returns the objects of the array at a key, nil if there is none.
func (o object) list(key string) []object { return objects(o[key]) }

// with returns a copy with one key set.
func (o object) with(key string, v any) object {
	c := make(object, len(o)+1)
	maps.Copy(c, o)
	c[key] = encode(v)
	return c
}

func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

func present(raw json.RawMessage) bool {
	return len(raw) > 0 && !bytes.Equal(bytes.TrimSpace(raw), []byte("null"))
}

func objects(raw json.RawMessage) []object {
	var v []object
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return v
}

// encode marshals on one line and leaves <, > and & as they are, as providers do.
// Everything given to it can be marshalled.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("providertest: encoding %T: %v", v, err))
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// pieceRunes are the lengths in runes into which texts are cut, in turn.
var pieceRunes = [...]int{1, 5, 2, 13, 3, 29, 8}

// pieces cuts a text into deltas at rune boundaries; "" gives none.
func pieces(s string) []string {
	var out []string
	runes := []rune(s)
	for i := 0; len(runes) > 0; i++ {
		n := min(pieceRunes[i%len(pieceRunes)], len(runes))
		out = append(out, string(runes[:n]))
		runes = runes[n:]
	}
	return out
}
