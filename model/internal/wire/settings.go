package wire

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/genai"
)

// everywhere are the settings that every wire knows.
var everywhere = []string{
	"SystemInstruction", "Tools", "ToolConfig", "ResponseMIMEType", "ResponseSchema", "ResponseJsonSchema",
	"ThinkingConfig", "MaxOutputTokens", "Temperature", "TopP",
}

// Unsupported returns the names of the settings in cfg that a wire does not know,
// so that they are refused by name in place of being dropped; takes are the names
// of genai's fields that it knows beyond those that all do. Settings that a new
// version of genai brings are unknown until a wire takes them.
func Unsupported(cfg *genai.GenerateContentConfig, takes ...string) []string {
	var names []string
	v := reflect.ValueOf(*cfg)
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if v.Field(i).IsZero() || slices.Contains(everywhere, field.Name) || slices.Contains(takes, field.Name) ||
			field.Name == "CandidateCount" && cfg.CandidateCount == 1 {
			continue
		}
		names = append(names, field.Name)
	}
	if t := cfg.ToolConfig; t != nil {
		if t.RetrievalConfig != nil {
			names = append(names, "ToolConfig.RetrievalConfig")
		}
		if t.IncludeServerSideToolInvocations != nil {
			names = append(names, "ToolConfig.IncludeServerSideToolInvocations")
		}
	}
	return names
}

// Choice is which functions a request declares and which of them the model has
// to call.
type Choice struct {
	// Functions are those to declare.
	Functions []*genai.FunctionDeclaration
	// None is true when the model may call none of them, Any when it has to call
	// one.
	None, Any bool
	// Only is the function that it has to call, "" if there are several.
	Only string
}

// Choose reads which functions the model has to call. Wires can demand one
// function or any: where some are allowed, only these are declared. The error
// names what no wire but Gemini's knows.
func Choose(cfg *genai.GenerateContentConfig, functions []*genai.FunctionDeclaration) (Choice, error) {
	c := Choice{Functions: functions}
	if cfg.ToolConfig == nil || cfg.ToolConfig.FunctionCallingConfig == nil {
		return c, nil
	}
	f := cfg.ToolConfig.FunctionCallingConfig
	if f.StreamFunctionCallArguments != nil {
		return c, fmt.Errorf("it knows no StreamFunctionCallArguments")
	}
	switch f.Mode {
	case "", genai.FunctionCallingConfigModeUnspecified, genai.FunctionCallingConfigModeAuto:
	case genai.FunctionCallingConfigModeNone:
		c.None = true
		return c, nil
	case genai.FunctionCallingConfigModeAny:
		c.Any = true
	default:
		return c, fmt.Errorf("it knows no function calling mode %s", f.Mode)
	}
	if len(f.AllowedFunctionNames) == 0 {
		return c, nil
	}
	if !c.Any {
		return c, fmt.Errorf("it knows allowed functions in mode ANY only")
	}
	var missing []string
	for _, name := range f.AllowedFunctionNames {
		if !slices.ContainsFunc(functions, func(d *genai.FunctionDeclaration) bool { return d.Name == name }) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return c, fmt.Errorf("the allowed functions %s are not declared", strings.Join(missing, ", "))
	}
	if len(f.AllowedFunctionNames) == 1 {
		c.Only = f.AllowedFunctionNames[0]
		return c, nil
	}
	c.Functions = nil
	for _, d := range functions {
		if slices.Contains(f.AllowedFunctionNames, d.Name) {
			c.Functions = append(c.Functions, d)
		}
	}
	return c, nil
}
