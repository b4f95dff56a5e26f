package session

import (
	"time"

	"github.com/apzuk3/agentd/session/internal/render"
)

// unservedAfter is how long a call waits for a client with its tool before those that
// watch are told that there is none.
const unservedAfter = 3 * time.Second

// notifyUnservedLocked says to everybody who watches that nobody has come with the tool of
// a call in a while.
func (s *Session) notifyUnservedLocked(t *Turn, p *pending) {
	p.unserved = true
	u := render.Unserved{Call: p.call, Expires: s.expiresLocked(t)}
	for w := range s.watchers {
		if w.turnLocked() == t {
			w.push(render.Item{Unserved: &u})
		}
	}
}

// unservedLocked are the calls of a turn that no client can be asked for, for those
// who come now. While the turn is suspended that is each one that is open.
func (s *Session) unservedLocked(t *Turn) []render.Unserved {
	if t != s.turn || t.ended != nil {
		return nil
	}
	var out []render.Unserved
	for _, p := range t.inOrder() {
		if p.open() && p.owner == nil && (p.unserved || !t.runs() && s.starting == nil) {
			out = append(out, render.Unserved{Call: p.call, Expires: s.expiresLocked(t)})
		}
	}
	return out
}

// expiresLocked is when the open turn is over if no client comes that it needs.
func (s *Session) expiresLocked(t *Turn) time.Time {
	at := s.lastAt.Add(s.limits.Retention)
	if t.runs() && (t.deadline.IsSet() || t.stalled) && s.attendedLocked() && t.due.Before(at) {
		at = t.due
	}
	if t.onDisconnect.Cancel && !t.cancelAt.IsZero() && t.cancelAt.At.Before(at) {
		at = t.cancelAt.At
	}
	return at
}
