package gestalt

import (
	"context"
	"errors"
	"time"
)

// Errors of a Store.
var (
	// ErrNone means that there is no such session, or turn.
	ErrNone = errors.New("there is none")
	// ErrMoved means that somebody else has numbered events of the turn.
	ErrMoved = errors.New("the events have other numbers by now")
	// ErrTooMany means that a session has as many turns that are not over as it may have.
	ErrTooMany = errors.New("too many turns of the session are not over")
)

// Phase is how far a turn has come, as far as its log does not say it.
type Phase string

// The phases.
const (
	// Waiting is a turn that waits for the host's tools; the daemon does not know it yet.
	Waiting Phase = "waiting"
	// Running is a turn that the daemon knows, or is about to know.
	Running Phase = "running"
	// Over is one that the daemon has ended.
	Over Phase = "over"
	// Failed and Canceled are turns that have never run.
	Failed   Phase = "failed"
	Canceled Phase = "canceled"
)

// Session is what the host has said of a session, and the log does not have.
type Session struct {
	// ID is the host's, and the daemon's.
	ID string
	// Subject is whose it is, Key its idempotency key, "" for none.
	Subject, Key string
	// Content is the SHA-256 of the request in hexadecimal digits, Request the CreateSessionRequest, encoded.
	Content string
	Request []byte
	// Created is when it was made, Updated when it was changed last, Turned when its last turn was made, or zero.
	Created, Updated, Turned time.Time
}

// Turn is what the host has said of a turn, and the log does not have.
type Turn struct {
	// ID is the host's, and the daemon's.
	ID, SessionID string
	// Subject is whose it is, Key its idempotency key, "" for none.
	Subject, Key string
	// Content is the SHA-256 of the request in hexadecimal digits, Request the CreateTurnRequest without its grant,
	// encoded.
	Content string
	Request []byte
	// Trace is the trace that it is part of, in the form of the header traceparent.
	Trace string
	// Tools are the tools of the host, as JSON; empty while it is Waiting.
	Tools []byte
	// Phase is how far it has come, Message why it has Failed or was Canceled.
	Phase   Phase
	Message string
	// Queued says that another turn of the session was not over when it was made.
	Queued bool
	// Created is when it was made, Ended when it Failed or was Canceled, or zero.
	Created, Ended time.Time
	// Position is the seq of the session up to which its events have numbers.
	Position int64
}

// Event is an event of a turn with its number.
type Event struct {
	Seq int64
	// Message is the message that the event is a piece of text of, "" for another one.
	Message string
	// Data is the AgentTurnEvent, encoded.
	Data []byte
}

// Store keeps what SessionService does not. All methods may be called from any goroutine. What a method has written is
// durable when it returns nil.
type Store interface {
	// AddSession adds a session and returns nil, or the one that has its subject and key, or its id.
	AddSession(ctx context.Context, s *Session) (*Session, error)
	// Session returns a session, or ErrNone.
	Session(ctx context.Context, id string) (*Session, error)
	// Sessions returns at most limit sessions of a subject after the first offset ones, those first that were used
	// last.
	Sessions(ctx context.Context, subject string, offset, limit int) ([]*Session, error)
	// UpdateSession notes when a session was changed.
	UpdateSession(ctx context.Context, id string, at time.Time) error
	// RemoveSession removes a session that the daemon has refused.
	RemoveSession(ctx context.Context, id string) error

	// AddTurn adds a turn with its grant, and notes the time with its session, and returns nil; or the turn that has
	// its session, subject and key, or its id. It sets Queued. If most turns of the session are not over it returns
	// ErrTooMany.
	AddTurn(ctx context.Context, t *Turn, grant string, most int) (*Turn, error)
	// SameTurn returns the turn that has the session, subject and key of t, or its id, or ErrNone.
	SameTurn(ctx context.Context, t *Turn) (*Turn, error)
	// Turn returns a turn, or ErrNone.
	Turn(ctx context.Context, id string) (*Turn, error)
	// Turns returns at most limit turns of a session after the first offset ones, the newest first.
	Turns(ctx context.Context, sessionID string, offset, limit int) ([]*Turn, error)
	// OpenTurns returns the turns of a session, or of all if it is "", that are Waiting or Running, the oldest first.
	OpenTurns(ctx context.Context, sessionID string) ([]*Turn, error)
	// BeginTurn makes a turn Running that is Waiting, with its tools, and reports whether it was.
	BeginTurn(ctx context.Context, id string, tools []byte) (bool, error)
	// EndTurn ends a turn that is in the phase from, and removes its grant: it writes t's Phase, Message and Ended,
	// and its events. It reports whether the turn was in that phase.
	EndTurn(ctx context.Context, t *Turn, from Phase, events []Event) (bool, error)
	// Grant returns the grant of a turn, "" if it has none any more.
	Grant(ctx context.Context, turnID string) (string, error)

	// AddEvents appends events whose numbers follow the last one, and moves the turn's position. The turn has to be at
	// the position from, else it returns ErrMoved.
	AddEvents(ctx context.Context, turnID string, from, to int64, events []Event) error
	// Events returns at most limit events of a turn after a number.
	Events(ctx context.Context, turnID string, after int64, limit int) ([]Event, error)
	// LastEvent returns the number of the last event of a turn, 0 if it has none.
	LastEvent(ctx context.Context, turnID string) (int64, error)
	// Pieces returns the events of a turn that are pieces of a message, in order.
	Pieces(ctx context.Context, turnID, message string) ([]Event, error)
}
