package cluster

import (
	"slices"
	"testing"
	"time"
)

// TestView holds the deaths that a member sees to a table of looks. Its TTL is 15 s, its lock TTL 2 s.
func TestView(t *testing.T) {
	type look struct {
		at     time.Duration // of the beginning
		took   time.Duration
		beat   int64
		held   bool
		failed bool // the look has failed
		dead   bool // as seen right behind it
	}
	const s = time.Second
	every := func(from, to time.Duration, beat int64, held, dead bool) (all []look) {
		for at := from; at < to; at += s {
			all = append(all, look{at: at, beat: beat, held: held, dead: dead})
		}
		return all
	}
	join := slices.Concat[[]look]
	for name, looks := range map[string][]look{
		"a living one beats": {
			{at: 0, beat: 1}, {at: 4 * s, beat: 2}, {at: 8 * s, beat: 3}, {at: 12 * s, beat: 4}, {at: 16 * s, beat: 5},
			{at: 20 * s, beat: 6}, {at: 24 * s, beat: 7},
		},
		"a beat that stands still for the TTL": join(every(0, 15*s, 1, true, false), every(15*s, 20*s, 1, true, true)),
		"one that beats again": join(every(0, 15*s, 1, true, false), every(15*s, 17*s, 1, true, true),
			every(17*s, 30*s, 2, true, false)),
		"a lock that was held and is free": join(every(0, 3*s, 1, true, false), every(3*s, 4*s, 2, true, false),
			every(4*s, 5*s, 2, false, false), every(5*s, 9*s, 2, false, true)),
		"a lock that is free while the beat goes on": {
			{at: 0, beat: 1, held: true}, {at: 1 * s, beat: 2}, {at: 2 * s, beat: 3}, {at: 3 * s, beat: 4}, {at: 4 * s, beat: 5},
		},
		"a lock that was never held": join(every(0, 15*s, 1, false, false), every(15*s, 17*s, 1, false, true)),
		"a failed look begins all windows anew": join(every(0, 14*s, 1, true, false),
			[]look{{at: 14 * s, failed: true}}, every(15*s, 30*s, 1, true, false), every(30*s, 31*s, 1, true, true)),
		"a failed look forgets that the lock was held": join(every(0, 3*s, 1, true, false),
			[]look{{at: 3 * s, failed: true}}, every(4*s, 19*s, 1, false, false), every(19*s, 20*s, 1, false, true)),
		"a gap begins all windows anew": join(every(0, 9*s, 1, true, false),
			every(13*s+s/2, 28*s, 1, true, false), every(28*s+s/2, 30*s, 1, true, true)),
		"a gap that is no longer than a third": join(every(0, 10*s, 1, true, false),
			every(14*s, 15*s, 1, true, false), every(15*s, 17*s, 1, true, true)),
		"a look that takes long counts from its end": join([]look{{at: 0, took: 4 * s, beat: 1, held: true}},
			every(5*s, 19*s, 1, true, false), every(19*s, 20*s, 1, true, true)),
	} {
		t.Run(name, func(t *testing.T) {
			v := view{ttl: 15 * s, lockTTL: 2 * s}
			start := time.Now()
			for _, l := range looks {
				began := start.Add(l.at)
				if l.failed {
					v.failed()
				} else {
					v.look([]Replica{{ID: 7, beat: l.beat, held: l.held}}, began, began.Add(l.took))
				}
				got := v.dead(began.Add(l.took))
				if want := []int64{7}; l.dead && !slices.Equal(got, want) || !l.dead && got != nil {
					t.Errorf("at %v: dead are %v", l.at, got)
				}
			}
		})
	}
}

// TestViewIsSilentWithoutLooks: who has not looked for long says nothing of others.
func TestViewIsSilentWithoutLooks(t *testing.T) {
	v := view{ttl: 15 * time.Second, lockTTL: 2 * time.Second}
	start := time.Now()
	for at := time.Duration(0); at <= 15*time.Second; at += time.Second {
		v.look([]Replica{{ID: 7, beat: 1}}, start.Add(at), start.Add(at))
	}
	last := start.Add(15 * time.Second)
	if got := v.dead(last.Add(5 * time.Second)); !slices.Equal(got, []int64{7}) {
		t.Errorf("dead are %v", got)
	}
	if got := v.dead(last.Add(5*time.Second + 1)); got != nil {
		t.Errorf("dead are %v, and the last look is %v ago", got, 5*time.Second+1)
	}
}

// TestViewCountsTakers: dead and draining members take no sessions, and who asks does.
func TestViewCountsTakers(t *testing.T) {
	v := view{ttl: 15 * time.Second, lockTTL: 2 * time.Second}
	now := time.Now()
	v.look([]Replica{{ID: 1}, {ID: 2, Draining: true}, {ID: 3}, {ID: 4}}, now, now)
	for _, tt := range []struct {
		me        int64
		dead      []int64
		place, of int64
	}{
		{1, nil, 0, 3},
		{3, nil, 1, 3},
		{4, nil, 2, 3},
		{4, []int64{3}, 1, 2},
		{4, []int64{1, 3, 4}, 0, 1},
		{2, nil, 1, 4},
		{9, []int64{1, 3, 4}, 0, 1},
	} {
		if place, of := v.place(tt.me, tt.dead); place != tt.place || of != tt.of {
			t.Errorf("%d has place %d of %d while %v are dead, want %d of %d", tt.me, place, of, tt.dead, tt.place, tt.of)
		}
	}
}

// TestTimes: whatever TTL a configuration has that is accepted, looks that come late by half a beat each find a death
// soon after the TTL, and not before.
func TestTimes(t *testing.T) {
	for _, c := range []Config{{}, {TTL: 3 * time.Second}, {TTL: time.Minute}, {TTL: 5 * time.Second, Beat: time.Second}} {
		c.Address = "http://here"
		if err := c.fill(); err != nil {
			t.Fatal(err)
		}
		v := view{ttl: c.TTL, lockTTL: c.LockTTL}
		start := time.Now()
		for at := time.Duration(0); ; at += c.Beat * 3 / 2 {
			now := start.Add(at)
			v.look([]Replica{{ID: 7, beat: 1, held: true}}, now, now)
			if len(v.dead(now)) > 0 {
				if at < c.TTL {
					t.Errorf("TTL %v, beat %v: dead after %v", c.TTL, c.Beat, at)
				}
				break
			}
			if at > c.TTL+2*c.Beat {
				t.Errorf("TTL %v, beat %v: not dead after %v", c.TTL, c.Beat, at)
				break
			}
		}
	}
	for _, c := range []Config{{TTL: 3 * time.Second, Beat: time.Second}, {TTL: time.Second}} {
		c.Address = "http://here"
		if err := c.fill(); err == nil {
			t.Errorf("a TTL of %v with a beat of %v is accepted", c.TTL, c.Beat)
		}
	}
}
