package openai

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/model"
)

// takesSchema reports whether a request may name a schema for the response. Where it
// may not, the schema goes into the instructions.
//
//   - OpenAI's models from before gpt-4o-2024-08-06 refuse one, and so do o1-mini,
//     o1-preview and chatgpt-4o-latest (guide "Structured Outputs").
//   - DeepSeek knows JSON without a schema only (guide "JSON Output"). Groq refuses
//     one with streaming and with tools (guide "Structured Outputs").
//   - Servers such as vLLM and Ollama apply it to all that the model says, so that
//     it cannot call tools (vllm-project/vllm issues 16313 and 39929, ollama/ollama
//     issue 13750).
func (l *llm) takesSchema(req *model.Request) bool {
	switch {
	case isOf(l.cfg.BaseURL, "api.deepseek.com", "api.groq.com"):
		return false
	case !isFirstParty(l.cfg.BaseURL) && !isAzure(l.cfg.BaseURL):
		return len(req.Functions()) == 0
	}
	name := baseModel(l.model)
	for _, old := range []string{"gpt-3", "gpt-4-", "chatgpt-", "o1-mini", "o1-preview", "gpt-4o-2024-05-13"} {
		if strings.HasPrefix(name, old) {
			return false
		}
	}
	return name != "gpt-4"
}

// What a strict schema may hold, see the guide "Structured Outputs", section
// "Supported schemas". Others are followed as well as the model can.
var (
	strictKeys = []string{
		"$defs", "$ref", "additionalProperties", "anyOf", "const", "definitions", "description", "enum",
		"exclusiveMaximum",
		"exclusiveMinimum", "format", "items", "maxItems", "maximum", "minItems", "minimum", "multipleOf", "pattern",
		"properties",
		"required", "title", "type",
	}
	strictFormats = []string{"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"}
)

const (
	maxStrictDepth      = 10
	maxStrictProperties = 5000
	maxStrictEnum       = 1000 // of all enums
	maxStrictList       = 250  // of one: longer ones have other limits besides
)

// strict reports whether a schema meets the rules for strict ones: every object is
// closed, all of its properties are required, and nothing else is used than what
// is known.
func strict(schema json.RawMessage) bool {
	var root map[string]any
	if json.Unmarshal(schema, &root) != nil || root["type"] != "object" || root["anyOf"] != nil {
		return false
	}
	s := &strictness{}
	return s.schema(root, 0) && s.properties <= maxStrictProperties && s.values <= maxStrictEnum
}

// strictness counts what is limited.
type strictness struct{ properties, values int }

// schema checks a schema at a depth of so many objects.
func (s *strictness) schema(v any, depth int) bool {
	m, ok := v.(map[string]any)
	switch {
	case !ok || depth > maxStrictDepth:
		return false
	case m["$ref"] != nil:
		return len(m) == 1
	case m["type"] == nil && m["anyOf"] == nil:
		return false
	}
	for key, sub := range m {
		if !slices.Contains(strictKeys, key) || !s.keyword(key, sub, depth) {
			return false
		}
	}
	types, isList := m["type"].([]any)
	if m["type"] != "object" && !(isList && slices.Contains(types, any("object"))) && m["properties"] == nil {
		return true
	}
	properties, _ := m["properties"].(map[string]any)
	required, _ := m["required"].([]any)
	for name := range properties {
		if !slices.Contains(required, any(name)) {
			return false
		}
	}
	s.properties += len(properties)
	closed, ok := m["additionalProperties"].(bool)
	return ok && !closed
}

// keyword checks what stands at a key of a schema.
func (s *strictness) keyword(key string, v any, depth int) bool {
	switch key {
	case "properties", "$defs", "definitions":
		named, ok := v.(map[string]any)
		for _, sub := range named {
			ok = ok && s.schema(sub, depth+1)
		}
		return ok
	case "items":
		return s.schema(v, depth)
	case "anyOf":
		list, ok := v.([]any)
		for _, sub := range list {
			ok = ok && s.schema(sub, depth)
		}
		return ok
	case "enum":
		list, ok := v.([]any)
		s.values += len(list)
		return ok && len(list) <= maxStrictList
	case "format":
		format, _ := v.(string)
		return slices.Contains(strictFormats, format)
	}
	return true
}
