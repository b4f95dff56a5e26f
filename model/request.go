package model

import "google.golang.org/genai"

// Functions returns the declared functions, in order.
func (r *Request) Functions() []*genai.FunctionDeclaration {
	var out []*genai.FunctionDeclaration
	for _, t := range r.Config.Tools {
		if t != nil {
			out = append(out, t.FunctionDeclarations...)
		}
	}
	return out
}

// Chosen returns the functions that the choice of tools names: deferring them is of no use.
func (r *Request) Chosen() []string {
	if tc := r.Config.ToolConfig; tc != nil && tc.FunctionCallingConfig != nil {
		return tc.FunctionCallingConfig.AllowedFunctionNames
	}
	return nil
}
