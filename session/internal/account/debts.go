package account

import "sync"

// Debts are the reservations for calls that are over and whose usage is recorded later. The zero value has none. Its
// methods may be called from any goroutine.
type Debts struct {
	mu     sync.Mutex // protects the fields below
	owed   []func()
	closed bool
}

// End gives back what was reserved for a call: at once, or with owed once usage is recorded.
func (d *Debts) End(release func(), owed bool) {
	if !owed || !d.keep(release) {
		release()
	}
}

func (d *Debts) keep(release func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.owed = append(d.owed, release)
	}
	return !d.closed
}

// Settle gives back what was reserved for calls whose usage is recorded.
func (d *Debts) Settle() { d.settle(false) }

// Close is Settle when nothing more is recorded; what is owed later is given back at once.
func (d *Debts) Close() { d.settle(true) }

func (d *Debts) settle(closes bool) {
	for _, release := range d.take(closes) {
		release()
	}
}

func (d *Debts) take(closes bool) (owed []func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	owed, d.owed, d.closed = d.owed, nil, d.closed || closes
	return owed
}
