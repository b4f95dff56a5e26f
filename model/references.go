package model

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/seam"
)

// References returns the tools to which p refers, each once; nil for a part that is no tool's
// result.
func References(p *genai.Part) []string {
	if p == nil || p.FunctionResponse == nil {
		return nil
	}
	list, _ := p.PartMetadata[seam.MetaTools].([]any)
	var names []string
	for _, v := range list {
		if name, ok := v.(string); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Loaded returns those of r.Deferred to which results in r.Contents refer, in the order of
// Deferred: the model may call them.
func (r *Request) Loaded() []string {
	if len(r.Deferred) == 0 {
		return nil
	}
	named := r.named()
	var out []string
	for _, name := range r.Deferred {
		if named[name] > 0 {
			out = append(out, name)
		}
	}
	return out
}

// named returns the tools to which results in r.Contents refer, each with a number from 1 that
// rises with the place of the last reference to it.
func (r *Request) named() map[string]int {
	named := map[string]int{}
	n := 0
	for _, c := range r.Contents {
		if c == nil {
			continue
		}
		for _, p := range c.Parts {
			for _, name := range References(p) {
				n++
				named[name] = n
			}
		}
	}
	return named
}

// newest returns the n of loaded that were referred to last.
func (r *Request) newest(loaded []string, n int) []string {
	if len(loaded) <= n {
		return loaded
	}
	named := r.named()
	out := slices.SortedFunc(slices.Values(loaded), func(a, b string) int { return named[b] - named[a] })
	return out[:max(n, 0)]
}

// Load returns r for a provider without references to tools. Functions that are loaded are no
// longer deferred; it leaves out the other deferred ones, or with ToolSearch keeps them deferred.
// Where more than 128 functions would remain, which is what all providers take, it leaves out those
// that were found first. Where the choice of tools names functions, only these are kept and nothing
// is searched, since the model can call no other. Load returns r itself if nothing is deferred.
func (r *Request) Load() *Request {
	if len(r.Deferred) == 0 {
		return r
	}
	loaded, chosen := r.Loaded(), r.Chosen()
	kept := r.newest(loaded, seam.MaxFunctions-(len(r.Functions())-len(r.Deferred)))
	if len(chosen) > 0 {
		kept = chosen
	}
	own := *r
	in := setOf(kept)
	own.Deferred = slices.DeleteFunc(slices.Clone(r.Deferred), func(name string) bool { return in[name] })
	if len(chosen) == 0 {
		own.forgotten = setOf(slices.DeleteFunc(loaded, func(name string) bool { return in[name] }))
	}
	if own.ToolSearch = r.ToolSearch && len(own.Deferred) > 0 && len(chosen) == 0; own.ToolSearch {
		return &own
	}
	own.Config = withoutFunctions(r.Config, setOf(own.Deferred))
	own.Deferred = nil
	return &own
}

func setOf(names []string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, name := range names {
		out[name] = true
	}
	return out
}

// withoutFunctions returns a copy of cfg without some functions.
func withoutFunctions(cfg *genai.GenerateContentConfig, names map[string]bool) *genai.GenerateContentConfig {
	own := *cfg
	own.Tools = nil
	for _, t := range cfg.Tools {
		if t == nil || len(t.FunctionDeclarations) == 0 {
			own.Tools = append(own.Tools, t)
			continue
		}
		kept := *t
		kept.FunctionDeclarations = slices.DeleteFunc(slices.Clone(t.FunctionDeclarations),
			func(d *genai.FunctionDeclaration) bool {
				return names[d.Name]
			})
		if len(kept.FunctionDeclarations) == 0 {
			kept.FunctionDeclarations = nil
		}
		if !reflect.ValueOf(kept).IsZero() {
			own.Tools = append(own.Tools, &kept)
		}
	}
	return &own
}

// ReferencesInWords returns r.Contents with references to tools in words: whether the model can
// call the tool, which depends on the functions that r declares and on the choice of tools. called,
// which may be nil, returns the name under which the provider knows a tool, "" for its own. native,
// which may be nil, reports which references stay as they are. It copies only what differs.
func (r *Request) ReferencesInWords(called func(name string) string, native func(name string) bool) []*genai.Content {
	var out []*genai.Content
	for i, c := range r.Contents {
		if c == nil || !slices.ContainsFunc(c.Parts, func(p *genai.Part) bool { return References(p) != nil }) {
			continue
		}
		if out == nil {
			out = slices.Clone(r.Contents)
		}
		copied := &genai.Content{Role: c.Role, Parts: slices.Clone(c.Parts)}
		for j, p := range copied.Parts {
			if References(p) != nil {
				copied.Parts[j] = r.referencesInWords(p, called, native)
			}
		}
		out[i] = copied
	}
	if out == nil {
		return r.Contents
	}
	return out
}

func (r *Request) referencesInWords(p *genai.Part, called func(string) string, native func(string) bool) *genai.Part {
	var keep, notes []string
	for _, name := range References(p) {
		if native != nil && native(name) {
			keep = append(keep, name)
			continue
		}
		shown := name
		if called != nil {
			if own := called(name); own != "" {
				shown = own
			}
		}
		switch {
		case r.forgotten[name]:
			notes = append(notes, fmt.Sprintf(
				"You have found many other tools since. To call the tool %s look for it again.", shown))
		case r.callable(name):
			notes = append(notes, fmt.Sprintf("You can call the tool %s now.", shown))
		default:
			notes = append(notes, fmt.Sprintf("You have no tool %s.", shown))
		}
	}
	out := seam.Refer(p, keep...)
	if len(notes) > 0 {
		response := *p.FunctionResponse
		response.Response = withNote(response.Response, strings.Join(notes, "\n"))
		out.FunctionResponse = &response
	}
	return out
}

// callable reports whether r lets the model call a function.
func (r *Request) callable(name string) bool {
	chosen := r.Chosen()
	return (len(chosen) == 0 || slices.Contains(chosen, name)) &&
		slices.ContainsFunc(r.Functions(), func(d *genai.FunctionDeclaration) bool { return d.Name == name })
}

// withNote returns a result with a text added at its end.
func withNote(response map[string]any, note string) map[string]any {
	for _, key := range []string{"output", "error"} {
		v, ok := response[key]
		text, isText := v.(string)
		switch {
		case !ok || len(response) > 1:
		case isText:
			return map[string]any{key: strings.TrimSpace(text + "\n\n" + note)}
		case key == "output":
			return map[string]any{"output": v, "text": note}
		}
	}
	if text, ok := response["text"].(string); ok && len(response) == 2 && response["output"] != nil {
		return map[string]any{"output": response["output"], "text": text + "\n\n" + note}
	}
	if len(response) == 0 {
		return map[string]any{"output": note}
	}
	return map[string]any{"output": response, "text": note}
}
