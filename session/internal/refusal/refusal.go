// Package refusal has the refusals that several rooms of a session use.
//
// It knows no session.
package refusal

import (
	"errors"
	"time"

	"github.com/apzuk3/agentd/session/fault"
)

// How long a client is asked to wait where nothing says it better.
const (
	Soon  = 100 * time.Millisecond // a race that is over in a moment
	Later = time.Second            // something has to become free
)

// NoSession refuses a session that there is not.
func NoSession(id string) *fault.Error {
	return fault.Errorf(fault.SessionNotFound, "session %q does not exist", id)
}

// Purged refuses a session whose log is not kept any more.
func Purged(id string) *fault.Error {
	return fault.Errorf(fault.HistoryPurged,
		"session %q was not used for so long that its history is no longer kept; start a new session", id)
}

// NoTurn refuses a turn that the session does not have.
func NoTurn(sessionID, id string) *fault.Error {
	return fault.Errorf(fault.NotFound, "turn_id: session %q has no turn %q", sessionID, id).OfTurn(id)
}

// IsGone reports whether an error says that a session was deleted or purged.
func IsGone(err error) bool {
	e, ok := errors.AsType[*fault.Error](err)
	return ok && (e.Code == fault.SessionNotFound || e.Code == fault.HistoryPurged)
}
