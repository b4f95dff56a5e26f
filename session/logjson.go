package session

import (
	"encoding/json"
	"errors"
	"strings"
)

// marshal is JSON without HTML escapes.
func marshal(v any) (json.RawMessage, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return json.RawMessage(strings.TrimSuffix(b.String(), "\n")), nil
}

// unmarshal keeps numbers as they are written.
func unmarshal(data []byte, v any) error {
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

// readable is a provider's text as the log can hold it, so that whoever is notified at
// once reads the same.
func readable(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
