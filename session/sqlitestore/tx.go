package sqlitestore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/apzuk3/agentd/session"
)

// tx is what can be written in a transaction. Its methods answer with a
// refusal before they have written anything; a fault undoes the transaction.
// Nothing interrupts them: who does not want to wait need not. Owned by the
// writer goroutine.
type tx struct {
	statements
	state, known, insertSession, insertRecord, setState, setShared, setProbe, deleteLog, setPurged *sql.Stmt
}

func prepareTx(ctx context.Context, p preparer) (*tx, error) {
	t := new(tx)
	err := t.prepare(ctx, p, map[**sql.Stmt]string{
		&t.state:         `SELECT last_seq, open_turn FROM sessions WHERE id = ?`,
		&t.known:         `SELECT turn_id, kind, time, data FROM records WHERE session_id = ? AND seq = ?`,
		&t.insertSession: `INSERT INTO sessions (id, created_at, updated_at) VALUES (?, ?, ?)`,
		&t.insertRecord:  `INSERT INTO records (session_id, seq, turn_id, kind, time, data) VALUES (?, ?, ?, ?, ?, ?)`,
		&t.setState:      `UPDATE sessions SET last_seq = ?, open_turn = ?, updated_at = ? WHERE id = ?`,
		&t.deleteLog:     `DELETE FROM records WHERE session_id = ?`,
		&t.setPurged:     `UPDATE sessions SET purged = last_seq WHERE id = ?`,
		&t.setShared: `INSERT INTO shared (scope, key, value) VALUES (?, ?, ?)
			ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value`,
		&t.setProbe: `UPDATE probe SET counter = counter + 1, padding = zeroblob(?)`,
	})
	return t, err
}

func (t *tx) create(id string, at time.Time) (refusal, fault error) {
	var seq int64
	var turn string
	switch err := t.state.QueryRowContext(context.Background(), id).Scan(&seq, &turn); {
	case err == nil:
		return session.ErrSessionExists, nil
	case !errors.Is(err, sql.ErrNoRows):
		return nil, err
	}
	_, err := t.insertSession.ExecContext(context.Background(), id, at.UnixMicro(), at.UnixMicro())
	return nil, err
}

func (t *tx) append(b *session.Batch) (refusal, fault error) {
	var last int64
	var turn string
	err := t.state.QueryRowContext(context.Background(), b.SessionID).Scan(&last, &turn)
	if errors.Is(err, sql.ErrNoRows) {
		return session.ErrNoSession, nil
	}
	if err != nil {
		return nil, err
	}
	if last != b.After {
		return t.repeated(b, last)
	}
	if turn, err = turnAfter(turn, b.Records); err != nil {
		return err, nil
	}
	for i := range b.Records {
		r := &b.Records[i]
		_, err := t.insertRecord.ExecContext(context.Background(),
			b.SessionID, r.Seq, r.TurnID, string(r.Kind), r.Time.UnixMicro(), blob(r.Data))
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", r.Seq, err)
		}
	}
	updated := b.Records[len(b.Records)-1].Time.UnixMicro()
	if _, err := t.setState.ExecContext(context.Background(), b.After+int64(len(b.Records)), turn, updated, b.SessionID); err != nil {
		return nil, err
	}
	for i := range b.Shared {
		v := &b.Shared[i]
		if _, err := t.setShared.ExecContext(context.Background(), v.Scope, v.Key, blob(v.Value)); err != nil {
			return nil, fmt.Errorf("shared value %q of %q: %w", v.Key, v.Scope, err)
		}
	}
	return nil, nil
}

// repeated answers an append to a log that ends elsewhere: it is no refusal if
// the log holds these very records. Shared values are left alone, for others
// may have written them since.
func (t *tx) repeated(b *session.Batch, last int64) (refusal, fault error) {
	if b.After+int64(len(b.Records)) > last {
		return fmt.Errorf("%w: it ends at %d", session.ErrConflict, last), nil
	}
	for i := range b.Records {
		r := &b.Records[i]
		var turn, kind string
		var at int64
		var data []byte
		err := t.known.QueryRowContext(context.Background(), b.SessionID, r.Seq).Scan(&turn, &kind, &at, &data)
		if errors.Is(err, sql.ErrNoRows) { // it was purged
			return fmt.Errorf("%w: it ends at %d and its record %d is gone", session.ErrConflict, last, r.Seq), nil
		}
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", r.Seq, err)
		}
		if turn != r.TurnID || kind != string(r.Kind) || at != r.Time.UnixMicro() || !bytes.Equal(data, r.Data) {
			return fmt.Errorf("%w: it ends at %d and its record %d is another", session.ErrConflict, last, r.Seq), nil
		}
	}
	return nil, nil
}

// purge removes a log that ends at lastSeq.
func (t *tx) purge(id string, lastSeq int64) (refusal, fault error) {
	var last int64
	var turn string
	err := t.state.QueryRowContext(context.Background(), id).Scan(&last, &turn)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return session.ErrNoSession, nil
	case err != nil:
		return nil, err
	case last != lastSeq:
		return fmt.Errorf("%w: it ends at %d", session.ErrConflict, last), nil
	case turn != "":
		return fmt.Errorf("%w: turn %q is open", session.ErrConflict, turn), nil
	}
	if _, err := t.deleteLog.ExecContext(context.Background(), id); err != nil {
		return nil, err
	}
	_, err = t.setPurged.ExecContext(context.Background(), id)
	return nil, err
}

// probe writes padding bytes in place of those of the last probe.
func (t *tx) probe(padding int) error {
	_, err := t.setProbe.ExecContext(context.Background(), padding)
	return err
}

// blob returns b, or an empty blob where SQLite would see NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
