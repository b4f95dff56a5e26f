package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/internal/rules"
)

// reads has the queries. Its methods may be called from any goroutine if it was prepared on a pool.
type reads struct {
	statements
	// db runs the queries that cannot be prepared.
	db queryer

	getHead, getLog, getShared, getScopes, getSpent, getOpenTurns, getIdle *sql.Stmt
	getInfo, getRow, getKey, getUnindexed                                  *sql.Stmt
}

// atMost ends a query that has a limit. The plus sign keeps SQLite from reading the value when it plans the
// query: it would compile the statement again for each value of a bare parameter.
const atMost = ` LIMIT +?`

// openTurnsQuery repeats the condition of the partial index, so that SQLite uses that index.
const openTurnsQuery = `SELECT ` + headColumns + ` FROM sessions
	WHERE open_turn <> '' AND id > ? ORDER BY id` + atMost

// idleQuery does the same.
const idleQuery = `SELECT ` + headColumns + ` FROM sessions
	WHERE open_turn = '' AND last_seq > purged AND updated_at < ? ORDER BY updated_at, id` + atMost

const logQuery = `SELECT seq, turn_id, kind, time, data, sum FROM records
	WHERE session_id = ? AND seq > ? ORDER BY seq` + atMost

const headColumns = `id, created_at, last_seq, open_turn, updated_at, purged, attempts, waits, epoch`

func prepareReads(ctx context.Context, p queryer) (*reads, error) {
	r := &reads{db: p}
	err := r.prepare(ctx, p, map[**sql.Stmt]string{
		&r.getHead: `SELECT ` + headColumns + ` FROM sessions WHERE id = ?`,
		&r.getLog:  logQuery,
		&r.getSpent: `SELECT coalesce(sum(tokens), 0), coalesce(sum(cost), 0)
			FROM spent WHERE tenant = ? AND day BETWEEN ? AND ?`,
		&r.getScopes:    `SELECT DISTINCT scope FROM shared WHERE scope > ? ORDER BY scope LIMIT ?`,
		&r.getShared:    `SELECT key, value FROM shared WHERE scope = ?`,
		&r.getOpenTurns: openTurnsQuery,
		&r.getIdle:      idleQuery,
		&r.getInfo:      infoQuery,
		&r.getRow:       rowQuery,
		&r.getKey:       keyQuery,
		&r.getUnindexed: unindexedQuery,
	})
	return r, err
}

func (r *reads) head(ctx context.Context, id string) (store.Head, error) {
	heads, err := query(ctx, r.getHead, scanHead, id)
	if err != nil {
		return store.Head{}, err
	}
	if len(heads) == 0 {
		return store.Head{}, store.ErrNoSession
	}
	return heads[0], nil
}

// log returns a page of a log. A missing record is an error; the page never has a gap.
func (r *reads) log(ctx context.Context, id string, after int64, limit int) ([]record.Record, error) {
	if err := rules.CheckLimit(limit); err != nil {
		return nil, err
	}
	for last := (store.Head{LastSeq: -1}); ; {
		recs, err := r.page(ctx, id, after, limit)
		if err != nil || len(recs) > 0 && recs[0].Seq-1 == after {
			return recs, err
		}
		head, err := r.head(ctx, id)
		if err != nil {
			return nil, err
		}
		gone := max(after, head.Purged)
		switch {
		case len(recs) > 0 && recs[0].Seq-1 == gone, len(recs) == 0 && head.LastSeq <= gone:
			return recs, nil
		case head.LastSeq == last.LastSeq && head.Purged == last.Purged: // no write came between the two
			return nil, fmt.Errorf("the record behind %d of session %q is missing: "+
				"its log has %d records, %d of them purged",
				gone, id, head.LastSeq, head.Purged)
		}
		last = head
	}
}

// page reads records until their data holds store.ReadBytes.
func (r *reads) page(ctx context.Context, id string, after int64, limit int) (recs []record.Record, err error) {
	rows, err := r.getLog.QueryContext(ctx, id, after, limit)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for size := 0; size < store.ReadBytes && rows.Next(); {
		rec, sum, err := scanRecord(rows)
		switch {
		case err != nil:
			return nil, err
		case sum.Valid && sum.Int64 != sumOf(id, &rec):
			return nil, wrongSum(id, &rec, sum.Int64)
		case len(recs) > 0 && rec.Seq != recs[len(recs)-1].Seq+1:
			return nil, fmt.Errorf("record %d of session %q stands behind record %d",
				rec.Seq, id, recs[len(recs)-1].Seq)
		}
		recs = append(recs, rec)
		size += len(rec.Data)
	}
	return recs, rows.Err()
}

func (r *reads) shared(ctx context.Context, scope string) (map[string]json.RawMessage, error) {
	values, err := query(ctx, r.getShared, func(rows *sql.Rows) (v store.SharedValue, err error) {
		return v, rows.Scan(&v.Key, (*[]byte)(&v.Value))
	}, scope)
	if err != nil {
		return nil, err
	}
	m := make(map[string]json.RawMessage, len(values))
	for _, v := range values {
		m[v.Key] = v.Value
	}
	return m, nil
}

func (r *reads) openTurns(ctx context.Context, after string, limit int) ([]store.Head, error) {
	if err := rules.CheckLimit(limit); err != nil {
		return nil, err
	}
	return query(ctx, r.getOpenTurns, scanHead, after, limit)
}

func (r *reads) idle(ctx context.Context, before time.Time, limit int) ([]store.Head, error) {
	if err := rules.CheckLimit(limit); err != nil {
		return nil, err
	}
	return query(ctx, r.getIdle, scanHead, before.UnixMicro(), limit)
}

// query returns all rows of a prepared query.
func query[T any](ctx context.Context, stmt *sql.Stmt, scan func(*sql.Rows) (T, error), args ...any) ([]T, error) {
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	return collect(rows, scan)
}

// collect reads rows to their end and closes them.
func collect[T any](rows *sql.Rows, scan func(*sql.Rows) (T, error)) (all []T, err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

func scanHead(rows *sql.Rows) (h store.Head, err error) {
	var created, updated int64
	err = rows.Scan(&h.ID, &created, &h.LastSeq, &h.OpenTurn, &updated, &h.Purged, &h.Attempts, &h.Waits, &h.Epoch)
	h.CreatedAt, h.UpdatedAt = time.UnixMicro(created).UTC(), time.UnixMicro(updated).UTC()
	return h, err
}

func scanRecord(rows *sql.Rows) (r record.Record, sum sql.NullInt64, err error) {
	var at int64
	err = rows.Scan(&r.Seq, &r.TurnID, &r.Kind, &at, &r.Data, &sum)
	r.Time = time.UnixMicro(at).UTC()
	return r, sum, err
}
