package live

import (
	"time"

	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/record"
)

// Hint is what the watchers of a session receive, as the owner tells it to servers whose watchers follow it there.
type Hint struct {
	// Epoch is that of the owner.
	Epoch int64
	// Pos is the position of a fact's record, or of a delta. Prev is that of the hint before: who has not seen it has
	// missed something. A hint about an unserved call has no position of its own, and both are that of the one before.
	Pos, Prev int64
	// Delta is of a delta, Unserved of a call that no client can run. A fact has neither: it is in the log.
	Delta    *record.Delta
	Unserved *render.Unserved
}

// Image is what a session has beside its log at a moment, for servers that have missed hints.
type Image struct {
	// Epoch is that of the owner, Applied the last record, Pos the position of the last hint.
	Epoch, Applied, Pos int64
	// Partials are the messages that are not complete, Unserved the open calls that no client can run.
	Partials []render.Image
	Unserved []render.Unserved
}

// tap shows what happens to servers whose watchers follow the session there. Protected by Session.mu.
type tap struct {
	show   func(Hint) // nil while nobody follows; called under the lock
	until  time.Time  // when nobody follows any more, unless somebody says so again
	last   int64      // position of the last hint
	imaged time.Time  // when the last image was given
}

// imageEvery is the least time between two images of a session: all who follow it receive each.
const imageEvery = 20 * time.Millisecond

// ShowFor has show called with each hint for a time from now. If image is not nil it is called too, before hints that
// follow it, unless that was a moment ago. Both are called under the lock of the session: they must not block nor call
// it. A session that is not in the log yet, or not written here, shows nothing.
func (s *Session) ShowFor(wait time.Duration, show func(Hint), image func(Image)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil || s.create != nil || s.follows {
		return
	}
	now := time.Now()
	s.tap.show, s.tap.until, s.tap.last = show, now.Add(wait), s.lastPosLocked()
	if image == nil || now.Sub(s.tap.imaged) < imageEvery {
		return
	}
	s.tap.imaged = now
	out := Image{Epoch: s.Lease.Epoch(), Applied: s.seq, Pos: s.tap.last}
	if t := s.turn; t != nil && t.ended == nil {
		for _, m := range t.partials {
			out.Partials = append(out.Partials, m.Image())
		}
		out.Unserved = s.unservedLocked(t)
	}
	image(out)
}

// lastPosLocked is the position of the last item that was published.
func (s *Session) lastPosLocked() int64 {
	if s.deltas > 0 {
		return position.Of(s.seq, position.Deltas+s.deltas-1)
	}
	return position.Of(s.seq, 0)
}

// tapLocked shows an item to those who follow the session.
func (s *Session) tapLocked(it render.Item) {
	if s.tap.show == nil {
		return
	}
	if time.Now().After(s.tap.until) {
		s.tap.show = nil
		return
	}
	h := Hint{Epoch: s.Lease.Epoch(), Pos: it.Pos, Prev: s.tap.last, Delta: it.Delta, Unserved: it.Unserved}
	if it.Unserved != nil {
		h.Pos = h.Prev
	}
	s.tap.last = h.Pos
	s.tap.show(h)
}
