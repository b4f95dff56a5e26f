package wire

import (
	"bytes"
	"encoding/json"
	"slices"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
)

// ResponseSchema returns the JSON Schema that the answer has to follow, with its
// keys in the order in which they were given, since models answer in that order;
// nil if there is none.
func ResponseSchema(cfg *genai.GenerateContentConfig) (json.RawMessage, error) {
	switch {
	case cfg.ResponseJsonSchema != nil:
		return model.MarshalJSON(cfg.ResponseJsonSchema)
	case cfg.ResponseSchema != nil:
		return model.MarshalJSON(JSONSchema(cfg.ResponseSchema))
	default:
		return nil, nil
	}
}

// AskForSchema asks for an answer that follows a schema in words, for models and
// requests that do not take one.
func AskForSchema(schema json.RawMessage) string {
	return "When you have your final answer, reply with one JSON value that satisfies the JSON Schema below, and with nothing else: " +
		"no text before or after it and no code fence around it.\n\n" + string(schema)
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
		key, _ := model.MarshalJSON(m.Key) // a string always encodes
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
