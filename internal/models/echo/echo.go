// Package echo is a model that needs no key and no network: it streams the
// user's words back. It is for trying agentd out and for load tests.
//
// It imports model and genai, and knows nothing of sessions, ADK or the
// protocol.
package echo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/backoff"
	"github.com/apzuk3/agentd/internal/models/words"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// Config configures the provider; the zero value works.
type Config struct {
	// Delay is waited before each word; default none.
	Delay time.Duration
}

// Provider serves the one model "echo". It is immutable.
type Provider struct{ cfg Config }

// New returns the provider.
func New(cfg Config) *Provider { return &Provider{cfg: cfg} }

// Describe says that there is the one model "echo", which needs no key and costs
// nothing.
func (*Provider) Describe() model.Description {
	return model.Description{
		Name: "echo", Names: []string{"echo"}, Models: []string{"echo"},
		Keyless: true, Free: true,
	}
}

// Open returns the model, which is called "echo" only. The key is ignored.
func (p *Provider) Open(name, _ string) (model.Model, error) {
	if name != "echo" {
		return model.Model{}, &model.Error{Kind: model.KindUnavailable, Provider: "echo",
			Message: fmt.Sprintf("no model %q, there is only \"echo\"", name)}
	}
	return model.Model{LLM: llm(*p)}, nil
}

type llm Provider

// Generate streams the last thing the user said, word by word. Usage counts a
// word as a token.
func (l llm) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	b := &adapter.Builder{Provider: "echo", Emit: emit}
	_, text := words.LastUser(req)
	for word := range words.Split(text) {
		if err := backoff.Wait(ctx, l.cfg.Delay); err != nil {
			return nil, err
		}
		b.Text(word)
	}
	u := model.Usage{Prompt: words.Count(req), Completion: int64(len(strings.Fields(text)))}
	u.Total = u.Prompt + u.Completion
	return &model.Response{Content: b.Content(), FinishReason: genai.FinishReasonStop, Usage: u, Model: "echo"}, nil
}
