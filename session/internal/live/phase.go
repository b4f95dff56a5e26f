package live

import (
	"fmt"
	"log/slog"
	"slices"
)

// A turn and a tool call each have one phase, which one function changes: [Turn.enter] and [pending.enter].
// Offers and timers follow from the phases: see [Session.reconcileLocked].

// turnPhase is the phase of a turn in this process, apart from its records and its attempt.
//
//	new ──► queued ──► claimed ──► injected        a prompt waits; it becomes
//	 │       │ ▲ │ ◄─────┘                         a message of the running turn, or
//	 │       │ │ └───► dropping ──► ended          it is dropped, or
//	 │       │ └──────────┘                        the one before ends, and its turn starts
//	 ▼       ▼
//	starting ──────────► running ──► suspending    a goroutine drives the turn
//	 │  ▲                 │ ▲ │        │   │
//	 │  │                 │ │ └────────┼───┼────┐
//	 ▼  │                 │ │          │   ▼    ▼
//	suspended ◄───────────┘ └──────────┼─ ending ──► ended
//	 │  ▲  ▲                           │    ▲ │
//	 │  │  └───────────────────────────┘    │ │    the end could not be written: back
//	 │  │                                   │ ▼
//	 └──┴──────────────────────────────── closing  nothing drives the turn, it is being closed
//
// While a log is read, a turn is starting from TurnStarted to TurnEnded; at the end of the log it is
// suspended. There a queued turn may be injected or ended without the phases in between.
type turnPhase int

const (
	turnNew        turnPhase = iota // it has no durable record yet
	turnQueued                      // it waits for its start
	turnClaimed                     // its prompt is becoming a message of the running turn
	turnDropping                    // TurnDropped is on its way into the log
	turnInjected                    // its prompt has become a message: it never starts
	turnStarting                    // TurnStarted or TurnResumed is durable, and it is about to run
	turnRunning                     // a goroutine drives it
	turnSuspending                  // the context of its run has ended with ErrSuspended
	turnClosing                     // nothing drives it, and it is being closed
	turnEnding                      // TurnEnded is on its way into the log: nothing may follow
	turnSuspended                   // it is open, and nothing drives it
	turnEnded
)

var turnPhaseNames = [...]string{
	"new", "queued", "claimed", "dropping", "injected",
	"starting", "running", "suspending", "closing", "ending", "suspended", "ended",
}

func (p turnPhase) String() string { return turnPhaseNames[p] }

// turnTransitions is the drawing above.
var turnTransitions = map[turnPhase][]turnPhase{
	turnNew:        {turnQueued, turnStarting, turnEnded},
	turnQueued:     {turnClaimed, turnDropping, turnInjected, turnStarting, turnEnded},
	turnClaimed:    {turnQueued, turnInjected},
	turnDropping:   {turnQueued, turnEnded},
	turnStarting:   {turnRunning, turnSuspended, turnEnded},
	turnRunning:    {turnSuspending, turnEnding, turnSuspended},
	turnSuspending: {turnEnding, turnSuspended},
	turnClosing:    {turnEnding, turnSuspended},
	turnEnding:     {turnEnded, turnRunning, turnClosing},
	turnSuspended:  {turnStarting, turnClosing},
}

// callPhase is the phase of a tool call without a result. The first five are those of a call for a client.
//
//	open, unserved, offered, handover, abandoned   each may follow each while the turn runs;
//	 │ ▲        ▲                                  all become open when it does not
//	 │ │        │ approved
//	 │ │  asking ◄────► resolving                  a person is asked; resolves it
//	 │ │   │ ▲             │
//	 ▼ │   ▼ │             │
//	recording ───────────► settled ◄───┘           the result is on its way into the log
//	sealed                    ▲                    the run has ended and made up a result
//	 └────────────────────────┘                    with the end of the turn
//
// A call returns from recording to open, or asking, if its result could not be written, and from sealed
// if the turn does not end. The end of the turn settles each call.
type callPhase int

const (
	callOpen      callPhase = iota // it has no offer, since the turn does not run
	callUnserved                   // no connected client has the tool
	callOffered                    // a client has the offer; until the tool timeout
	callHandover                   // that client has left and may come back; until the grace is over
	callAbandoned                  // no connected client gives results any more; it is about to be settled
	callAsking                     // a person is asked
	callResolving                  // a resolution is on its way into the log
	callRecording                  // its result is on its way into the log
	callSealed                     // it takes no result any more
	callSettled                    // it has its result, or its turn is over
)

var callPhaseNames = [...]string{
	"open", "unserved", "offered", "handover", "abandoned", "asking", "resolving", "recording", "sealed", "settled",
}

func (p callPhase) String() string { return callPhaseNames[p] }

// callTransitions is the drawing above, but for the end of the turn and for the phases of
// a call that a client is to be asked for, which stand under callOpen.
var callTransitions = map[callPhase][]callPhase{
	callOpen:      {callOpen, callRecording, callSealed, callSettled},
	callAsking:    {callOpen, callResolving, callRecording, callSealed, callSettled},
	callResolving: {callOpen, callAsking, callSettled},
	callRecording: {callOpen, callAsking, callSettled},
	callSealed:    {callOpen, callAsking, callSettled},
}

// Undrawn is called for a transition that is not drawn above: it logs it. In tests it panics.
var Undrawn = func(s *Session, change string) {
	s.store.log.Error("a phase was changed in a way that is not drawn",
		slog.String("session", s.id), slog.String("change", change))
}

// enter is the one function that changes the phase of a turn. The caller holds s.mu.
func (t *Turn) enter(to turnPhase) {
	if t.phase != to && !slices.Contains(turnTransitions[t.phase], to) {
		Undrawn(t.s, fmt.Sprintf("turn %s: %v to %v", t.id, t.phase, to))
	}
	t.phase = to
}

// runs reports whether a goroutine drives the turn and the turn has not ended.
func (t *Turn) runs() bool {
	return t.phase == turnRunning || t.phase == turnSuspending || t.phase == turnEnding && !t.closes
}

// isClosing reports whether the turn is being closed: nothing drives it, and a caller waits for its end.
func (t *Turn) isClosing() bool {
	return t.phase == turnClosing || t.phase == turnEnding && t.closes
}

// unend returns the turn to the phase before its end was on its way.
func (t *Turn) unend() {
	if t.closes {
		t.enter(turnClosing)
	} else {
		t.enter(turnRunning)
	}
}

// enter is the one function that changes the phase of a call. It stops the timer of the previous phase. The
// caller holds s.mu.
func (p *pending) enter(s *Session, to callPhase) {
	from := func(is callPhase) callPhase {
		if is <= callAbandoned {
			return callOpen
		}
		return is
	}
	if !slices.Contains(callTransitions[from(p.phase)], from(to)) {
		Undrawn(s, fmt.Sprintf("call %s: %v to %v", p.call.ID, p.phase, to))
	}
	p.alarm.Stop()
	p.phase = to
	if to != callOpen && to != callUnserved {
		p.unserved = false
	}
}

// open reports whether the call is for a client.
func (p *pending) open() bool { return p.phase <= callAbandoned }

// isBusy reports whether a result or a resolution of the call is on its way into the log. p.tried is
// closed when the write has succeeded or failed.
func (p *pending) isBusy() bool { return p.phase == callRecording || p.phase == callResolving }

// reopen returns the call to the phase before it was busy or sealed.
func (p *pending) reopen(s *Session) {
	if p.call.Asks != nil {
		p.enter(s, callAsking)
	} else {
		p.enter(s, callOpen)
	}
}

// unseal reopens the sealed calls of a turn that has not ended.
func (t *Turn) unseal() {
	for _, p := range t.pending {
		if p.phase == callSealed {
			p.reopen(t.s)
		}
	}
}
