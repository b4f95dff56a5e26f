// Package rawjson works on JSON text whose keys stay in their order.
package rawjson

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Marshal encodes v without HTML escapes and without a final newline. Maps are encoded with
// sorted keys, so equal values have equal bytes.
func Marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// JSON is v as JSON text, "" when v is nil, or cannot be.
func JSON(v any) string {
	if raw, ok := v.(json.RawMessage); ok && (len(raw) == 0 || string(raw) == "null") || v == nil {
		return ""
	}
	b, err := Marshal(v)
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

// Member is a key of a JSON object with its value.
type Member struct {
	// Key is the key, decoded.
	Key string
	// Value is one JSON value.
	Value json.RawMessage
}

// Members returns what a JSON object holds, in its order; ok is false for text
// that is no object.
func Members(text json.RawMessage) (members []Member, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, false
	}
	for dec.More() {
		tok, err := dec.Token()
		key, isKey := tok.(string)
		if err != nil || !isKey {
			return nil, false
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return nil, false
		}
		members = append(members, Member{key, value})
	}
	_, err := dec.Token()
	return members, err == nil
}

// Object is the JSON object with these members.
func Object(members []Member) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		key, _ := Marshal(m.Key) // a string always encodes
		b.Write(key)
		b.WriteByte(':')
		b.Write(m.Value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// Find returns the value at a key, nil if there is none.
func Find(members []Member, key string) json.RawMessage {
	i := slices.IndexFunc(members, func(m Member) bool { return m.Key == key })
	if i < 0 {
		return nil
	}
	return members[i].Value
}

// Strings reads a JSON string or a list of them; ok is false for anything else.
func Strings(text json.RawMessage) (list []string, ok bool) {
	var one string
	if json.Unmarshal(text, &one) == nil && len(text) > 0 && text[0] == '"' {
		return []string{one}, true
	}
	err := json.Unmarshal(text, &list)
	return list, err == nil && list != nil
}
