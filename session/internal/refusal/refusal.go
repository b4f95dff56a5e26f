// Package refusal has the refusals that several rooms of a session use.
//
// Sessions are named by their keys; a refusal says the id. It knows no session.
package refusal

import (
	"errors"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/tenant"
)

// How long a client is asked to wait where nothing says it better.
const (
	Soon  = 100 * time.Millisecond // a race that is over in a moment
	Later = time.Second            // something has to become free
)

// NoSession refuses a session that there is not.
func NoSession(key string) *fault.Error {
	return fault.Errorf(fault.SessionNotFound, "session %q does not exist", tenant.ID(key))
}

// Purged refuses a session whose log is not kept any more.
func Purged(key string) *fault.Error {
	return fault.Errorf(fault.HistoryPurged,
		"session %q was not used for so long that its history is no longer kept; start a new session",
		tenant.ID(key))
}

// TooManySessions refuses a session of whose tenant there may be so many.
func TooManySessions(most int64) *fault.Error {
	return fault.Errorf(fault.LimitExceeded,
		"the tenant has %d sessions, its limit: delete those that it does not need", most).
		Over("tenant_sessions", int(most), int(most)+1)
}

// NoTurn refuses a turn that the session does not have.
func NoTurn(key, id string) *fault.Error {
	return fault.Errorf(fault.NotFound, "turn_id: session %q has no turn %q", tenant.ID(key), id).OfTurn(id)
}

// IsGone reports whether an error says that a session was deleted or purged.
func IsGone(err error) bool {
	e, ok := errors.AsType[*fault.Error](err)
	return ok && (e.Code == fault.SessionNotFound || e.Code == fault.HistoryPurged)
}
