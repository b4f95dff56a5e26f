package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/internal/rules"
)

// tx writes in a transaction. A method that refuses an operation returns the refusal before it writes
// anything. A fault undoes the transaction. A context does not interrupt the methods; the caller stops
// waiting instead. Owned by the writer goroutine.
type tx struct {
	statements
	begin, commit, getPage, setPage, countPages                           *sql.Stmt
	state, end, known, insertSession, setState, setShared, setProbe       *sql.Stmt
	insertRecords                                                         [len(atOnce)]*sql.Stmt // so many at once
	deleteLog, deleteRows, setPurged, setAttempts, deleteShared           *sql.Stmt
	getInfo, setInfo, setLabel, deleteLabel, deleteLabels, deleteSession  *sql.Stmt
	addSpent, getCount, addCount, deleteCount                             *sql.Stmt
	insertNotice, deleteNotices                                           *sql.Stmt
	copyLog, setFork, setRow, setIndex, getKey, insertKey, deleteKeys     *sql.Stmt
	getLog, save, undo, release                                           *sql.Stmt
	insertEvent, deleteEvents                                             *sql.Stmt
	rewrite, recodeRecord, recodeRow, recodeShared, recodeKey, recodeInfo *sql.Stmt

	args    []any // of records, reused
	shared  bool  // shared values were written in this transaction
	removed bool  // something was removed in this transaction
}

func prepareTx(ctx context.Context, p preparer) (*tx, error) {
	t := new(tx)
	queries := map[**sql.Stmt]string{
		&t.begin:      `BEGIN IMMEDIATE`,
		&t.commit:     `COMMIT`,
		&t.getPage:    `SELECT data FROM sqlite_dbpage WHERE pgno = ?`,
		&t.setPage:    `UPDATE sqlite_dbpage SET data = ? WHERE pgno = ?`,
		&t.countPages: `PRAGMA page_count`,
		&t.state:      `SELECT last_seq, open_turn, purged, version, created_at FROM sessions WHERE id = ?`,
		&t.end:        `SELECT last_seq, open_turn, epoch FROM sessions WHERE id = ?`,
		&t.known:      `SELECT turn_id, kind, time, data FROM records WHERE session_id = ? AND seq = ?`,
		&t.insertSession: `INSERT INTO sessions (id, created_at, updated_at, creator, client_ref, budget, drop_payloads,
			metadata, agent) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		&t.setState: `UPDATE sessions SET last_seq = ?, open_turn = ?, updated_at = ?, usage = ?,
			last_turn = ?, last_status = ?, attempts = coalesce(nullif(?, 0), attempts), waits = 0, epoch = ?
			WHERE id = ?`,
		&t.deleteLog:  `DELETE FROM records WHERE session_id = ?`,
		&t.deleteRows: `DELETE FROM entries WHERE session_id = ?`,
		// No record is left from a build without an index.
		&t.setPurged: `UPDATE sessions SET purged = last_seq, indexed = 1 WHERE id = ?`,
		&t.setShared: `INSERT INTO shared (scope, key, value) VALUES (?, ?, ?)
			ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value`,
		&t.addSpent: `INSERT INTO spent (tenant, day, tokens, cost) VALUES (?1, ?2, ?3, ?4)
			ON CONFLICT (tenant, day) DO UPDATE SET tokens = min(tokens + excluded.tokens, ?5),
			cost = min(cost + excluded.cost, ?5)`,
		&t.getCount: `SELECT sessions FROM session_counts WHERE tenant = ?`,
		&t.addCount: `INSERT INTO session_counts (tenant, sessions) VALUES (?, ?)
			ON CONFLICT (tenant) DO UPDATE SET sessions = sessions + excluded.sessions`,
		&t.deleteCount:  `DELETE FROM session_counts WHERE tenant = ? AND sessions <= 0`,
		&t.deleteShared: `DELETE FROM shared WHERE scope = ? AND key = ?`,
		&t.setAttempts:  `UPDATE sessions SET attempts = ?, waits = ? WHERE id = ?`,
		&t.setProbe:     `UPDATE probe SET counter = counter + 1, padding = zeroblob(?)`,

		&t.insertNotice: `INSERT INTO notices
			(id, hook, event, session_id, tenant, turn_id, subject, seq, at, due, since)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?9) ON CONFLICT (id) DO NOTHING`,
		&t.deleteNotices: `DELETE FROM notices WHERE session_id = ?`,

		&t.getInfo: infoQuery,
		&t.setInfo: `UPDATE sessions SET version = version + 1, client_ref = coalesce(?, client_ref),
			metadata = coalesce(?, metadata), archived = coalesce(?, archived), budget = coalesce(?, budget),
			updated_at = coalesce(?, updated_at)
			WHERE id = ?`,
		&t.setLabel: `INSERT INTO labels (session_id, key, value, created_at) VALUES (?, ?, ?, ?)
			ON CONFLICT (session_id, key) DO UPDATE SET value = excluded.value`,
		&t.deleteLabel:   `DELETE FROM labels WHERE session_id = ? AND key = ?`,
		&t.deleteLabels:  `DELETE FROM labels WHERE session_id = ?`,
		&t.deleteSession: `DELETE FROM sessions WHERE id = ?`,

		// The sum of the copy differs by the two ids; SQLite has no operator for that.
		&t.copyLog: `INSERT INTO records (session_id, seq, turn_id, kind, time, data, sum)
			SELECT ?1, seq, turn_id, kind, time, data, (sum | ?5) - (sum & ?5) FROM records
			WHERE session_id = ?2 AND seq > ?3 AND seq <= ?4 ORDER BY seq`,
		&t.setFork: `UPDATE sessions SET last_seq = ?, inherited = ?, forked_from = ?, forked_at = ?, open_turn = ?,
			last_turn = ?, last_status = ? WHERE id = ?`,
		&t.setRow: `INSERT INTO entries (session_id, kind, id, turn_id, seq, created_at, status, data)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (session_id, kind, id) DO UPDATE
			SET turn_id = excluded.turn_id, status = excluded.status, data = excluded.data`,
		&t.setIndex:   `UPDATE sessions SET indexed = 1, usage = ?, last_turn = ?, last_status = ? WHERE id = ?`,
		&t.getKey:     keyQuery,
		&t.insertKey:  `INSERT INTO keys (scope, name, content, session_id, id) VALUES (?, ?, ?, ?, ?)`,
		&t.deleteKeys: `DELETE FROM keys WHERE session_id = ?`,

		&t.getLog:  logQuery,
		&t.save:    `SAVEPOINT fork`,
		&t.undo:    `ROLLBACK TO fork`,
		&t.release: `RELEASE fork`,

		&t.insertEvent:  insertEventQuery,
		&t.deleteEvents: deleteEventsQuery,

		&t.rewrite:      `UPDATE records SET data = ?, sum = ? WHERE session_id = ? AND seq = ?`,
		&t.recodeRecord: `UPDATE records SET data = ?, sum = ? WHERE session_id = ? AND seq = ? AND data = ?`,
		&t.recodeRow:    `UPDATE entries SET data = ? WHERE session_id = ? AND kind = ? AND id = ? AND data = ?`,
		&t.recodeShared: `UPDATE shared SET value = ? WHERE scope = ? AND key = ? AND value = ?`,
		&t.recodeKey:    `UPDATE keys SET content = ? WHERE scope = ? AND name = ? AND content = ?`,
		&t.recodeInfo:   `UPDATE sessions SET metadata = ? WHERE id = ? AND metadata = ?`,
	}
	for i, n := range atOnce {
		queries[&t.insertRecords[i]] = `INSERT INTO records (session_id, seq, turn_id, kind, time, data, sum) VALUES ` +
			strings.Repeat(`(?, ?, ?, ?, ?, ?, ?), `, n-1) + `(?, ?, ?, ?, ?, ?, ?)`
	}
	err := t.prepare(ctx, p, queries)
	return t, err
}

// state is the part of a session that writes are checked against.
type state struct {
	last, purged, version, created, epoch int64
	turn                                  string
}

// stateOf returns the state but for epoch; nil for no session.
func (t *tx) stateOf(id string) (*state, error) {
	s := new(state)
	row := t.state.QueryRowContext(context.Background(), id)
	return scanned(s, row.Scan(&s.last, &s.turn, &s.purged, &s.version, &s.created))
}

// endOf returns last, turn and epoch alone, which an append compares; nil for no session.
func (t *tx) endOf(id string) (*state, error) {
	s := new(state)
	return scanned(s, t.end.QueryRowContext(context.Background(), id).Scan(&s.last, &s.turn, &s.epoch))
}

func scanned(s *state, err error) (*state, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// write runs a statement that changes something.
func write(stmt *sql.Stmt, args ...any) error {
	_, err := stmt.ExecContext(context.Background(), args...)
	return err
}

// append writes b, whose Usage is usage.
func (t *tx) append(b *store.Batch, usage string) (refusal, fault error) {
	s, err := t.endOf(b.SessionID)
	switch {
	case err != nil:
		return nil, err
	case s == nil && b.Create == nil:
		return store.ErrNoSession, nil
	case s == nil:
		s = new(state)
	case b.Epoch < s.epoch:
		return rules.Fenced(b, s.epoch), nil
	case b.Create != nil:
		if refusal, fault = t.repeated(b, s.last); errors.Is(refusal, store.ErrConflict) {
			refusal = fmt.Errorf("%w: its log is another", store.ErrSessionExists)
		}
		return refusal, fault
	case s.last != b.After:
		return t.repeated(b, s.last)
	}
	turn, err := rules.TurnAfter(s.turn, b.Records)
	if err != nil {
		return err, nil
	}
	if refusal, fault := t.keyIsFree(b.Key); refusal != nil || fault != nil {
		return refusal, fault
	}
	if refusal, fault := t.rewritable(b); refusal != nil || fault != nil {
		return refusal, fault
	}
	if b.Create != nil {
		if refusal, fault := t.hasRoom(b.Create); refusal != nil || fault != nil {
			return refusal, fault
		}
		if err := t.insert(b.Create); err != nil {
			return nil, err
		}
	}
	if err := t.records(b.SessionID, b.Records); err != nil {
		return nil, err
	}
	for i := range b.Rewrites {
		t.removed = true
		r := &b.Rewrites[i]
		if err := write(t.rewrite, blob(r.Data), sumOf(b.SessionID, r), b.SessionID, r.Seq); err != nil {
			return nil, fmt.Errorf("record %d: %w", r.Seq, err)
		}
	}
	last := &b.Records[len(b.Records)-1]
	err = write(t.setState, last.Seq, turn, last.Time.UnixMicro(), usage,
		b.LastTurn, b.LastStatus, b.Attempts, b.Epoch,
		b.SessionID)
	if err != nil {
		return nil, err
	}
	return nil, errors.Join(t.share(b.Shared), t.rows(b.Rows), t.key(b.Key), t.pay(b), t.events(b), t.notify(b))
}

// rewritable refuses a rewrite of a record that the log does not have.
func (t *tx) rewritable(b *store.Batch) (refusal, fault error) {
	for i := range b.Rewrites {
		r := &b.Rewrites[i]
		old, err := t.knows(b.SessionID, r.Seq)
		switch {
		case err != nil:
			return nil, err
		case old == nil || !rules.SameButData(old, r):
			return rules.Malformedf("record %d to rewrite is another", r.Seq), nil
		}
	}
	return nil, nil
}

// knows reads a record of a session; nil if there is none.
func (t *tx) knows(id string, seq int64) (*record.Record, error) {
	r, at := &record.Record{Seq: seq}, int64(0)
	err := t.known.QueryRowContext(context.Background(), id, seq).Scan(&r.TurnID, &r.Kind, &at, &r.Data)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("record %d: %w", seq, err)
	}
	r.Time = time.UnixMicro(at).UTC()
	return r, nil
}

// atOnce is how many records one statement inserts, the most first. A statement costs as much as two or three of the
// records of a usual turn.
var atOnce = [...]int{16, 4, 2, 1}

// records writes records of a session.
func (t *tx) records(id string, recs []record.Record) error {
	for i, n := range atOnce {
		for ; len(recs) >= n; recs = recs[n:] {
			t.args = t.args[:0]
			for j := range recs[:n] {
				r := &recs[j]
				t.args = append(t.args,
					id, r.Seq, r.TurnID, string(r.Kind), r.Time.UnixMicro(), blob(r.Data), sumOf(id, r))
			}
			err := write(t.insertRecords[i], t.args...)
			clear(t.args)
			if err != nil {
				return fmt.Errorf("%d records from %d on: %w", n, recs[0].Seq, err)
			}
		}
	}
	return nil
}

// repeated decides on an append to a log that does not end at b.After. It is a repeat, and no refusal, if
// the log holds the same records and the key names what they created. Nothing else is compared, since later
// appends may have replaced it.
func (t *tx) repeated(b *store.Batch, last int64) (refusal, fault error) {
	if b.After+int64(len(b.Records)) > last {
		return fmt.Errorf("%w: it ends at %d", store.ErrConflict, last), nil
	}
	for i := range b.Records {
		r := &b.Records[i]
		old, err := t.knows(b.SessionID, r.Seq)
		switch {
		case err != nil:
			return nil, err
		case old == nil: // it was purged
			return fmt.Errorf("%w: it ends at %d and its record %d is gone", store.ErrConflict, last, r.Seq), nil
		case !rules.SameButData(old, r) || !bytes.Equal(old.Data, r.Data):
			return fmt.Errorf("%w: it ends at %d and its record %d is another", store.ErrConflict, last, r.Seq), nil
		}
	}
	if b.Key == nil {
		return nil, nil
	}
	switch k, err := t.keyOf(b.Key); {
	case err != nil:
		return nil, err
	case k == nil:
		return fmt.Errorf("%w: its records were not appended with key %q", store.ErrConflict, b.Key.Name), nil
	case *k != *b.Key:
		return taken(k), nil
	}
	return nil, nil
}

// purge removes the records and the rows of a session whose log ends at lastSeq.
func (t *tx) purge(id string, lastSeq int64) (refusal, fault error) {
	s, refusal, fault := t.endingAt(id, lastSeq)
	switch {
	case refusal != nil, fault != nil:
		return refusal, fault
	case s.turn != "":
		return fmt.Errorf("%w: turn %q is open", store.ErrConflict, s.turn), nil
	}
	t.removed = true
	for _, stmt := range []*sql.Stmt{t.deleteLog, t.deleteRows, t.setPurged} {
		if err := write(stmt, id); err != nil {
			return nil, err
		}
	}
	from, to := rules.EventBounds(id)
	return nil, write(t.deleteEvents, from, to)
}

// endingAt returns the state of a session whose log ends at lastSeq, and refuses any other one.
func (t *tx) endingAt(id string, lastSeq int64) (s *state, refusal, fault error) {
	s, err := t.stateOf(id)
	switch {
	case err != nil:
		return nil, nil, err
	case s == nil:
		return nil, store.ErrNoSession, nil
	case s.last != lastSeq:
		return nil, endsAt(s), nil
	}
	return s, nil, nil
}

// endsAt is the refusal of a write that expects another end of the log.
func endsAt(s *state) error { return fmt.Errorf("%w: it ends at %d", store.ErrConflict, s.last) }

// probe writes padding bytes in place of those of the last probe.
func (t *tx) probe(padding int) error {
	return write(t.setProbe, padding)
}

// blob returns b, or an empty blob where SQLite would see NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
