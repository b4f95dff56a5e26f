package live

import (
	"context"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/record"
)

// WatchWhole returns a watcher of all turns of a session after a place, which takes no part. replayed is
// the last record before the client came; if it is negative, it becomes the session's last record.
func (s *Session) WatchWhole(at render.Place, replayed int64, ready chan struct{}) (*Watcher, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if replayed < 0 {
		replayed = s.seq
	}
	w := &Watcher{s: s, backlog: newBacklog(ready, nil), reader: render.NewReader(sessionLog{s}, render.Start{
		SessionID: s.id, Retention: s.limits().Retention, MaxBytes: s.limits().WatchBytes,
		After: at.At, Rendered: max(at.From-1, 0), Replayed: replayed,
	})}
	s.joinLocked(w)
	w.backlog.Wake()
	return w, replayed
}

// CheckPlace refuses a place that the session does not have.
func (s *Session) CheckPlace(ctx context.Context, p render.Place) error {
	last := lock.Get(&s.mu, func() int64 { return s.seq })
	if position.Record(p.At) > last {
		return fault.Errorf(fault.Invalid, "cursor: session %q has not come that far", s.id).
			Breaking("cursor", fault.RuleRange)
	}
	if p.From == 0 {
		return nil
	}
	// Rendering must begin at the start of a turn, or of a goal, which begins while none runs.
	if p.From <= position.Record(p.At)+1 {
		for rec, err := range s.records(ctx, max(p.From-2, 0), 2) {
			switch {
			case err != nil:
				return err
			case rec.Seq == p.From-1 && rec.Kind == record.KindTurnEnded,
				rec.Seq == p.From && rec.Kind == record.KindTurnStarted,
				rec.Seq == p.From && rec.Kind == record.KindGoalStarted:
				return nil
			}
			if rec.Seq >= p.From {
				break
			}
		}
	}
	return render.ErrNoCursor
}

// rouse notifies the SessionWatchers of the session.
func (s *Session) rouse() {
	if s.host != nil {
		s.host.Rouse(s.key)
	}
}

// Own is render.Reader.Own of the messages of a watcher; it is called before [Watcher.Next].
func Own(w *Watcher) { w.reader.Own() }

// TakeEnds returns the positions of the ends of turns that [Watcher.Next] has returned since the last call.
func TakeEnds(w *Watcher) []int64 { return w.reader.TakeEnds() }
