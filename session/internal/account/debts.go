package account

import (
	"strings"
	"sync"
)

// Debts are the reservations for calls that are over and whose usage is recorded later, by the agents that made them,
// oldest first. The zero value has none. Its methods may be called from any goroutine.
type Debts struct {
	mu     sync.Mutex // protects the fields below
	owed   map[string][]func()
	closed bool
}

// End gives back what was reserved for a call of the agent at a path: at once, or with owed once its usage is recorded.
func (d *Debts) End(path []string, release func(), owed bool) {
	if !owed || !d.keep(strings.Join(path, "/"), release) {
		release()
	}
}

func (d *Debts) keep(agent string, release func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	if d.owed == nil {
		d.owed = map[string][]func(){}
	}
	d.owed[agent] = append(d.owed[agent], release)
	return true
}

// Settle gives back what was reserved for the oldest call of the agent at a path whose usage is recorded now.
func (d *Debts) Settle(path []string) {
	if release := d.oldest(strings.Join(path, "/")); release != nil {
		release()
	}
}

func (d *Debts) oldest(agent string) (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if of := d.owed[agent]; len(of) > 0 {
		release, d.owed[agent] = of[0], of[1:]
	}
	return release
}

// Close gives back the rest: nothing more is recorded. What is owed later is given back at once.
func (d *Debts) Close() {
	for _, of := range d.close() {
		for _, release := range of {
			release()
		}
	}
}

func (d *Debts) close() (owed map[string][]func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	owed, d.owed, d.closed = d.owed, nil, true
	return owed
}
