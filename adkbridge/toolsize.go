package adkbridge

import (
	"encoding/json"
	"reflect"

	"google.golang.org/genai"
)

const (
	// declarationBytes is what the names of the fields of a declaration take in JSON.
	declarationBytes = len(`{"description":"","name":"","parametersJsonSchema":},`)
	// numberBytes is about what a number of a schema takes.
	numberBytes = 4
)

// toolBytes returns about the length of tools in JSON, in bytes. Declarations with a JSON Schema, which are most, are
// measured and not encoded: each new conversation asks for it.
func toolBytes(tools []*genai.Tool) (n int) {
	for _, t := range tools {
		others := *t
		others.FunctionDeclarations = nil
		if !reflect.ValueOf(others).IsZero() {
			n += encodedBytes(others)
		}
		for _, d := range t.FunctionDeclarations {
			rest := *d
			rest.Name, rest.Description, rest.ParametersJsonSchema = "", "", nil
			if !reflect.ValueOf(rest).IsZero() {
				n += encodedBytes(rest)
			}
			n += declarationBytes + len(d.Name) + len(d.Description) + jsonBytes(d.ParametersJsonSchema)
		}
	}
	return n
}

// jsonBytes returns about the length of a value in JSON.
func jsonBytes(v any) (n int) {
	switch v := v.(type) {
	case nil:
		return len("null")
	case string:
		return len(v) + len(`""`)
	case bool:
		return len("true")
	case json.Number:
		return len(v)
	case float64, int, int64:
		return numberBytes
	case []any:
		n = len("[]")
		for _, item := range v {
			n += jsonBytes(item) + len(",")
		}
		return n
	case map[string]any:
		n = len("{}")
		for key, item := range v {
			n += len(key) + len(`"":,`) + jsonBytes(item)
		}
		return n
	default:
		return encodedBytes(v)
	}
}

// encodedBytes returns the length of a value in JSON, 0 for one that has no such form.
func encodedBytes(v any) int {
	data, err := json.Marshal(v)
	if err != nil {
		return 0
	}
	return len(data)
}
