package cluster

import (
	"maps"
	"slices"
	"time"
)

// Replica is a member as the database has it.
type Replica struct {
	// ID is that of one life of one process.
	ID int64
	// Name is what the operator calls it. Address is the URL at which the others reach it.
	Name, Address string
	// Version is that of the program, Features what it understands beyond the first release that had replicas.
	Version  string
	Features []string
	// Draining is true of a member that takes no more sessions.
	Draining bool

	beat int64
	held bool // its lock is held
}

// view is what a member has seen of all of them. Its times are those of one monotonic clock.
type view struct {
	ttl, lockTTL time.Duration
	members      map[int64]*seen
	looked       time.Time // when the last look began
	trouble      bool      // a look has failed since
}

// seen is what was seen of a member.
type seen struct {
	Replica
	since   time.Time // when its beat was first seen as it is
	wasHeld bool      // its lock was seen held since the windows began anew
}

// failed notes that a look has failed: nothing can be said of the time until the next one.
func (v *view) failed() { v.trouble = true }

// look takes what was read of all members by a query that began and ended at these times.
func (v *view) look(all []Replica, began, ended time.Time) {
	anew := v.trouble || v.looked.IsZero() || began.Sub(v.looked) > v.ttl/3
	was := v.members
	v.members = make(map[int64]*seen, len(all))
	for _, r := range all {
		s := was[r.ID]
		switch {
		case s == nil || anew:
			s = &seen{since: ended}
		case s.beat != r.beat:
			s.since = ended
		}
		s.wasHeld = s.wasHeld || r.held
		s.Replica = r
		v.members[r.ID] = s
	}
	v.looked, v.trouble = began, false
}

// dead returns who is dead at a time, in the order of ids. It returns none when the last look is too long ago, or has
// failed.
func (v *view) dead(now time.Time) (ids []int64) {
	if v.trouble || now.Sub(v.looked) > v.ttl/3 {
		return nil
	}
	for id, s := range v.members {
		still := v.looked.Sub(s.since)
		if still >= v.ttl || s.wasHeld && !s.held && still >= v.lockTTL {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// place returns the place of a member among those that take sessions, in the order of their ids, and how many these
// are: those that are neither dead nor draining, and the member itself.
func (v *view) place(me int64, dead []int64) (place, of int64) {
	for id, s := range v.members {
		if id != me && (s.Draining || slices.Contains(dead, id)) {
			continue
		}
		of++
		if id < me {
			place++
		}
	}
	return place, max(of, 1)
}

// lacking returns the members without a feature that are not dead.
func (v *view) lacking(feature string, dead []int64) (out []Replica) {
	for _, r := range v.all() {
		if !slices.Contains(r.Features, feature) && !slices.Contains(dead, r.ID) {
			out = append(out, r)
		}
	}
	return out
}

// all returns all members in the order of their ids.
func (v *view) all() []Replica {
	out := make([]Replica, 0, len(v.members))
	for _, id := range slices.Sorted(maps.Keys(v.members)) {
		out = append(out, v.members[id].Replica)
	}
	return out
}
