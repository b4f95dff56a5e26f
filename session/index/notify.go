package index

import (
	"fmt"

	"github.com/apzuk3/agentd/session/store"
)

// What follows is for those who tell others of what rows say, see package webhook.

// Read reads the row of a turn. Of a turn that is not over, the rest is in the session.
func (t *Turn) Read(r store.Row) error {
	read, err := readTurn(r)
	if err != nil {
		return fmt.Errorf("session %s: turn %s: its row: %w", r.SessionID, r.ID, err)
	}
	*t = *read
	return nil
}

// Read reads the row of an interaction. Expires is not set.
func (in *Interaction) Read(r store.Row) error {
	read, err := readInteraction(r, 0)
	if err == nil {
		*in = *read
	}
	return err
}
