package client

import (
	"encoding/json"
	"errors"
	"fmt"
)

// SchemaOf returns the JSON Schema of T, an object: an agent whose [OutputSchema] it
// is responds with JSON that decodes into T, see [OutputSchemaOf]. T is a struct, or
// a map with string keys; its fields are described as those of a tool's arguments,
// see [AddTool]. Any other type, and one that holds itself, is a mistake in the
// program, upon which it panics.
func SchemaOf[T any]() string {
	text, err := schemaText[T]()
	if err != nil {
		panic(fmt.Sprintf("client.SchemaOf: %v", err))
	}
	return text
}

func schemaText[T any]() (string, error) {
	schema, err := argumentSchema[T]("")
	if err != nil {
		return "", err
	}
	simplify(schema)
	return marshalJSON(schema)
}

// Structured decodes a structured output, such as [End].Structured or that of a
// Turn, as encoding/json does. It fails when there is none: the turn did not
// complete, or the agent that responded last has no output schema. It is the model's
// own text: a T that holds json.Number, or *big.Int, has every digit of a number.
func Structured[T any](text json.RawMessage) (T, error) {
	var out T
	if len(text) == 0 {
		return out, errors.New("the turn has no structured output: " +
			"it did not complete, or the agent that responded last has no output_schema")
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, fmt.Errorf("the structured output is no %T: %w", out, err)
	}
	return out, nil
}
