// Package heap has the garbage collector of a process work as seldom as its memory allows: a small heap may grow by
// [Room] before it is collected, where Go alone would collect it whenever it has doubled; and a process that comes to
// rest gives back what it no longer uses, the first time also the pages of the program that its start used. It is a
// part of agentd, not an API.
//
// It changes settings of the whole process, so that only a program uses it. It knows nothing of what the memory is for.
package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// Room is by how many bytes a heap may grow at least before it is collected. A heap of that size and above is
	// collected when it has doubled, as by Go's default.
	Room = 64 << 20
	// maxPercent bounds how often a tiny heap may double.
	maxPercent = 1600

	// restTick is how often it is looked whether the process rests, restAlloc how many bytes it may allocate meanwhile.
	restTick  = time.Second
	restAlloc = 1 << 20
	// restUnused is how many bytes are worth giving back.
	restUnused = 8 << 20
	// restFactor is how many times as long as the last return took the process works before the next one.
	restFactor = 50
)

// Pace begins. stop ends it, and leaves the settings as they are. Where the environment has GOGC, Pace does nothing:
// the operator knows better.
func Pace() (stop func()) {
	if _, set := os.LookupEnv("GOGC"); set {
		return func() {}
	}
	p := &pacer{collected: make(chan struct{}, 1), stop: make(chan struct{}), percent: 100}
	var owned sync.WaitGroup
	owned.Go(p.run)
	return sync.OnceFunc(func() {
		close(p.stop)
		owned.Wait()
	})
}

// pacer is owned by the goroutine of run.
type pacer struct {
	collected chan struct{} // receives after a collection
	stop      chan struct{} // closed by Pace's stop

	percent   int    // as it was set last
	allocated uint64 // when it was looked last, since the start of the process
	rested    bool   // once, since the start
	next      time.Time
}

func (p *pacer) run() {
	ticker := time.NewTicker(restTick)
	defer ticker.Stop()
	p.adjust()
	for {
		select {
		case <-p.collected:
			p.adjust()
		case now := <-ticker.C:
			p.rest(now)
		case <-p.stop:
			return
		}
	}
}

// sentinel is what the next collection finds to be garbage.
type sentinel struct{ _ *int }

// adjust sets the percentage for the heap that the last collection has left, and has the next one call again.
func (p *pacer) adjust() {
	runtime.AddCleanup(new(sentinel), func(collected chan<- struct{}) {
		select {
		case collected <- struct{}{}:
		default:
		}
	}, p.collected)
	if percent := percentFor(read().live); percent != p.percent {
		p.percent = percent
		debug.SetGCPercent(percent)
	}
}

// percentFor is by how much a heap may grow, in steps of 50, so that it is not set for nothing.
func percentFor(live uint64) int {
	const step = 50
	percent := min(100*Room/max(live, 1), maxPercent)
	return max(int(percent)/step*step, 100)
}

// rest gives memory back if the process does next to nothing. The first time that is what only the start needed,
// however little.
func (p *pacer) rest(now time.Time) {
	h := read()
	before := p.allocated
	p.allocated = h.allocated
	if h.allocated-before > restAlloc || p.rested && h.unused < restUnused || now.Before(p.next) {
		return
	}
	runtime.GC() // it halves the stacks that are too large, and so does the next one
	debug.FreeOSMemory()
	if !p.rested {
		p.rested = true
		dropImage()
	}
	took := time.Since(now)
	p.next = time.Now().Add(restFactor * took)
	p.allocated = read().allocated
}

// state is what the runtime says of the heap, in bytes.
type state struct {
	live      uint64 // that the last collection has left
	unused    uint64 // garbage, as far as the last collection knows, and what is free and not given back
	allocated uint64 // since the start of the process
}

func read() state {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	live, objects := samples[0].Value.Uint64(), samples[2].Value.Uint64()
	s := state{live: live, allocated: samples[1].Value.Uint64(), unused: samples[3].Value.Uint64()}
	if objects > live {
		s.unused += objects - live
	}
	return s
}
