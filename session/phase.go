package session

import (
	"fmt"
	"log/slog"
	"slices"
)

// A turn and a tool call each have one phase, which one function changes: [Turn.enter] and
// [pending.enter]. Whom a call is asked of, and which timers are in force, follow from the
// phases: see [Session.reconcileLocked].
//
// The phases of a turn in this process. Its records and its attempt are apart from this: a
// turn keeps its records from phase to phase, and gets an attempt when it starts.
//
//	new ──► queued ──► claimed ──► injected        a prompt that waits; its prompt becomes
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
//	 └──┴──────────────────────────────── closing  nothing drives the turn, its end is made
//
// While a log is read a turn is starting from its start to its end, or to the end of the
// log, where it is suspended. There a queued turn may be injected or ended without the
// phases in between.
type turnPhase int

const (
	turnNew        turnPhase = iota // no record of it is durable yet
	turnQueued                      // it waits for its start
	turnClaimed                     // its prompt is becoming a message of the running turn
	turnDropping                    // its drop is on its way into the log
	turnInjected                    // its prompt has become a message: it never starts
	turnStarting                    // it has started, or is to be resumed, and is about to run
	turnRunning                     // a goroutine drives it
	turnSuspending                  // its run was told to leave it open
	turnClosing                     // nothing drives it, and its end is made
	turnEnding                      // its end is on its way into the log: nothing may follow
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

// The phases of a tool call that has no result. The first five are those of a call that a
// client is to be asked for.
//
//	open, unserved, offered, handover, abandoned   each may follow each while the turn runs;
//	 │ ▲        ▲                                  all become open when it does not
//	 │ │        │ approved
//	 │ │  asking ◄────► resolving                  a person is asked; says something
//	 │ │   │ ▲             │
//	 ▼ │   ▼ │             │
//	recording ───────────► settled ◄───┘           the result is on its way into the log
//	sealed                    ▲                    the run has ended and made up a result
//	 └────────────────────────┘                    with the end of the turn
//
// From recording and from sealed a call goes back to open, or asking, where its result
// could not be written and where the turn does not end. Each is settled by the turn's end.
type callPhase int

const (
	callOpen      callPhase = iota // a client is to be asked, and nobody looks for one: the turn does not run
	callUnserved                   // no client that is there has the tool
	callOffered                    // a client is asked; until the call's time is over
	callHandover                   // that client has left and may come back; until the grace is over
	callAbandoned                  // no client that is there can answer, and none is waited for
	callAsking                     // a person is asked
	callResolving                  // what a person says is on its way into the log
	callRecording                  // its result is on its way into the log
	callSealed                     // no result is taken any more
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

// undrawn reports a change of phase that is not drawn; tests have it panic.
var undrawn = func(s *Session, change string) {
	s.store.log.Error("a phase was changed in a way that is not drawn",
		slog.String("session", s.id), slog.String("change", change))
}

// enter is the one function that changes the phase of a turn. The caller holds s.mu.
func (t *Turn) enter(to turnPhase) {
	if t.phase != to && !slices.Contains(turnTransitions[t.phase], to) {
		undrawn(t.s, fmt.Sprintf("turn %s: %v to %v", t.id, t.phase, to))
	}
	t.phase = to
}

// runs tells whether a goroutine drives the turn, which has not ended.
func (t *Turn) runs() bool {
	return t.phase == turnRunning || t.phase == turnSuspending || t.phase == turnEnding && !t.closes
}

// isClosing tells whether the turn is ended by somebody who waits for that, while nothing
// drives it.
func (t *Turn) isClosing() bool {
	return t.phase == turnClosing || t.phase == turnEnding && t.closes
}

// unend takes back that the turn's end is on its way.
func (t *Turn) unend() {
	if t.closes {
		t.enter(turnClosing)
	} else {
		t.enter(turnRunning)
	}
}

// enter is the one function that changes the phase of a call. It stops the timer of the
// phase before. The caller holds s.mu.
func (p *pending) enter(s *Session, to callPhase) {
	from := func(is callPhase) callPhase {
		if is <= callAbandoned {
			return callOpen
		}
		return is
	}
	if !slices.Contains(callTransitions[from(p.phase)], from(to)) {
		undrawn(s, fmt.Sprintf("call %s: %v to %v", p.call.ID, p.phase, to))
	}
	p.alarm.Stop()
	p.phase = to
	if to != callOpen && to != callUnserved {
		p.unserved = false
	}
}

// open tells whether a client is to be asked for the call.
func (p *pending) open() bool { return p.phase <= callAbandoned }

// isBusy tells whether what somebody says about the call is on its way into the log; then
// p.tried is closed when that has come to an end.
func (p *pending) isBusy() bool { return p.phase == callRecording || p.phase == callResolving }

// reopen has the call be as it was before its result was on its way, or it was sealed.
func (p *pending) reopen(s *Session) {
	if p.call.Asks != nil {
		p.enter(s, callAsking)
	} else {
		p.enter(s, callOpen)
	}
}

// unseal reopens the calls that a run has sealed whose turn has not ended.
func (t *Turn) unseal() {
	for _, p := range t.pending {
		if p.phase == callSealed {
			p.reopen(t.s)
		}
	}
}
