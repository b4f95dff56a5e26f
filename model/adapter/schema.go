package adapter

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/internal/rawjson"
)

// ResponseSchema returns the JSON Schema that the answer has to follow, with its
// keys in the order in which they were given, since models answer in that order;
// nil if there is none.
func ResponseSchema(cfg *genai.GenerateContentConfig) (json.RawMessage, error) {
	switch {
	case cfg.ResponseJsonSchema != nil:
		return rawjson.Marshal(cfg.ResponseJsonSchema)
	case cfg.ResponseSchema != nil:
		return rawjson.Marshal(jsonSchema(cfg.ResponseSchema))
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

// jsonSchema translates genai's own schema form, a subset of OpenAPI's with
// types in upper case, to JSON Schema.
func jsonSchema(s *genai.Schema) map[string]any {
	out := map[string]any{}
	text := func(key, v string) {
		if v != "" {
			out[key] = v
		}
	}
	text("title", s.Title)
	text("description", s.Description)
	text("format", s.Format)
	text("pattern", s.Pattern)
	if s.Type != "" && s.Type != genai.TypeUnspecified {
		out["type"] = strings.ToLower(string(s.Type))
		if s.Nullable != nil && *s.Nullable {
			out["type"] = []string{strings.ToLower(string(s.Type)), "null"}
		}
	}
	if s.Default != nil {
		out["default"] = s.Default
	}
	if len(s.Enum) > 0 {
		enum := make([]any, 0, len(s.Enum)+1)
		for _, v := range s.Enum {
			enum = append(enum, v)
		}
		if s.Nullable != nil && *s.Nullable {
			enum = append(enum, nil)
		}
		out["enum"] = enum
	}
	if s.Items != nil {
		out["items"] = jsonSchema(s.Items)
	}
	if len(s.AnyOf) > 0 {
		var subs []map[string]any
		for _, sub := range s.AnyOf {
			if sub != nil {
				subs = append(subs, jsonSchema(sub))
			}
		}
		out["anyOf"] = subs
	}
	if s.Properties != nil {
		props := make(map[string]any, len(s.Properties))
		for name, sub := range s.Properties {
			if sub != nil {
				props[name] = jsonSchema(sub)
			}
		}
		out["properties"] = props
	}
	if len(s.Required) > 0 {
		out["required"] = s.Required
	}
	bounds(out, s)
	return out
}

// bounds copies the numeric limits of s.
func bounds(out map[string]any, s *genai.Schema) {
	for key, v := range map[string]*int64{
		"minItems": s.MinItems, "maxItems": s.MaxItems, "minLength": s.MinLength,
		"maxLength": s.MaxLength, "minProperties": s.MinProperties, "maxProperties": s.MaxProperties,
	} {
		if v != nil {
			out[key] = *v
		}
	}
	for key, v := range map[string]*float64{"minimum": s.Minimum, "maximum": s.Maximum} {
		if v != nil {
			out[key] = *v
		}
	}
}
