package toolschema

import (
	"strings"

	"google.golang.org/genai"
)

// JSONSchema translates genai's own schema form, a subset of OpenAPI's with
// types in upper case, to JSON Schema.
func JSONSchema(s *genai.Schema) map[string]any {
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
		out["items"] = JSONSchema(s.Items)
	}
	if len(s.AnyOf) > 0 {
		var subs []map[string]any
		for _, sub := range s.AnyOf {
			if sub != nil {
				subs = append(subs, JSONSchema(sub))
			}
		}
		out["anyOf"] = subs
	}
	if s.Properties != nil {
		props := make(map[string]any, len(s.Properties))
		for name, sub := range s.Properties {
			if sub != nil {
				props[name] = JSONSchema(sub)
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
