package gemini

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// generation is a Gemini model's, such as 2 in gemini-2.5-flash.
var generation = regexp.MustCompile(`(?:^|/)gemini-(?:(\d+)(?:\.\d+)?)?`)

// takesSchema tells whether a request may name a schema for the answer. Where it
// may not, the schema goes into the instructions.
//
// Gemini takes one from 2.0 on; other models of the API, such as Gemma, do not.
// Together with tools, Gemini 3 takes it (guide "Structured outputs", section
// "with tools"). Earlier ones refuse it ("Function calling with a response mime
// type: 'application/json' is unsupported", googleapis/python-genai issue 867),
// but for functions over Vertex AI, which the engine's own rule allows from 2.0 on.
func (l *llm) takesSchema(req *model.Request) bool {
	found := generation.FindStringSubmatch(l.model)
	if found == nil {
		return false
	}
	gen, err := strconv.Atoi(found[1])
	if err != nil {
		gen = 3 // an alias, which means the newest
	}
	functions, others := false, false
	for _, t := range req.Config.Tools {
		if t != nil {
			functions = functions || len(t.FunctionDeclarations) > 0
			others = others || len(t.FunctionDeclarations) == 0
		}
	}
	switch {
	case others:
		return gen >= 3
	case functions && !l.vertex:
		return gen >= 3
	}
	return gen >= 2
}

// setSchema has cfg, a copy, ask for the answer's schema, and returns it when it
// is to be sent; nil when there is none, or it is asked for in words. The SDK
// would put its keys into another order, which the model would follow.
func (l *llm) setSchema(cfg *genai.GenerateContentConfig, req *model.Request) (json.RawMessage, error) {
	schema, err := wire.ResponseSchema(cfg)
	if err != nil {
		return nil, fmt.Errorf("the response schema is no JSON: %w", err)
	}
	if schema == nil || l.takesSchema(req) {
		if cfg.ResponseJsonSchema == nil {
			return nil, nil // none, or one in the SDK's own form
		}
		return schema, nil
	}
	cfg.ResponseMIMEType, cfg.ResponseSchema, cfg.ResponseJsonSchema = "", nil, nil
	system := &genai.Content{Role: genai.RoleUser}
	if cfg.SystemInstruction != nil {
		system.Parts = append(system.Parts, cfg.SystemInstruction.Parts...)
	}
	system.Parts = append(system.Parts, genai.NewPartFromText(wire.AskForSchema(schema)))
	cfg.SystemInstruction = system
	return nil, nil
}
