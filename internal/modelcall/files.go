package modelcall

import (
	"context"

	"github.com/apzuk3/agentd/internal/models/words"
	"github.com/apzuk3/agentd/model"
)

// filterFiles tells a model in words of the files that it does not take: they may
// have come while the conversation was another model's, or from a tool, and must
// not end it. takes may be nil.
func filterFiles(llm model.LLM, takes func(model.File) error) model.LLM {
	if takes == nil {
		return llm
	}
	return fileFilter{llm, takes}
}

// fileFilter is an LLM with the files taken out that it does not take. It is
// immutable.
type fileFilter struct {
	llm   model.LLM
	takes func(model.File) error
}

// Generate implements LLM.
func (f fileFilter) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	if contents := words.ReplaceFiles(req.Contents, f.takes); contents != nil {
		own := *req
		own.Contents = contents
		req = &own
	}
	return f.llm.Generate(ctx, req, emit)
}
