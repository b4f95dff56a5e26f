package live

import (
	"time"

	"github.com/apzuk3/agentd/session/internal/render"
)

// unservedAfter is how long a call waits for a client with its tool before watchers are notified that
// there is none.
const unservedAfter = 3 * time.Second

// notifyUnservedLocked notifies the watchers of the turn that no client has the tool of a call.
func (s *Session) notifyUnservedLocked(t *Turn, p *pending) {
	p.unserved = true
	u := render.Unserved{Call: p.call, Expires: s.expiresLocked(t)}
	for w := range s.watchers {
		if w.turnLocked() == t {
			w.push(render.Item{Unserved: &u})
		}
	}
	s.tapLocked(render.Item{Unserved: &u})
}

// unservedLocked returns the unserved calls of a turn, for a watcher that joins or catches up. While the
// turn is suspended, these are all open calls.
func (s *Session) unservedLocked(t *Turn) []render.Unserved {
	if t != s.turn || t.ended != nil {
		return nil
	}
	var out []render.Unserved
	for _, p := range t.inOrder() {
		if s.follows {
			if p.open() && p.unserved {
				out = append(out, render.Unserved{Call: p.call, Expires: p.expires})
			}
			continue
		}
		if p.open() && p.owner == nil && (p.unserved || !t.runs() && s.starting == nil) {
			out = append(out, render.Unserved{Call: p.call, Expires: s.expiresLocked(t)})
		}
	}
	return out
}

// expiresLocked returns when the open turn ends if the client that it needs does not come.
func (s *Session) expiresLocked(t *Turn) time.Time {
	at := s.lastAt.Add(s.limits().Retention)
	if t.runs() && (t.deadline.IsSet() || t.stalled) && s.attendedLocked() && t.due.Before(at) {
		at = t.due
	}
	if t.onDisconnect.Cancel && !t.cancelAt.IsZero() && t.cancelAt.At.Before(at) {
		at = t.cancelAt.At
	}
	return at
}
