// Package tally counts what the sessions of a server hold. It knows no session.
package tally

// Tally are counts of what is in memory, and of what is suspended.
type Tally struct {
	// Sessions are those in memory.
	Sessions int
	// Running and Waiting are turns that a goroutine drives. The second only wait for a client or a person, and no
	// client works on a call of theirs. Queued turns wait for their start.
	Running, Waiting, Queued int
	// Suspended are the open turns of the store that nothing drives here.
	Suspended int
	// Behind is the sum, and FurthestBehind the largest, of what waits for readers. Lagging are the readers that read
	// the log in its place.
	Behind, FurthestBehind, Lagging int
	// Lags is how often a reader began to lag since the start.
	Lags int64
}

// Reader counts a reader for whom so many items wait.
func (t *Tally) Reader(behind int, lags bool) {
	t.Behind += behind
	t.FurthestBehind = max(t.FurthestBehind, behind)
	if lags {
		t.Lagging++
	}
}
