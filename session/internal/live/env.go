package live

import (
	"context"

	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/storage"
	"github.com/apzuk3/agentd/session/record"
)

// Env is what the sessions of one server share.
type Env struct {
	Store  *storage.Store
	Runner Runner
	// Host has the sessions in memory; nil for a session that is only read from.
	Host Host
}

// Host is what a session asks of the server that has it in memory, beyond the session itself. Cleared,
// Rouse and Reported are called with the lock of the session held: they must not call it. The other methods are not.
// Sessions are named by their keys.
type Host interface {
	// Present calls f with the session of a key, which need not be in memory any more. If f succeeds and
	// the session's turn is suspended, it is resumed; that this fails is no error.
	Present(ctx context.Context, key string, f func(*Session) error) error
	// CancelTurn cancels a turn that may be suspended.
	CancelTurn(ctx context.Context, key, turnID, reason string) error
	// FirstRecord returns the record with which a turn began, or was queued.
	FirstRecord(ctx context.Context, key, turnID string) (int64, error)
	// Interaction returns an interaction of the session.
	Interaction(ctx context.Context, key, id string) (*index.Interaction, error)
	// Cleared says that the open turn has made a step forward since the process last died.
	Cleared(*Session)
	// Calmed says that a turn that may have killed the process has only waited for calmAfter.
	Calmed(*Session)
	// Rouse says that watchers of the session have something to read.
	Rouse(key string)
	// Childless returns why no child may be spawned now, "" if one may.
	Childless() string
	// Tend starts those children of the session that have not begun, and writes down what the others have reported.
	// What it cannot do now it does later.
	Tend(ctx context.Context, s *Session)
	// StopChild ends the goal of a child and those of the children below it.
	StopChild(ctx context.Context, c *record.ChildSpawned) error
	// TellChild leaves a message for the next turn of a child, once for each key.
	TellChild(ctx context.Context, c *record.ChildSpawned, text, key string) error
	// Reported says that a child of a session has something to report.
	Reported(parent string)
}
