package wire

import (
	"encoding/json"
	"strconv"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
)

// Result returns what a tool answered, as text for the model: the output alone
// when the response is {"output": …} (a string as it is, anything else as
// JSON), the error alone when it is {"error": …}, else the response as JSON. An
// error that is null, false or empty says that there was none.
func Result(fr *genai.FunctionResponse) (text string, isError bool) {
	if len(fr.Response) == 1 {
		if v, ok := fr.Response["output"]; ok {
			return plain(v), false
		}
		switch v := fr.Response["error"]; v {
		case nil, "", false:
		default:
			return plain(v), true
		}
	}
	if fr.Response == nil {
		return "{}", false
	}
	return plain(fr.Response), false
}

// plain is a string as it is and anything else as JSON.
func plain(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := model.MarshalJSON(v)
	if err != nil {
		return "null"
	}
	return string(b)
}

// ArgsText returns the arguments of a call in history for wires that carry them
// as text: the model's own text when it is any JSON value, else as
// model.ArgsText says.
func ArgsText(p *genai.Part) string {
	if _, bad := p.PartMetadata[model.MetaArgsError]; bad {
		if text, ok := p.PartMetadata[model.MetaArgs].(string); ok && json.Valid([]byte(text)) {
			return text
		}
	}
	return model.ArgsText(p)
}

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

// Float widens f to the number its shortest decimal form means: 0.7, not
// 0.699999988.
func Float(f float32) float64 {
	v, err := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64)
	if err != nil {
		return float64(f)
	}
	return v
}
