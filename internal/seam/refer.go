package seam

import (
	"maps"

	"google.golang.org/genai"
)

// Refer returns a copy of p, the part of a tool's result, that refers to tools: a tool that
// searches for others returns them this way.
func Refer(p *genai.Part, names ...string) *genai.Part {
	out := *p
	out.PartMetadata = maps.Clone(p.PartMetadata)
	delete(out.PartMetadata, MetaTools)
	if len(names) == 0 {
		return &out
	}
	list := make([]any, 0, len(names)) // as it comes back from JSON
	for _, name := range names {
		list = append(list, name)
	}
	if out.PartMetadata == nil {
		out.PartMetadata = map[string]any{}
	}
	out.PartMetadata[MetaTools] = list
	return &out
}
