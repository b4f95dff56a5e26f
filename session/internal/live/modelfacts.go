package live

import (
	"context"
	"slices"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/record"
)

// FellBack records a fallback. From then on the model call under way, see BeginCall, is one of the next
// model.
func (r *Run) FellBack(ctx context.Context, f record.ModelFallback) error {
	f.Message = logjson.Readable(f.Message)
	if err := r.record(ctx, record.KindModelFallback, &f); err != nil {
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
	return r.record(ctx, record.KindRawPayload, &p)
}

// RemoteSession records what a backend has made, or is about to make, for an agent of the tree. f must not be changed.
func (r *Run) RemoteSession(ctx context.Context, f *agentdv1.RemoteSession) error {
	return r.record(ctx, record.KindRemoteSession, f)
}

// record appends a fact, a pointer to what its kind names.
func (r *Run) record(ctx context.Context, kind record.Kind, fact any) error {
	data, err := logjson.Marshal(fact)
	if err != nil {
		return err
	}
	_, err = r.s.commit(ctx, &entry{turn: r.t, attempt: r.a, kind: kind, data: data, fact: fact})
	return err
}
