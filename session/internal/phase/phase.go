// Package phase is a part of agentd, not an API: the phases of turns and of tool calls, and which may follow which.
// What a phase means for timers and offers is the session's.
package phase

import "slices"

// Turn is the phase of a turn in this process, apart from its records and its attempt.
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
type Turn int

// The phases of a turn.
const (
	TurnNew        Turn = iota // it has no durable record yet
	TurnQueued                 // it waits for its start
	TurnClaimed                // its prompt is becoming a message of the running turn
	TurnDropping               // TurnDropped is on its way into the log
	TurnInjected               // its prompt has become a message: it never starts
	TurnStarting               // TurnStarted or TurnResumed is durable, and it is about to run
	TurnRunning                // a goroutine drives it
	TurnSuspending             // the context of its run has ended with ErrSuspended
	TurnClosing                // nothing drives it, and it is being closed
	TurnEnding                 // TurnEnded is on its way into the log: nothing may follow
	TurnSuspended              // it is open, and nothing drives it
	TurnEnded
)

var turnNames = [...]string{
	"new", "queued", "claimed", "dropping", "injected",
	"starting", "running", "suspending", "closing", "ending", "suspended", "ended",
}

// String names the phase.
func (p Turn) String() string { return turnNames[p] }

// MayBecome reports whether a turn of this phase may enter another one.
func (p Turn) MayBecome(to Turn) bool { return p == to || slices.Contains(turnTransitions[p], to) }

// turnTransitions is the drawing above.
var turnTransitions = map[Turn][]Turn{
	TurnNew:        {TurnQueued, TurnStarting, TurnEnded},
	TurnQueued:     {TurnClaimed, TurnDropping, TurnInjected, TurnStarting, TurnEnded},
	TurnClaimed:    {TurnQueued, TurnInjected},
	TurnDropping:   {TurnQueued, TurnEnded},
	TurnStarting:   {TurnRunning, TurnSuspended, TurnEnded},
	TurnRunning:    {TurnSuspending, TurnEnding, TurnSuspended},
	TurnSuspending: {TurnEnding, TurnSuspended},
	TurnClosing:    {TurnEnding, TurnSuspended},
	TurnEnding:     {TurnEnded, TurnRunning, TurnClosing},
	TurnSuspended:  {TurnStarting, TurnClosing},
}

// Call is the phase of a tool call without a result. The first five are those of a call for a client.
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
type Call int

// The phases of a call without a result.
const (
	CallOpen      Call = iota // it has no offer, since the turn does not run
	CallUnserved              // no connected client has the tool
	CallOffered               // a client has the offer; until the tool timeout
	CallHandover              // that client has left and may come back; until the grace is over
	CallAbandoned             // no connected client gives results any more; it is about to be settled
	CallAsking                // a person is asked
	CallResolving             // a resolution is on its way into the log
	CallRecording             // its result is on its way into the log
	CallSealed                // it takes no result any more
	CallSettled               // it has its result, or its turn is over
)

var callNames = [...]string{
	"open", "unserved", "offered", "handover", "abandoned", "asking", "resolving", "recording", "sealed", "settled",
}

// String names the phase.
func (p Call) String() string { return callNames[p] }

// MayBecome reports whether a call of this phase may enter another one.
func (p Call) MayBecome(to Call) bool {
	return slices.Contains(callTransitions[p.drawn()], to.drawn())
}

// IsOpen reports whether the call is for a client.
func (p Call) IsOpen() bool { return p <= CallAbandoned }

// drawn is the phase under which the drawing has this one.
func (p Call) drawn() Call {
	if p.IsOpen() {
		return CallOpen
	}
	return p
}

// callTransitions is the drawing above, but for the end of the turn and for the phases of
// a call that a client is to be asked for, which stand under CallOpen.
var callTransitions = map[Call][]Call{
	CallOpen:      {CallOpen, CallRecording, CallSealed, CallSettled},
	CallAsking:    {CallOpen, CallResolving, CallRecording, CallSealed, CallSettled},
	CallResolving: {CallOpen, CallAsking, CallSettled},
	CallRecording: {CallOpen, CallAsking, CallSettled},
	CallSealed:    {CallOpen, CallAsking, CallSettled},
}
