package index

import (
	"fmt"
	"strings"

	"github.com/apzuk3/agentd/session/store"
)

// What follows is for those who tell others of what rows say, see package webhook.

// Asks reports whether a row is of a question that waits for a person.
func Asks(r *store.Row) bool {
	return r.Kind == store.RowInteraction && r.Status == askRows[askPending]
}

// ReadTurn reads the row of a turn. Of a turn that is not over, the rest is in the session.
func ReadTurn(r store.Row) (*Turn, error) {
	t, err := readTurn(r)
	if err != nil {
		return nil, fmt.Errorf("session %s: turn %s: its row: %w", r.SessionID, r.ID, err)
	}
	return t, nil
}

// ReadInteraction reads the row of an interaction. Its Expires is not set.
func ReadInteraction(r store.Row) (*Interaction, error) { return readInteraction(r, 0) }

// KindOf is the kind of a question as a word: approval, choice and so on.
func KindOf(in *Interaction) string {
	return strings.ToLower(strings.TrimPrefix(in.Call.Asks.Kind.String(), "INTERACTION_KIND_"))
}
