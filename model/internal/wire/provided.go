package wire

import (
	"encoding/json"
	"strings"

	"github.com/apzuk3/agentd/model"
)

// JSON is v as JSON text, "" when v is nil, or cannot be.
func JSON(v any) string {
	if raw, ok := v.(json.RawMessage); ok && (len(raw) == 0 || string(raw) == "null") || v == nil {
		return ""
	}
	b, err := model.MarshalJSON(v)
	if err != nil {
		return ""
	}
	return string(b)
}

// Without returns decoded JSON without the members whose name drop accepts, at any
// depth. It may change v.
func Without(v any, drop func(name string) bool) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = Without(v[i], drop)
		}
	case map[string]any:
		for name, member := range v {
			if drop(name) {
				delete(v, name)
			} else {
				v[name] = Without(member, drop)
			}
		}
	}
	return v
}

// Decode decodes JSON with its numbers as they are; nil for what is no JSON.
func Decode(data []byte) any {
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil
	}
	return v
}

// Bytes turns offsets that count the characters of text, by code points, into
// offsets in bytes; both 0 when text has no such part.
func Bytes(text string, start, end int) (from, to int) {
	if start < 0 || end <= start {
		return 0, 0
	}
	n := 0
	for i := range text {
		if n == start {
			from = i
		}
		if n == end {
			return from, i
		}
		n++
	}
	if n == end {
		return from, len(text)
	}
	return 0, 0
}
