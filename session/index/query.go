package index

import (
	"strconv"
	"strings"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/store"
)

// Session is what is known of a session.
type Session struct {
	store.Info
	// LastIs is how the last turn is; 0 when there is none.
	LastIs Status
}

// LastPosition is the position of the last thing that has happened in the session, 0 before the first.
func (s *Session) LastPosition() int64 { return position.LastOf(s.LastSeq) }

// MadeWith is the agent that the session was made with, which store.Info.Agent has as name@version; false for none.
func (s *Session) MadeWith() (name string, version int64, ok bool) {
	at := strings.LastIndexByte(s.Agent, '@')
	if at < 0 {
		return "", 0, false
	}
	version, err := strconv.ParseInt(s.Agent[at+1:], 10, 64)
	return s.Agent[:at], version, err == nil
}

// size is about how many bytes of a list it takes.
func (s *Session) size() int {
	n := len(s.ClientRef) + len(s.Metadata)
	for k, v := range s.Labels {
		n += len(k) + len(v)
	}
	return n
}

// SessionQuery says which sessions; what is zero does not matter.
type SessionQuery struct {
	// Tenant is whom it has to belong to, "" is nobody.
	Tenant string
	// Maker is the id of the principal that has to have created it. Those of others cost a look each.
	Maker string `json:",omitempty"` // a page of a query without it stays one
	// Archived is whether the session has to be archived; nil is either.
	Archived *bool
	// Labels are those that it has to have, ClientRef its name.
	Labels    map[string]string
	ClientRef string
	// LastIs are those of which its last turn has to be one.
	LastIs []Status
	// CreatedFrom and UpdatedFrom are the first times that count, CreatedBefore and UpdatedBefore the first
	// ones after that which do not.
	CreatedFrom, CreatedBefore, UpdatedFrom, UpdatedBefore time.Time
}

// TurnQuery says which turns; what is zero does not matter.
type TurnQuery struct {
	// Tenant is whom the session has to belong to, "" is nobody.
	Tenant string
	// Maker is the id of the principal that has to have created the session. Those of others cost a look each.
	Maker string `json:",omitempty"`
	// SessionID is the key of the session they belong to.
	SessionID string
	// Statuses are those of which a turn has to have one.
	Statuses []Status
	// CreatedFrom is the first time of the prompt that counts, CreatedBefore the first one after that which
	// does not.
	CreatedFrom, CreatedBefore time.Time
}

// InteractionQuery says which interactions; what is zero does not matter.
type InteractionQuery struct {
	// Tenant is whom the session has to belong to, "" is nobody.
	Tenant string
	// Maker is the id of the principal that has to have created the session. Those of others cost a look each.
	Maker string `json:",omitempty"`
	// SessionID is the key of the session that asks, and TurnID the turn; a turn only together with its session.
	SessionID, TurnID string
	// Statuses are those of which an interaction has to have one.
	Statuses []agentdv1.InteractionStatus
}
