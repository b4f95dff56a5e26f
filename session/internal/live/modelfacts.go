package live

import (
	"context"
	"slices"

	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/record"
)

// FellBack records a fallback. From then on the model call under way, see BeginCall, is one of the next
// model.
func (r *Run) FellBack(ctx context.Context, f record.ModelFallback) error {
	f.Message = logjson.Readable(f.Message)
	data, err := logjson.Marshal(f)
	if err != nil {
		return err
	}
	e := &entry{turn: r.t, attempt: r.a, kind: record.KindModelFallback, data: data, fact: &f}
	if _, err := r.s.commit(ctx, e); err != nil {
		return err
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for call := range r.a.modelCalls { // an agent makes one call at a time
		if slices.Equal(call.Path, f.Path) {
			call.Model = f.Next
		}
	}
	return nil
}

// Raw records a provider's payload as it came, for a turn whose Spec asks for it.
func (r *Run) Raw(ctx context.Context, p record.RawPayload) error {
	data, err := logjson.Marshal(p)
	if err != nil {
		return err
	}
	_, err = r.s.commit(ctx, &entry{turn: r.t, attempt: r.a, kind: record.KindRawPayload, data: data, fact: &p})
	return err
}
