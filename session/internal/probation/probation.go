// Package probation decides which turns may be resumed after the process died while they ran.
//
// A turn that kills the process would kill it at each start. So the store counts the attempts of each
// open turn since its last step forward: the count is written before an attempt, and reset when the turn
// is suspended. At the start of a process the count is the number of deaths at which the turn was
// running. At the limit, the turn is quarantined.
//
// A death also counts for the turns that ran beside the one to blame. So a turn one death below the limit
// is a suspect, and suspects run one at a time, until a step forward, an end or a wait clears them: the
// last death that counts is caused by the suspect itself.
//
// The package knows the counts and whose suspect runs. It must not know turns, sessions, or how a turn
// runs and ends.
package probation

import (
	"slices"
	"sync"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// steps are the kinds of records that are steps forward.
var steps = []record.Kind{
	record.KindTurnStarted, record.KindEvent, record.KindToolCall, record.KindToolResult,
	record.KindInteractionResolved,
}

// IsStep reports whether a record is a step forward of its turn.
func IsStep(kind record.Kind) bool { return slices.Contains(steps, kind) }

// Probation lets one of the holders of suspects run its own at a time. Its methods may be called from any
// goroutine.
type Probation[H comparable] struct {
	limit int64

	mu     sync.Mutex // protects the fields below; taken last
	taken  bool
	holder H // whose suspect runs, while taken
}

// New returns a probation without a suspect. A turn is quarantined at limit deaths; with 0 none is.
func New[H comparable](limit int) *Probation[H] { return &Probation[H]{limit: int64(limit)} }

// Quarantined reports whether a turn with so many attempts is not resumed.
func (p *Probation[H]) Quarantined(attempts int64) bool {
	return p.limit > 0 && (attempts >= p.limit || attempts == store.AttemptsClosing)
}

// Suspected reports whether a turn with so many attempts is a suspect, or beyond.
func (p *Probation[H]) Suspected(attempts int64) bool {
	return p.limit > 1 && attempts > 0 && attempts >= p.limit-1
}

// Enter takes the probation for a holder's suspect. It reports false if the suspect of another holder runs.
func (p *Probation[H]) Enter(h H) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken && p.holder != h {
		return false
	}
	p.taken, p.holder = true, h
	return true
}

// Busy reports whether the suspect of another holder runs.
func (p *Probation[H]) Busy(h H) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken && p.holder != h
}

// Leave ends the probation of a holder's suspect, and reports whether the holder had it.
func (p *Probation[H]) Leave(h H) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.taken || p.holder != h {
		return false
	}
	var none H
	p.taken, p.holder = false, none
	return true
}
