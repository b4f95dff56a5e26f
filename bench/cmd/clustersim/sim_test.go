package main

import (
	"math"
	"testing"
	"time"
)

// still is a database that does appends alone: one replica, whose turns have one append each.
func still(rate float64) Setup {
	return Setup{
		Replicas: 1, Rate: rate, Appends: 1, Turn: time.Second, For: 1_000 * time.Second, Cores: 1,
		Writers: math.MaxInt, Group: 1, Claimers: math.MaxInt, Beat: time.Hour, Look: time.Hour, LockTTL: time.Hour, Seed: 7,
	}
}

// TestQueue: with one core, no flush and jobs at random moments, the mean wait is that of Pollaczek and Khinchine.
func TestQueue(t *testing.T) {
	for _, load := range []float64{0.3, 0.6, 0.8} {
		s := newSim(Setup{Cores: 1, For: 1_000 * time.Second, Seed: 7})
		sum, n := time.Duration(0), 0
		var arrive func()
		arrive = func() {
			from := s.now
			s.ask(job{appends, time.Millisecond, false, func() { sum, n = sum+s.now-from, n+1 }})
			s.in(time.Duration(s.chance.ExpFloat64()/load*float64(time.Millisecond)), arrive)
		}
		s.in(0, arrive)
		r := s.run()
		got := float64(sum) / float64(n) / float64(time.Millisecond)
		want := 1 + load/2/(1-load)
		if math.Abs(got-want) > 0.03*want {
			t.Errorf("at a load of %v a job takes %.3f ms, want %.3f", load, got, want)
		}
		if math.Abs(r.busy()-load) > 0.01 {
			t.Errorf("the core is busy %.3f of the time, want %v", r.busy(), load)
		}
	}
}

// TestFlush: commits share a flush, so that their number is not bounded by it.
func TestFlush(t *testing.T) {
	s := still(10_000)
	s.For, s.Flush = 20*time.Second, 10*time.Millisecond
	r := Simulate(s)
	if r.AppendRate < 9_500 {
		t.Errorf("%.0f appends a second", r.AppendRate)
	}
	if least, most := r.Appends[0], r.Appends.at(1); least < 10*time.Millisecond || most > 20*time.Millisecond {
		t.Errorf("an append takes %v to %v, want one to two flushes", least, most)
	}
}

// TestTakeover: all turns of the dead are taken over, once each, and not before they count as dead.
func TestTakeover(t *testing.T) {
	s := Setup{
		Replicas: 10, Rate: 200, Appends: 8, Turn: 20 * time.Second, For: 60 * time.Second, Killed: 3,
		Cores: 4, Flush: time.Millisecond, RoundTrip: time.Millisecond,
		Writers: 2, Group: 128, Claimers: 8, Beat: time.Second, Look: 500 * time.Millisecond, LockTTL: 2 * time.Second,
		Costs: Costs{Append: 50 * time.Microsecond, Claim: 100 * time.Microsecond, Read: 500 * time.Microsecond}, Seed: 3,
	}
	r := Simulate(s)
	if died := float64(r.Open) * 3 / 10; math.Abs(float64(len(r.TakenOver))-died) > 0.2*died {
		t.Errorf("%d turns were taken over, want about %.0f of %d", len(r.TakenOver), died, r.Open)
	}
	if first, last := r.TakenOver[0], r.TakenOver.at(1); first < s.LockTTL || last > s.LockTTL+s.Beat+4*s.Look {
		t.Errorf("taken over after %v to %v", first, last)
	}
	s.Killed = 0
	if r := Simulate(s); len(r.TakenOver) != 0 || r.Open == 0 {
		t.Errorf("%d of %d turns were taken over, and nobody has died", len(r.TakenOver), r.Open)
	}
}

// TestCheck refuses setups that mean nothing.
func TestCheck(t *testing.T) {
	good := still(1)
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Setup){
		"nobody":     func(s *Setup) { s.Replicas = 0 },
		"all die":    func(s *Setup) { s.Killed = 1 },
		"no turns":   func(s *Setup) { s.Rate = 0 },
		"no appends": func(s *Setup) { s.Appends = 0 },
		"no cores":   func(s *Setup) { s.Cores = 0 },
		"flush":      func(s *Setup) { s.Flush = -1 },
	} {
		s := still(1)
		spoil(&s)
		if s.check() == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
