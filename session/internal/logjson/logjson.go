package logjson

import (
	"encoding/json"
	"errors"
	"strings"
)

// Marshal returns JSON without HTML escapes.
func Marshal(v any) (json.RawMessage, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return json.RawMessage(strings.TrimSuffix(b.String(), "\n")), nil
}

// Unmarshal reads one JSON value into v and keeps numbers as they are written.
func Unmarshal(data []byte, v any) error {
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if dec.More() {
		return errors.New("data after the JSON value")
	}
	return nil
}

// Readable returns a provider's text as the log can hold it, so that whoever is notified at
// once reads the same.
func Readable(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// Structured returns a structured output as the protocol has it: the text itself, of which
// every number keeps its digits; "" for text that is not JSON.
func Structured(text string) string {
	if !json.Valid([]byte(text)) {
		return ""
	}
	return Readable(text)
}
