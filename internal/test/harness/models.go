package harness

import (
	"context"
	"time"

	"github.com/apzuk3/agentd/model"
)

// Generate is a model.LLM that is a function.
type Generate func(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error)

// Generate implements model.LLM.
func (g Generate) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	return g(ctx, req, emit)
}

// Provider serves the models "<name>/…", which need no key; Model finds the model
// by what stands after the slash.
type Provider struct {
	Name  string
	Model func(modelName string) Generate
}

// Describe implements model.Provider.
func (p Provider) Describe() model.Description {
	return model.Description{Name: p.Name, Keyless: true}
}

// Open implements model.Provider.
func (p Provider) Open(modelName, _ string) (model.Model, error) {
	return model.Model{LLM: p.Model(modelName)}, nil
}

// Wait waits for d, or for the end of ctx, which is its error.
func Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
