package live

import (
	"context"

	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/record"
)

// AgentsChanged records that agents have started and ended.
func (r *Run) AgentsChanged(ctx context.Context, f record.AgentsChanged) error {
	return r.record(ctx, record.KindAgentsChanged, &f)
}

// AgentsChangedAtEnd is AgentsChanged in the append of the turn's end; see AppendAtEnd.
func (r *Run) AgentsChangedAtEnd(f record.AgentsChanged) error {
	data, err := logjson.Marshal(f)
	if err != nil {
		return err
	}
	r.atEnd = append(r.atEnd, &entry{turn: r.t, attempt: r.a, kind: record.KindAgentsChanged, data: data, fact: &f})
	return nil
}
