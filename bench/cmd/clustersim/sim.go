package main

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"
)

// Costs are what the database's processors take for one piece of work.
type Costs struct {
	// Transaction is that of a group of appends, Append that of one of them.
	Transaction, Append time.Duration
	// Claim is that of a claim, and of a release.
	Claim time.Duration
	// Beat is that of a beat, and BeatOf what each member adds to it.
	Beat, BeatOf time.Duration
	// Look is that of a look for what must go on, and LookOf what each session adds to it that it finds.
	Look, LookOf time.Duration
	// Read is that of the log of a session.
	Read time.Duration
}

// Setup is what is simulated.
type Setup struct {
	Replicas int
	// AtRest are sessions without a turn. They cost the database space, and nothing else: no work looks at them.
	AtRest int
	// Rate is how many turns begin in a second, at random moments and replicas. Each has Appends, the first one behind
	// a claim at its beginning, the last one before a release when it has taken Turn.
	Rate    float64
	Appends int
	Turn    time.Duration
	For     time.Duration
	// Killed replicas die at a third of For.
	Killed int
	// Cores do the work of the database, in the order in which it comes. A commit waits for a Flush, which all share
	// that wait when it begins. RoundTrip is between a replica and the database.
	Cores            int
	Flush, RoundTrip time.Duration
	// Writers are the connections of a replica that append, Group the appends in one transaction. Claimers are those
	// that claim and read.
	Writers, Group, Claimers int
	Beat, Look, LockTTL      time.Duration
	Costs                    Costs
	Seed                     uint64
}

// kind is what the database is busy with.
type kind int

const (
	appends kind = iota
	claims
	beats
	looks
	kinds
)

// Result is what came of it.
type Result struct {
	// Busy is the share of all cores' time.
	Busy [kinds]float64
	// AppendRate is how many appends were acknowledged in a second.
	AppendRate float64
	// Appends are the times from when an append was queued until it was acknowledged, TakenOver those from a death
	// until a session that its owner left open goes on elsewhere: it is claimed and read, and has appended.
	Appends, TakenOver times
	// Open is how many turns were open at a third of the time.
	Open int
}

func (r *Result) busy() (all float64) {
	for _, b := range r.Busy {
		all += b
	}
	return all
}

type times []time.Duration

// at returns a quantile of sorted times, 0 for none.
func (t times) at(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	return t[min(int(q*float64(len(t))), len(t)-1)]
}

// event is something that happens.
type event struct {
	at time.Duration
	n  int // of events at the same time the first one that was planned comes first
	do func()
}

type agenda []event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].n < a[j].n
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(e any)   { *a = append(*a, e.(event)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// job is work for the database. Then is called when the replica has the answer.
type job struct {
	kind  kind
	cost  time.Duration
	flush bool
	then  func()
}

// sim is a run.
type sim struct {
	Setup
	now    time.Duration
	plan   agenda
	events int
	chance *rand.Rand

	free     int   // cores
	queue    []job // that wait for a core
	flushing bool
	commits  []func() // that wait for the next flush

	replicas []*replica
	orphans  []*turn // whose owner has died, in the order of their ids
	waiting  int     // orphans that nobody has claimed
	done     int     // appends that were acknowledged
	spent    [kinds]time.Duration
	result   Result
}

type replica struct {
	dead    bool
	writers int // that are free
	queue   []*pending
	free    int // claimers
	claims  []*turn
	open    map[*turn]bool
}

// pending is an append in the queue of a replica.
type pending struct {
	turn *turn
	from time.Duration
	then func()
}

type turn struct {
	id      int
	owner   *replica
	left    int
	died    time.Duration // when its owner died
	claimed bool          // by another one since
}

// Simulate runs a setup.
func Simulate(setup Setup) Result {
	s := newSim(setup)
	for range s.Replicas {
		r := &replica{writers: s.Writers, free: s.Claimers, open: map[*turn]bool{}}
		s.replicas = append(s.replicas, r)
		s.every(s.Beat, r, func(again func()) {
			s.ask(job{beats, s.Costs.Beat + time.Duration(s.Replicas)*s.Costs.BeatOf, true, again})
		})
		s.every(s.Look, r, func(again func()) { s.look(r, again) })
	}
	s.arrive()
	s.in(s.For/3, s.deaths)
	return s.run()
}

func newSim(setup Setup) *sim {
	return &sim{Setup: setup, chance: rand.New(rand.NewPCG(setup.Seed, 0)), free: setup.Cores}
}

// run lets happen what is planned.
func (s *sim) run() Result {
	for len(s.plan) > 0 && s.plan[0].at < s.For {
		e := heap.Pop(&s.plan).(event)
		s.now = e.at
		e.do()
	}
	for k := range kinds {
		s.result.Busy[k] = float64(s.spent[k]) / float64(s.For) / float64(s.Cores)
	}
	s.result.AppendRate = float64(s.done) / s.For.Seconds()
	slices.Sort(s.result.Appends)
	slices.Sort(s.result.TakenOver)
	return s.result
}

func (s *sim) in(wait time.Duration, do func()) {
	s.events++
	heap.Push(&s.plan, event{s.now + wait, s.events, do})
}

// every does something from a random moment on, until the replica dies: the next time a while after the last one has
// begun, or when that is over.
func (s *sim) every(pause time.Duration, r *replica, do func(again func())) {
	var once func()
	once = func() {
		began := s.now
		if !r.dead {
			do(func() { s.in(max(began+pause-s.now, 0), once) })
		}
	}
	s.in(time.Duration(s.chance.Float64()*float64(pause)), once)
}

// ask has the database do a job.
func (s *sim) ask(j job) { s.in(s.RoundTrip/2, func() { s.queue = append(s.queue, j); s.serve() }) }

// serve gives jobs to free cores.
func (s *sim) serve() {
	for s.free > 0 && len(s.queue) > 0 {
		j := s.queue[0]
		s.queue = s.queue[1:]
		s.free--
		s.spent[j.kind] += j.cost
		s.in(j.cost, func() {
			s.free++
			answer := func() { s.in(s.RoundTrip/2, j.then) }
			if j.flush {
				s.commits = append(s.commits, answer)
				s.flush()
			} else {
				answer()
			}
			s.serve()
		})
	}
}

// flush begins a flush for all commits that wait, unless one is under way.
func (s *sim) flush() {
	if s.flushing || len(s.commits) == 0 {
		return
	}
	group := s.commits
	s.commits, s.flushing = nil, true
	s.in(s.Flush, func() {
		s.flushing = false
		for _, answer := range group {
			answer()
		}
		s.flush()
	})
}

// arrive begins turns at random moments.
func (s *sim) arrive() {
	s.in(time.Duration(s.chance.ExpFloat64()/s.Rate*float64(time.Second)), func() {
		s.arrive()
		r := s.replicas[s.chance.IntN(len(s.replicas))]
		if r.dead { // its clients come to another one
			return
		}
		t := &turn{id: s.chance.IntN(1 << 30), owner: r, left: s.Appends}
		r.open[t] = true
		s.claim(r, t)
	})
}

// claim claims a session and reads it, and has its turn append.
func (s *sim) claim(r *replica, t *turn) {
	r.claims = append(r.claims, t)
	s.claimMore(r)
}

func (s *sim) claimMore(r *replica) {
	for r.free > 0 && len(r.claims) > 0 && !r.dead {
		t := r.claims[0]
		r.claims = r.claims[1:]
		r.free--
		s.ask(job{claims, s.Costs.Claim, true, func() {
			if t.owner != r { // another one was quicker
				r.free++
				s.claimMore(r)
				return
			}
			s.ask(job{claims, s.Costs.Read, false, func() {
				r.free++
				s.claimMore(r)
				s.step(t)
			}})
		}})
	}
}

// step is an append of a turn, and what follows.
func (s *sim) step(t *turn) {
	r := t.owner
	s.enqueue(r, t, func() {
		if t.died > 0 {
			s.result.TakenOver = append(s.result.TakenOver, s.now-t.died)
			t.died = 0
		}
		if t.left--; t.left > 0 {
			s.in(s.Turn/time.Duration(s.Appends), func() {
				if t.owner == r && !r.dead {
					s.step(t)
				}
			})
			return
		}
		delete(r.open, t)
		s.ask(job{claims, s.Costs.Claim, true, func() {}})
	})
}

func (s *sim) enqueue(r *replica, t *turn, then func()) {
	if r.dead {
		return
	}
	r.queue = append(r.queue, &pending{t, s.now, then})
	s.write(r)
}

// write has the free writers of a replica write what waits.
func (s *sim) write(r *replica) {
	for r.writers > 0 && len(r.queue) > 0 && !r.dead {
		group := r.queue[:min(len(r.queue), s.Group)]
		r.queue = r.queue[len(group):]
		r.writers--
		cost := s.Costs.Transaction + time.Duration(len(group))*s.Costs.Append
		s.ask(job{appends, cost, true, func() {
			r.writers++
			if r.dead {
				return
			}
			for _, p := range group {
				s.done++
				s.result.Appends = append(s.result.Appends, s.now-p.from)
				p.then()
			}
			s.write(r)
		}})
	}
}

// deaths kills replicas. The others find them dead when their lock is free and their beat has stood still.
func (s *sim) deaths() {
	for i, r := range s.replicas {
		s.result.Open += len(r.open)
		if i >= s.Killed {
			continue
		}
		r.dead = true
		for t := range r.open {
			t.died = s.now
			s.orphans = append(s.orphans, t)
		}
	}
	slices.SortFunc(s.orphans, func(a, b *turn) int { return a.id - b.id })
	s.waiting = len(s.orphans)
}

// look has a replica look for what must go on, and claim its share.
func (s *sim) look(r *replica, again func()) {
	var found []*turn
	// The beat before the death may have been seen just before it, or a beat later.
	if s.waiting > 0 && s.now >= s.For/3+s.LockTTL+time.Duration(s.chance.Float64()*float64(s.Beat)) {
		for _, t := range s.orphans {
			if !t.claimed {
				found = append(found, t)
			}
		}
	}
	seen := min(len(found), 10_000) // cluster.mostCounted
	found = found[:seen]
	s.ask(job{looks, s.Costs.Look + time.Duration(seen)*s.Costs.LookOf, false, func() {
		takers := s.Replicas - s.Killed
		place := slices.Index(s.replicas, r) - s.Killed
		slices.SortStableFunc(found, func(a, b *turn) int {
			return others(a, place, takers) - others(b, place, takers)
		})
		own := 0
		for own < seen && others(found[own], place, takers) == 0 {
			own++
		}
		for _, t := range found[:min(seen, max(own, (seen+takers-1)/takers))] {
			if !t.claimed {
				t.claimed, t.owner = true, r
				s.waiting--
				r.open[t] = true
			}
			s.claim(r, t)
		}
		again()
	}})
}

// others is 0 for a turn that is of the part of a replica by its place.
func others(t *turn, place, takers int) int {
	if t.id%takers == place {
		return 0
	}
	return 1
}
