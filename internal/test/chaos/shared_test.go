package chaos

import (
	"slices"
	"sync"
	"time"
)

// blindness is how long after the end of a trouble a process may act as if it owned what others have taken: until its
// next beat, on a machine that is busy.
const blindness = 4 * time.Second

// shared is what is known of processes that share a database.
type shared struct {
	mu     sync.Mutex // protects the fields below
	spells map[int][]spell
	blind  int // calls that were made again by processes that could not know
}

// spell is a time in which a process was stopped, or had no database.
type spell struct{ from, to time.Time }

// began notes that a spell of processes begins; the function it returns notes its end.
func (s *shared) began(epochs ...int) (ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := time.Now()
	at := map[int]int{}
	for _, epoch := range epochs {
		at[epoch] = len(s.spells[epoch])
		s.spells[epoch] = append(s.spells[epoch], spell{from: from})
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for epoch, i := range at {
			s.spells[epoch][i].to = time.Now()
		}
	}
}

// blinded reports whether who made a request could not know who owned the session, and counts it then.
func (s *shared) blinded(by made) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := slices.ContainsFunc(s.spells[by.epoch], func(p spell) bool {
		return !by.at.Before(p.from) && (p.to.IsZero() || !by.at.After(p.to.Add(blindness)))
	})
	if is {
		s.blind++
	}
	return is
}

// afterwards reports whether a request was made after a record held the answer to the same: by a later process; where
// processes work side by side, at a later time.
func (x *examine) afterwards(other, recorded made, seq int64) bool {
	if x.shared == nil {
		return other.epoch > recorded.epoch
	}
	return other.at.After(x.records[seq-1].Time)
}

// undisturbed reports whether one process made both requests, and, where others could have owned the session between
// them, did not resume the turn.
func (x *examine) undisturbed(first, second made, t *loggedTurn) bool {
	if first.epoch != second.epoch {
		return false
	}
	if x.shared == nil || t == nil {
		return x.shared == nil
	}
	if first.at.After(second.at) {
		first, second = second, first
	}
	return !slices.ContainsFunc(t.resumes, func(at time.Time) bool { return at.After(first.at) && at.Before(second.at) })
}

// rerunf is that of the verdict, for a request that who made it need not have made.
func (x *examine) rerunf(by made, format string, args ...any) {
	if x.shared == nil || !x.shared.blinded(by) {
		x.v.rerunf(format, args...)
	}
}
