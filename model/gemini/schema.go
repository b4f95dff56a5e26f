package gemini

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/apzuk3/agentd/model"
)

// generation is a Gemini model's, such as 2 in gemini-2.5-flash.
var generation = regexp.MustCompile(`(?:^|/)gemini-(?:(\d+)(?:\.(\d+))?)?`)

// generation is the model's; 0 for one that is no Gemini.
func (l *llm) generation() int {
	found := generation.FindStringSubmatch(l.model)
	if found == nil {
		return 0
	}
	gen, err := strconv.Atoi(found[1])
	if err != nil {
		return 3 // an alias, which means the newest
	}
	return gen
}

// minor is the part of the model's version behind the point, 0 if there is none.
func (l *llm) minor() int {
	found := generation.FindStringSubmatch(l.model)
	if found == nil {
		return 0
	}
	minor, err := strconv.Atoi(found[2])
	if err != nil {
		return 0
	}
	return minor
}

// fetches reports whether the model may read pages: Gemini does from 2.5 on ("URL
// context", section "Supported models", ai.google.dev, 2026-07).
func (l *llm) fetches() bool {
	gen := l.generation()
	return gen != 1 && (gen != 2 || l.minor() >= 5)
}

// barelyThinks reports whether the model takes the thinking level MINIMAL: Flash and
// Flash-Lite models from 3 to 3.6 do. Pro models, Flash from 3.7 on and others begin with
// LOW ("Thinking", table of levels, docs.cloud.google.com, 2026-09; "Developer's
// guide to Gemini 3.8 Flash", there, read 2026-11-23).
func (l *llm) barelyThinks() bool {
	return strings.Contains(l.model, "gemini-3") && strings.Contains(l.model, "-flash") && l.minor() <= 6
}

// takesSchema reports whether a request may name a schema for the response. Where it
// may not, the schema goes into the instructions.
//
// Gemini takes one from 2.0 on; other models of the API, such as Gemma, do not.
// Together with tools, Gemini 3 takes it (guide "Structured outputs", section
// "with tools"). Earlier ones refuse it ("Function calling with a response mime
// type: 'application/json' is unsupported", googleapis/python-genai issue 867),
// but for functions over Vertex AI, which the engine's own rule allows from 2.0 on.
func (l *llm) takesSchema(req *model.Request) bool {
	gen := l.generation()
	if gen == 0 {
		return false
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
