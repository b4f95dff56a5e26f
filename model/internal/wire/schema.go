package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

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

// WithSchema makes a call whose answer has to follow a schema, if there is one:
// natively if the adapter knows of nothing that speaks against it, else in words.
// Not all is known of models, schemas and servers: a call that is refused for its
// schema before anything was answered, which costs nothing, is made in words.
func WithSchema(req *model.Request, native bool, emit func(model.Delta), call func(*model.Request, func(model.Delta)) (*model.Response, error)) (*model.Response, error) {
	schema, err := ResponseSchema(req.Config)
	if err != nil || schema == nil {
		return call(req, emit)
	}
	if native {
		answered := false
		resp, err := call(req, func(d model.Delta) {
			answered = true
			emit(d)
		})
		if answered || !refusesSchema(err) {
			return resp, err
		}
	}
	return call(inWords(req, schema), emit)
}

// refusesSchema tells whether an error says that a provider does not take the
// request for its schema.
func refusesSchema(err error) bool {
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Kind != model.KindInvalid || e.Usage != nil {
		return false
	}
	text := strings.ToLower(e.Message)
	return slices.ContainsFunc([]string{"schema", "grammar", "response_format", "output_config", "text.format", "response mime type"}, func(word string) bool {
		return strings.Contains(text, word)
	})
}

// inWords is the request with the schema at the end of its instructions.
func inWords(req *model.Request, schema json.RawMessage) *model.Request {
	out, cfg := *req, *req.Config
	cfg.ResponseMIMEType, cfg.ResponseSchema, cfg.ResponseJsonSchema = "", nil, nil
	system := &genai.Content{Role: genai.RoleUser}
	if cfg.SystemInstruction != nil {
		*system = *cfg.SystemInstruction
	}
	system.Parts = append(slices.Clip(system.Parts), genai.NewPartFromText(
		"When you have your final answer, reply with one JSON value that satisfies the JSON Schema below, and with nothing else: "+
			"no text before or after it and no code fence around it.\n\n"+string(schema)))
	cfg.SystemInstruction, out.Config = system, &cfg
	return &out
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
