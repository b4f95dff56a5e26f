package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// copyRecords is how many records of a log one statement copies. SQLite holds them in memory before it
// writes them.
const copyRecords = 16

func (t *tx) create(n *store.NewSession, key *store.Key) (refusal, fault error) {
	s, err := t.stateOf(n.ID)
	switch {
	case err != nil:
		return nil, err
	case s != nil:
		return store.ErrSessionExists, nil
	}
	if refusal, fault := t.keyIsFree(key); refusal != nil || fault != nil {
		return refusal, fault
	}
	if refusal, fault := t.hasRoom(n); refusal != nil || fault != nil {
		return refusal, fault
	}
	return nil, errors.Join(t.insert(n), t.key(key))
}

// insert creates a session. The caller has checked that it does not exist.
func (t *tx) insert(n *store.NewSession) error {
	at := n.CreatedAt.UnixMicro()
	budget, err := json.Marshal(n.Budget)
	if err == nil {
		err = write(t.insertSession, n.ID, at, at, n.Creator, n.ClientRef, string(budget),
			n.DropToolPayloads, n.Metadata, n.Agent)
	}
	if err == nil {
		err = t.count(n.ID, 1)
	}
	if err != nil {
		return err
	}
	return t.labels(n.ID, at, n.Labels)
}

// labels sets labels of a session, and removes those with an empty value. created is when the session was
// created.
func (t *tx) labels(id string, created int64, labels map[string]string) error {
	for key, value := range labels {
		var err error
		if value == "" {
			err = write(t.deleteLabel, id, key)
		} else {
			err = write(t.setLabel, id, key, value, created)
		}
		if err != nil {
			return fmt.Errorf("label %q: %w", key, err)
		}
	}
	return nil
}

// rows writes rows in place of those of the same kind and id. Their Seq and CreatedAt stay.
func (t *tx) rows(rows []store.Row) error {
	for i := range rows {
		r := &rows[i]
		err := write(t.setRow, r.SessionID, string(r.Kind), r.ID,
			r.TurnID, r.Seq, r.CreatedAt.UnixMicro(), r.Status, blob(r.Data))
		if err != nil {
			return fmt.Errorf("row %q of kind %q: %w", r.ID, r.Kind, err)
		}
	}
	return nil
}

// keyOf returns the stored key with the scope and the name of k, or nil.
func (t *tx) keyOf(k *store.Key) (*store.Key, error) {
	keys, err := query(context.Background(), t.getKey, scanKey, k.Scope, k.Name)
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	return &keys[0], nil
}

// keyIsFree refuses a key that exists; k may be nil.
func (t *tx) keyIsFree(k *store.Key) (refusal, fault error) {
	if k == nil {
		return nil, nil
	}
	other, err := t.keyOf(k)
	if other == nil || err != nil {
		return nil, err
	}
	return taken(other), nil
}

func taken(k *store.Key) error {
	return fmt.Errorf("%w: %q names %q of session %q", store.ErrKeyTaken, k.Name, k.ID, k.SessionID)
}

// key writes a key. The caller has checked that it is free. k may be nil.
func (t *tx) key(k *store.Key) error {
	if k == nil {
		return nil
	}
	return write(t.insertKey, k.Scope, k.Name, k.Content, k.SessionID, k.ID)
}

// update changes a session and returns its info after the change.
func (t *tx) update(id string, c *store.Change) (info store.Info, refusal, fault error) {
	s, err := t.stateOf(id)
	switch {
	case err != nil:
		return info, nil, err
	case s == nil:
		return info, store.ErrNoSession, nil
	case c.Version != 0 && c.Version != s.version:
		return info, fmt.Errorf("%w: its version is %d", store.ErrConflict, s.version), nil
	}
	var at sql.NullInt64
	if !c.At.IsZero() {
		at = sql.NullInt64{Int64: c.At.UnixMicro(), Valid: true}
	}
	var budget sql.NullString
	if c.Budget != nil {
		data, err := json.Marshal(*c.Budget)
		if err != nil {
			return info, nil, err
		}
		budget = sql.NullString{String: string(data), Valid: true}
	}
	if err := write(t.setInfo, c.ClientRef, c.Metadata, c.Archived, budget, at, id); err != nil {
		return info, nil, err
	}
	if err := t.labels(id, s.created, c.Labels); err != nil {
		return info, nil, err
	}
	infos, err := query(context.Background(), t.getInfo, scanInfo, id)
	if err != nil {
		return info, nil, err
	}
	return infos[0], nil, nil
}

func (t *tx) delete(id string, lastSeq int64) (refusal, fault error) {
	if _, refusal, fault := t.endingAt(id, lastSeq); refusal != nil || fault != nil {
		return refusal, fault
	}
	t.removed = true
	for _, stmt := range []*sql.Stmt{
		t.deleteLog, t.deleteRows, t.deleteLabels, t.deleteKeys, t.deleteNotices, t.deleteSession,
	} {
		if err := write(stmt, id); err != nil {
			return nil, err
		}
	}
	return nil, t.count(id, -1)
}

// fork looks at the new session first. If it exists, the fork has happened, whatever became of the other
// session since.
func (t *tx) fork(f *store.Fork) (refusal, fault error) {
	into, err := t.stateOf(f.Into.ID)
	switch {
	case err != nil:
		return nil, err
	case into != nil:
		return store.ErrSessionExists, nil
	}
	from, err := t.stateOf(f.From)
	switch {
	case err != nil:
		return nil, err
	case from == nil:
		return fmt.Errorf("%w: %q", store.ErrNoSession, f.From), nil
	case f.Seq > from.last:
		return endsAt(from), nil
	case f.Seq > 0 && from.purged > 0:
		return fmt.Errorf("%w: its records up to %d are gone", store.ErrConflict, from.purged), nil
	}
	if refusal, fault := t.keyIsFree(f.Key); refusal != nil || fault != nil {
		return refusal, fault
	}
	if refusal, fault := t.hasRoom(&f.Into); refusal != nil || fault != nil {
		return refusal, fault
	}
	if f.Recode != nil {
		return t.recoding(f)
	}
	if err := t.insert(&f.Into); err != nil {
		return nil, err
	}
	differ := sumOfID(f.From) ^ sumOfID(f.Into.ID)
	for after := int64(0); after < f.Seq; after += copyRecords {
		if err := write(t.copyLog, f.Into.ID, f.From, after, min(after+copyRecords, f.Seq), differ); err != nil {
			return nil, fmt.Errorf("records after %d: %w", after, err)
		}
	}
	return nil, t.forked(f)
}

// recoding is the rest of a fork that changes the records. It undoes what it has written if a record cannot be changed.
func (t *tx) recoding(f *store.Fork) (refusal, fault error) {
	if err := write(t.save); err != nil {
		return nil, err
	}
	fault = t.insert(&f.Into)
	for after := int64(0); fault == nil && refusal == nil && after < f.Seq; after += copyRecords {
		refusal, fault = t.recode(f, after)
	}
	if fault == nil && refusal == nil {
		fault = t.forked(f)
	}
	if refusal != nil {
		fault = write(t.undo)
	}
	if fault == nil {
		fault = write(t.release)
	}
	return refusal, fault
}

// recode copies some records behind a position, with the data that f.Recode gives them.
func (t *tx) recode(f *store.Fork, after int64) (refusal, fault error) {
	type summed struct {
		record.Record
		sum sql.NullInt64
	}
	recs, err := query(context.Background(), t.getLog, func(rows *sql.Rows) (r summed, err error) {
		r.Record, r.sum, err = scanRecord(rows)
		return r, err
	}, f.From, after, min(copyRecords, f.Seq-after))
	if err != nil {
		return nil, fmt.Errorf("records after %d: %w", after, err)
	}
	copies := make([]record.Record, len(recs))
	for i := range recs {
		r := &recs[i].Record
		if sum := recs[i].sum; sum.Valid && sum.Int64 != sumOf(f.From, r) {
			return fmt.Errorf("%w: %w", store.ErrDamaged, wrongSum(f.From, r, sum.Int64)), nil
		}
		if err := f.Recode(r); err != nil {
			return fmt.Errorf("record %d: %w", r.Seq, err), nil
		}
		copies[i] = *r
	}
	return nil, t.records(f.Into.ID, copies)
}

// forked writes what a fork has besides records.
func (t *tx) forked(f *store.Fork) error {
	err := write(t.setFork, f.Seq, f.Seq, f.From, f.At, f.OpenTurn, f.LastTurn, f.LastStatus, f.Into.ID)
	return errors.Join(err, t.rows(f.Rows), t.key(f.Key))
}

// index writes the rows, the usage and the last turn of b for a log that ends at lastSeq. usage is the text
// of b.Usage.
func (t *tx) index(b *store.Batch, usage string, lastSeq int64) (refusal, fault error) {
	if _, refusal, fault := t.endingAt(b.SessionID, lastSeq); refusal != nil || fault != nil {
		return refusal, fault
	}
	if err := write(t.deleteRows, b.SessionID); err != nil {
		return nil, err
	}
	err := write(t.setIndex, usage, b.LastTurn, b.LastStatus, b.SessionID)
	return nil, errors.Join(err, t.rows(b.Rows))
}
