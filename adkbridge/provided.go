package adkbridge

import (
	"context"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/record"
)

// provided returns what a model's provider ran, in the session's terms; nil for
// nothing.
func provided(p *model.Provided) *record.Provided {
	if p.Empty() {
		return nil
	}
	out := &record.Provided{}
	for _, u := range p.Uses {
		out.Uses = append(out.Uses, record.ProviderUse(u))
	}
	for _, c := range p.Citations {
		out.Citations = append(out.Citations, record.Citation(c))
	}
	return out
}

// ranByProvider reports whether a part belongs to a tool that the model's provider ran.
func ranByProvider(p *genai.Part) bool {
	if p.Thought || p.Text != "" || p.FunctionCall != nil {
		return false
	}
	_, opaque := p.PartMetadata[seam.MetaOpaque]
	return opaque || p.ToolCall != nil || p.ToolResponse != nil || p.ExecutableCode != nil ||
		p.CodeExecutionResult != nil
}

// raw records a provider's response as it came.
func (m *agentModel) raw(ctx context.Context, messageID string, r modelcall.Raw) error {
	return m.t.run.Raw(ctx, record.RawPayload{
		MessageID:   messageID,
		Path:        m.n.path,
		Attempt:     r.Attempt,
		Provider:    r.Provider,
		Status:      r.Status,
		ContentType: r.ContentType,
		Body:        r.Body,
		Truncated:   r.Truncated,
	})
}
