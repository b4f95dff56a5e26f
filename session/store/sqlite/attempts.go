package sqlite

import (
	"context"
	"fmt"

	"github.com/apzuk3/agentd/session/store"
)

// SetAttempts sets how often the open turn of a session was made to run, and whether it was suspended
// because it only waits; see store.Store.
func (s *Store) SetAttempts(ctx context.Context, id string, attempts int64, waits bool) error {
	err := s.write(ctx, 0, func(tx *tx) (refusal, fault error) { return tx.attempts(id, attempts, waits) })
	if err != nil {
		return fmt.Errorf("sqlite: attempts of session %q: %w", id, err)
	}
	return nil
}

func (t *tx) attempts(id string, attempts int64, waits bool) (refusal, fault error) {
	res, err := t.setAttempts.ExecContext(context.Background(), attempts, waits, id)
	if err != nil {
		return nil, err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return store.ErrNoSession, nil
	}
	return nil, nil
}
