package modelcall

import (
	"context"

	"github.com/apzuk3/agentd/internal/models/words"
	"github.com/apzuk3/agentd/model"
)

// filterFiles describes files that the model does not take in words. They come from an earlier
// model of the conversation, or from a tool, and must not end it. takes may be nil.
func filterFiles(llm model.LLM, takes func(model.File) error) model.LLM {
	if takes == nil {
		return llm
	}
	return fileFilter{llm, takes}
}

// fileFilter is an LLM that gets files that it does not take in words. It is immutable.
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
