package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// typeSchemas are types whose JSON form is not what their Go kind suggests.
var typeSchemas = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[json.RawMessage](): {},
	reflect.TypeFor[json.Number]():     {Type: "number"},
	reflect.TypeFor[[]byte]():          {Type: "string", ContentEncoding: "base64"},
}

func newTypedTool[In, Out any](
	name, description string, fn func(context.Context, In) (Out, error), opts []ToolOption,
) (*tool, error) {
	var cfg toolConfig
	for _, opt := range opts {
		opt(&cfg)
	}
	if fn == nil {
		return nil, fmt.Errorf("tool %q has no function", name)
	}
	schema, err := argumentSchema[In](cfg.schema)
	if err != nil {
		return nil, fmt.Errorf("tool %q: %w", name, err)
	}
	// Arguments are checked by the schema before it is simplified for the
	// model: a null that Go can decode is no reason to refuse.
	checker, err := schema.CloneSchemas().Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("tool %q: input schema: %w", name, err)
	}
	if cfg.schema == "" {
		simplify(schema)
		cfg.schema, err = marshalJSON(schema)
		if err != nil {
			return nil, fmt.Errorf("tool %q: input schema: %w", name, err)
		}
	}
	declaration := &agentdv1.Tool{
		Name: name, Description: description, InputSchema: &cfg.schema,
		NeedsApproval: cfg.approve, Deferred: cfg.defers, Effect: cfg.effect,
	}
	if err := checkTool(declaration); err != nil {
		return nil, err
	}
	t := &tool{
		proto: declaration,
		invoke: func(ctx context.Context, input string) (any, error) {
			var in In
			if err := decodeArguments(checker, input, &in); err != nil {
				return nil, err
			}
			return fn(ctx, in)
		},
	}
	if err := t.setTimeout(cfg.timeout); err != nil {
		return nil, err
	}
	return t, nil
}

func newRawTool[Out any](
	name, description string, fn func(context.Context, json.RawMessage) (Out, error), opts []ToolOption,
) (*tool, error) {
	var cfg toolConfig
	for _, opt := range opts {
		opt(&cfg)
	}
	declaration := &agentdv1.Tool{
		Name: name, Description: description, NeedsApproval: cfg.approve, Deferred: cfg.defers, Effect: cfg.effect,
	}
	if cfg.schema != "" {
		declaration.InputSchema = &cfg.schema
	}
	if fn == nil {
		return nil, fmt.Errorf("tool %q has no function", declaration.GetName())
	}
	if err := checkTool(declaration); err != nil {
		return nil, err
	}
	if declaration.InputSchema != nil {
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(declaration.GetInputSchema()), &object); err != nil || object == nil {
			return nil, fmt.Errorf("tool %q: the input schema must be a JSON object", declaration.GetName())
		}
	}
	t := &tool{
		proto: declaration,
		invoke: func(ctx context.Context, input string) (any, error) {
			raw, err := argumentObject(input)
			if err != nil {
				return nil, err
			}
			return fn(ctx, raw)
		},
	}
	if err := t.setTimeout(cfg.timeout); err != nil {
		return nil, err
	}
	return t, nil
}

// argumentSchema returns the schema of a tool's arguments: the given text, or
// what T says.
func argumentSchema[T any](given string) (*jsonschema.Schema, error) {
	if given != "" {
		schema := new(jsonschema.Schema)
		if err := json.Unmarshal([]byte(given), schema); err != nil {
			return nil, fmt.Errorf("the input schema is no JSON Schema: %w", err)
		}
		return schema, nil
	}
	schema, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: typeSchemas})
	if err != nil {
		return nil, fmt.Errorf("no schema can be derived from the argument type: %w", err)
	}
	if slices.Contains(schema.Types, "object") || (schema.Type == "" && schema.Types == nil) {
		schema.Type, schema.Types = "object", nil
	}
	if schema.Type != "object" {
		return nil, fmt.Errorf(
			"the argument type must be a struct or a map with string keys, got %s", reflect.TypeFor[T]())
	}
	return schema, nil
}

// simplify takes two things out of a derived schema that some providers refuse
// and that tell a model nothing: that a slice may be null, and the schema
// "true" for any value.
func simplify(s *jsonschema.Schema) {
	switch {
	case s == nil:
		return
	case len(s.Types) == 2 && s.Types[0] == "null" && s.Types[1] == "array":
		s.Type, s.Types = "array", nil
	case reflect.ValueOf(*s).IsZero():
		s.Description = "any JSON value"
	}
	simplify(s.Items)
	if s.AdditionalProperties != nil && s.AdditionalProperties.Not == nil {
		simplify(s.AdditionalProperties)
	}
	for property := range maps.Values(s.Properties) {
		simplify(property)
	}
}

// argumentObject returns the model's arguments; a model that has none to give
// may leave them out.
func argumentObject(input string) (json.RawMessage, error) {
	input = strings.TrimSpace(input)
	if input == "" || input == "null" {
		return json.RawMessage("{}"), nil
	}
	if !json.Valid([]byte(input)) {
		var v any
		return nil, fmt.Errorf("the arguments are not valid JSON: %w", json.Unmarshal([]byte(input), &v))
	}
	if input[0] != '{' {
		return nil, fmt.Errorf("the arguments must be a JSON object, got %.40s", input)
	}
	return json.RawMessage(input), nil
}

// decodeArguments decodes input into the value out points to. Its errors are
// for the model: they name the property.
func decodeArguments(checker *jsonschema.Resolved, input string, out any) error {
	raw, err := argumentObject(input)
	if err != nil {
		return err
	}
	instance, err := decodeNumbers(raw)
	if err != nil {
		return fmt.Errorf("the arguments are not valid JSON: %w", err)
	}
	if err := checker.Validate(plainNumbers(instance)); err != nil {
		return fmt.Errorf(
			"the arguments do not fit the input schema: %s", strings.TrimPrefix(err.Error(), "validating root: "))
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(out); err != nil {
		if typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return fmt.Errorf("argument %q must be a %s, got a JSON %s", typeErr.Field, typeErr.Type, typeErr.Value)
		}
		return fmt.Errorf("the arguments cannot be decoded: %w", err)
	}
	return nil
}

// decodeNumbers decodes one JSON value and keeps its numbers as they are.
func decodeNumbers(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is text after the first value")
	}
	return v, nil
}

// plainNumbers replaces each json.Number in v by an int64, uint64 or float64,
// which is how the schema checker wants them.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = plainNumbers(value)
		}
	case []any:
		for i, value := range v {
			v[i] = plainNumbers(value)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	}
	return v
}
