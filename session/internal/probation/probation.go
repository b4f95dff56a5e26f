// Package probation says which turns may run again after the process died while they ran.
//
// A turn that kills the process would kill it again at each start. So the store counts, for each open turn, how
// often it was made to run since its last step forward: the count is written before the turn runs, and taken back
// when the turn is suspended. What is left when a process starts is how often the turn was running when one died.
// When the count reaches the limit, the turn is quarantined.
//
// Turns that ran beside the one to blame are counted with it. So a turn one short of the limit is a suspect, and
// suspects run one at a time, until a step forward, an end or a wait clears them: the last death that counts is
// one turn's own.
//
// The package knows the counts and who runs its suspect. It must not know turns, sessions, or how a turn is run and
// ended.
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

// IsStep tells whether a record is a step forward of its turn.
func IsStep(kind record.Kind) bool { return slices.Contains(steps, kind) }

// Probation lets one of the holders of suspects run its own at a time. Its methods may be called from any goroutine.
type Probation[H comparable] struct {
	limit int64

	mu     sync.Mutex // protects the fields below; taken last
	taken  bool
	holder H // whose suspect runs, while taken
}

// New returns a probation on which nobody is. A turn is quarantined at limit deaths; with 0 none is.
func New[H comparable](limit int) *Probation[H] { return &Probation[H]{limit: int64(limit)} }

// Quarantined tells whether a turn that was made to run so often does not run again.
func (p *Probation[H]) Quarantined(attempts int64) bool {
	return p.limit > 0 && (attempts >= p.limit || attempts == store.AttemptsClosing)
}

// Suspected tells whether a turn that was made to run so often runs alone among its like.
func (p *Probation[H]) Suspected(attempts int64) bool {
	return p.limit > 1 && attempts > 0 && attempts >= p.limit-1
}

// Enter reports whether a holder may run its suspect.
func (p *Probation[H]) Enter(h H) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken && p.holder != h {
		return false
	}
	p.taken, p.holder = true, h
	return true
}

// Busy tells whether the suspect of another holder runs.
func (p *Probation[H]) Busy(h H) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken && p.holder != h
}

// Leave says that a holder's turn is no suspect any more, and reports whether it was.
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
