package providertest

import (
	"encoding/json"
	"slices"
	"strings"
)

// any returns the value at the first of the keys that is there: Gemini's JSON
// may spell its fields in camelCase or in snake_case.
func (o object) any(keys ...string) json.RawMessage {
	for _, k := range keys {
		if o.has(k) {
			return o[k]
		}
	}
	return nil
}

func (r *Request) gemini(o object) {
	var system object
	if json.Unmarshal(o.any("systemInstruction", "system_instruction"), &system) == nil {
		for _, p := range system.list("parts") {
			r.system(p.str("text"))
		}
	}
	for _, c := range o.list("contents") {
		kind := User
		if c.str("role") == "model" {
			kind = Assistant
		}
		for _, p := range c.list("parts") {
			r.part(kind, p)
		}
	}
	for _, t := range o.list("tools") {
		for k, v := range t {
			if k != "functionDeclarations" && k != "function_declarations" {
				r.Builtins = append(r.Builtins, builtin(k))
				continue
			}
			for _, d := range objects(v) {
				r.Tools = append(r.Tools, declaration(d))
			}
		}
	}
	slices.Sort(r.Builtins)
}

func (r *Request) part(kind Kind, p object) {
	r.signature(text(p.any("thoughtSignature", "thought_signature")))
	var fn object
	switch {
	case string(p["thought"]) == "true":
	case p.has("text"):
		r.add(Item{Kind: kind, Text: p.str("text")})
	case json.Unmarshal(p.any("functionCall", "function_call"), &fn) == nil:
		args := string(fn["args"])
		if args == "" {
			args = "{}"
		}
		r.add(Item{Kind: Call, ID: fn.str("id"), Name: fn.str("name"), Args: args})
	case json.Unmarshal(p.any("functionResponse", "function_response"), &fn) == nil:
		response := fn.obj("response")
		r.add(Item{
			Kind: Result, ID: fn.str("id"), Name: fn.str("name"), Text: unwrap(string(fn["response"])),
			IsError: len(response) == 1 && response.has("error"),
		})
	default:
		for k := range p {
			if !strings.HasPrefix(k, "thought") {
				r.add(Item{Kind: Other, Text: k})
			}
		}
	}
}

func declaration(d object) Tool {
	t := Tool{Name: d.str("name"), Description: d.str("description")}
	t.Schema = d.any("parametersJsonSchema", "parameters_json_schema")
	if t.Schema == nil && d.has("parameters") {
		var schema any
		if json.Unmarshal(d["parameters"], &schema) == nil {
			t.Schema = encode(lowerTypes(schema))
		}
	}
	return t
}

// lowerTypes turns the types of an OpenAPI schema, which Gemini writes in
// capitals, into those of JSON Schema.
func lowerTypes(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, field := range v {
			if s, ok := field.(string); ok && k == "type" {
				v[k] = strings.ToLower(s)
				continue
			}
			v[k] = lowerTypes(field)
		}
	case []any:
		for i := range v {
			v[i] = lowerTypes(v[i])
		}
	}
	return v
}

// unwrap returns what a tool said out of the object into which an output has to
// be put on some wires: {"output": …}, {"result": …}, {"return_value": …} or
// {"error": …}. Anything else it returns as it is.
func unwrap(s string) string {
	for {
		var o object
		if json.Unmarshal([]byte(s), &o) != nil || len(o) != 1 {
			break
		}
		v := o.any("output", "result", "return_value", "error")
		if v == nil {
			break
		}
		s = string(v)
		if str := text(v); str != "" || s == `""` {
			s = str
		}
	}
	return s
}
