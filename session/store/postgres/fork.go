package postgres

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// recodeRecords is how many records of a log a fork that changes them reads at once, at most.
const recodeRecords = 64

// fork looks at the new session first. If it exists, the fork has happened, whatever became of the other session since.
// It keeps the other session from being purged or removed, and no append from being made.
func (t *tx) fork(f *store.Fork) error {
	into, err := t.lock(f.Into.ID)
	switch {
	case err != nil:
		return err
	case into != nil:
		return answered{store.ErrSessionExists}
	}
	from := new(state)
	rows, err := t.Query(t.ctx, `SELECT last_seq, purged FROM heads WHERE id = $1 FOR KEY SHARE`, f.From)
	from, err = one(rows, err, func(row pgx.CollectableRow) (*state, error) {
		return from, row.Scan(&from.last, &from.purged)
	}, fmt.Errorf("%w: %q", store.ErrNoSession, f.From))
	switch {
	case err != nil:
		return err
	case f.Seq > from.last:
		return endsAt(from)
	case f.Seq > 0 && from.purged > 0:
		return fmt.Errorf("%w: its records up to %d are gone", store.ErrConflict, from.purged)
	}
	if err := t.keyIsFree(f.Key); err != nil {
		return err
	}
	if err := t.insert(&f.Into); err != nil {
		return err
	}
	if f.Recode != nil {
		err = t.recode(f, from)
	} else {
		err = t.exec(`INSERT INTO records (session_id, seq, epoch, turn_id, kind, time, data)
			SELECT $1::text, seq, 0, turn_id, kind, time, data FROM records
			WHERE session_id = $2::text AND seq <= $3::bigint ORDER BY seq`, f.Into.ID, f.From, f.Seq)
	}
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(`UPDATE heads SET last_seq = $2, open_turn = $3, last_turn = $4, last_status = $5 WHERE id = $1`,
		f.Into.ID, f.Seq, f.OpenTurn, f.LastTurn, f.LastStatus)
	b.Queue(`UPDATE sessions SET inherited = $2, forked_from = $3, forked_at = $4 WHERE id = $1`,
		f.Into.ID, f.Seq, f.From, f.At)
	insertRows(b, f.Into.ID, f.Rows)
	if err := t.all(b); err != nil {
		return err
	}
	return t.key(f.Key)
}

// recode copies the records of a fork with the data that f.Recode gives them.
func (t *tx) recode(f *store.Fork, from *state) error {
	for after := int64(0); after < f.Seq; {
		recs, err := t.records(f.From, after+1, int(min(recodeRecords, f.Seq-after)))
		switch {
		case err != nil:
			return err
		case len(recs) == 0 || recs[0].Seq != after+1:
			return missing(f.From, after, from)
		}
		for i := range recs {
			if err := f.Recode(&recs[i]); err != nil {
				return fmt.Errorf("record %d: %w", recs[i].Seq, err)
			}
		}
		if err := t.insertLog(f.Into.ID, after, recs); err != nil {
			return err
		}
		after += int64(len(recs))
	}
	return nil
}

// insertLog writes records behind a position, of epoch 0.
func (t *tx) insertLog(id string, after int64, recs []record.Record) error {
	return t.exec(`INSERT INTO records (session_id, seq, epoch, turn_id, kind, time, data)
		SELECT $1::text, $2::bigint + u.n, 0, u.turn_id, u.kind, u.time, u.data
		FROM unnest($3::text[], $4::text[], $5::bigint[], $6::bytea[]) WITH ORDINALITY
			AS u(turn_id, kind, time, data, n)`,
		append([]any{id, after}, recordArgs(recs)...)...)
}
