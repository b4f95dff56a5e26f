// Package prompt is what asks a session for a turn.
//
// It knows neither sessions nor turns.
package prompt

import (
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/keys"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Prompt asks a session for a turn.
type Prompt struct {
	// ID is the id that the turn gets; "" is a random one.
	ID string
	// By sends the prompt.
	By principal.Principal
	// Spec is what the turn runs, and Started how it begins. Spec has passed Runner.Check.
	Spec    *record.Spec
	Started *record.TurnStarted
	// Goal, if not nil, is a goal that begins; Started is how its turns do. Its id is to be set.
	Goal *record.GoalStarted
	// Keys are the caller's own provider keys.
	Keys keys.Of
	// OnBusy says what happens when the session already runs a turn.
	OnBusy agentdv1.OnBusy
	// Labels are those of a session that the turn makes.
	Labels map[string]string
	// Key is the idempotency key under which the turn is stored; nil for none.
	Key *store.Key
}

// KeyOf returns the key for a turn.
func (p Prompt) KeyOf(session, turn string) *store.Key {
	if p.Key == nil {
		return nil
	}
	key := *p.Key
	key.SessionID, key.ID = session, turn
	return &key
}

// The ways to deal with a prompt of a busy session. A turn that only waits for an absent client is
// interrupted by any prompt but an injected or a patient one; a turn that waits for a person only by interrupt.
const (
	Reject    = agentdv1.OnBusy_ON_BUSY_REJECT    // SESSION_BUSY
	Enqueue   = agentdv1.OnBusy_ON_BUSY_ENQUEUE   // the prompt waits for its turn
	Interrupt = agentdv1.OnBusy_ON_BUSY_INTERRUPT // the running turn is canceled
	Inject    = agentdv1.OnBusy_ON_BUSY_INJECT    // it becomes a message before the next model call, if any
	Wait      = agentdv1.OnBusy_ON_BUSY_WAIT      // as Enqueue; a turn that waits for an absent client stays
)

// Injected is a prompt that is to become a message of the running turn.
type Injected struct {
	// ID is the value of Event.Injected.
	ID string
	// Text is the text of the user, and Parts are the rest of the prompt.
	Text  string
	Parts record.Parts
	// By is the value of Event.InjectedBy.
	By string
}
