package live

import (
	"context"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
)

// AskCompaction records that summaries are to replace what models have read so far, durably, and returns the position
// of what comes last before. It is a record of the session, not of a turn: one that runs sees it with its next model
// call, another one with its first.
func (s *Session) AskCompaction(ctx context.Context, focus string) (pos int64, err error) {
	t := lock.Get(&s.mu, func() *Turn { return s.turn })
	if t == nil {
		return 0, fault.Errorf(fault.Precondition, "session %q has no turn yet, so there is nothing to summarize", s.id)
	}
	fact := &record.CompactionAsked{Focus: focus, By: principal.Of(ctx).ID}
	data, err := logjson.Marshal(fact)
	if err != nil {
		return 0, err
	}
	rec, err := s.commit(ctx, &entry{turn: t, kind: record.KindCompactionAsked, data: data, fact: fact, asked: true})
	if err != nil {
		return 0, err
	}
	return position.Of(rec.Seq, 0) - 1, nil
}

// CompactionAsked returns the record that last asked for summaries, 0 for none, and what they are to keep.
func (r *Run) CompactionAsked() (seq int64, focus string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.s.summarizes, r.s.focus
}
