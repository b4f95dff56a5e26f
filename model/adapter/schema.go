package adapter

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/internal/toolschema"
)

// WithSchema makes a call whose response has to follow a schema, if there is one: natively if
// native is true, else in words at the end of the instructions. Not everything about models,
// schemas and servers is known: if the provider refuses a native call for its schema before it
// sends anything, which costs nothing, WithSchema makes the call in words.
func WithSchema(
	req *model.Request, native bool, emit func(model.Delta),
	call func(*model.Request, func(model.Delta)) (*model.Response, error),
) (*model.Response, error) {
	schema, err := toolschema.Response(req.Config)
	if err != nil || schema == nil {
		return call(req, emit)
	}
	if native {
		started := false
		resp, err := call(req, func(d model.Delta) {
			started = true
			emit(d)
		})
		if started || !refusesSchema(err) {
			return resp, err
		}
	}
	return call(inWords(req, schema), emit)
}

// refusesSchema reports whether an error says that the provider does not take the request for its
// schema.
func refusesSchema(err error) bool {
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Kind != model.KindInvalid || e.Usage != nil {
		return false
	}
	text := strings.ToLower(e.Message)
	return slices.ContainsFunc([]string{"schema", "grammar", "response_format", "output_config", "text.format",
		"response mime type"}, func(word string) bool {
		return strings.Contains(text, word)
	})
}

// inWords returns the request with the schema at the end of its instructions.
func inWords(req *model.Request, schema json.RawMessage) *model.Request {
	out, cfg := *req, *req.Config
	cfg.ResponseMIMEType, cfg.ResponseSchema, cfg.ResponseJsonSchema = "", nil, nil
	system := &genai.Content{Role: genai.RoleUser}
	if cfg.SystemInstruction != nil {
		*system = *cfg.SystemInstruction
	}
	system.Parts = append(slices.Clip(system.Parts), genai.NewPartFromText(
		"When you have your final answer, reply with one JSON value that satisfies the JSON Schema below, "+
			"and with nothing else: no text before or after it and no code fence around it.\n\n"+string(schema)))
	cfg.SystemInstruction, out.Config = system, &cfg
	return &out
}

// Parameters returns the JSON Schema of a function's parameters as every provider takes it: of type
// "object", with "properties", and without alternatives at the top. A schema that only lacks these
// members keeps the order of its keys. In others the properties of all alternatives become those of
// the whole, and the description says what is lost by that; the server checks arguments against the
// schema that was declared.
func Parameters(d *genai.FunctionDeclaration) json.RawMessage { return toolschema.Parameters(d) }
