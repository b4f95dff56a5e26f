package sqlite

import (
	"fmt"

	"github.com/apzuk3/agentd/session/store"
)

// notify writes the notices of a batch.
func (t *tx) notify(b *store.Batch) error {
	payer, _ := b.Names()
	for i := range b.Notices {
		n := &b.Notices[i]
		err := write(t.insertNotice, n.ID, n.Hook, n.Event, b.SessionID, payer, n.TurnID, n.Subject, n.Seq,
			n.At.UnixMicro())
		if err != nil {
			return fmt.Errorf("notice %q: %w", n.ID, err)
		}
	}
	return nil
}
