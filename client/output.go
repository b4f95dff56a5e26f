package client

import (
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

// OutputSchema returns the JSON Schema of T for LlmAgent.OutputSchema: the agent's
// output is then JSON that decodes into T, see [Structured]. T is a struct, or
// a map with string keys; its fields are described as those of a tool's arguments,
// see [AddTool]. Any other type, and one that holds itself, is a mistake in the
// program, upon which it panics.
//
//	agent := &agentdv1.LlmAgent{Model: "…", OutputSchema: new(client.OutputSchema[Person]())}
func OutputSchema[T any]() string {
	schema, err := argumentSchema[T]("")
	if err == nil {
		simplify(schema)
		var text string
		if text, err = marshalJSON(schema); err == nil {
			return text
		}
	}
	panic(fmt.Sprintf("client.OutputSchema: %v", err))
}

// Structured decodes a structured output, such as [End].Structured or that of a
// Turn, as encoding/json would. It fails when there is none: the turn did not
// complete, or the agent that answered last has no output schema. Numbers have
// come as float64: of an integer beyond 2^53 the last digits are lost, the text of
// the answer has them all.
func Structured[T any](value *structpb.Value) (T, error) {
	var out T
	if value == nil {
		return out, errors.New("the turn has no structured output: it did not complete, or the agent that answered last has no output_schema")
	}
	data, err := protojson.Marshal(value)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return out, fmt.Errorf("the structured output is no %T: %w", out, err)
	}
	return out, nil
}
