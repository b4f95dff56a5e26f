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

// End gives back what was reserved for a call of the agent at a path, in the room of a call of an agent: at once, or
// with owed once its usage is recorded.
func (d *Debts) End(path []string, room string, release func(), owed bool) {
	if !owed || !d.keep(debtor(path, room), release) {
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

// debtor names an agent.
func debtor(path []string, room string) string { return strings.Join(path, "/") + "|" + room }

// Settle gives back what was reserved for the oldest call of the agent whose usage is recorded now.
func (d *Debts) Settle(path []string, room string) {
	if release := d.oldest(debtor(path, room)); release != nil {
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
