package postgres

import (
	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/session/store"
)

// notify queues the statements that write the notices of a batch.
func notify(to *pgx.Batch, b *store.Batch) {
	payer, _ := b.Names()
	for i := range b.Notices {
		n := &b.Notices[i]
		to.Queue(`INSERT INTO notices (id, hook, event, session_id, tenant, turn_id, subject, seq, at, due, since)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $9) ON CONFLICT (id) DO NOTHING`,
			n.ID, n.Hook, n.Event, b.SessionID, payer, n.TurnID, n.Subject, n.Seq, n.At.UnixMicro())
	}
}
