package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/internal/rules"
)

// pageRecords is how many records one statement reads at most: the server looks at the sizes of so many.
const pageRecords = 512

// logQuery reads records of a session above a sequence number, until they hold some bytes.
const logQuery = `SELECT seq, turn_id, kind, time, data FROM (
		SELECT *, sum(octet_length(data)) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) - octet_length(data) AS before
		FROM (SELECT seq, turn_id, kind, time, data FROM records
			WHERE session_id = $1::text AND seq > $2::bigint ORDER BY seq LIMIT $3::bigint) AS r
	) AS p WHERE before < $4::bigint ORDER BY seq`

const headQuery = `SELECT ` + headColumns + ` FROM heads h WHERE h.id = $1`

// Head returns the head of a session, or store.ErrNoSession.
func (s *Store) Head(ctx context.Context, id string) (store.Head, error) {
	head, err := view(ctx, s, func(ctx context.Context, c *pgx.Conn) (store.Head, error) { return headOf(ctx, c, id) })
	if err != nil {
		return store.Head{}, fmt.Errorf("postgres: head of session %q: %w", id, err)
	}
	return head, nil
}

func headOf(ctx context.Context, c *pgx.Conn, id string) (store.Head, error) {
	rows, err := c.Query(ctx, headQuery, id)
	return one(rows, err, scanHead, store.ErrNoSession)
}

// Read returns at most limit records with a sequence number above after, in order; see store.Store. The caller owns the
// result.
func (s *Store) Read(ctx context.Context, id string, after int64, limit int) ([]record.Record, error) {
	err := rules.CheckLimit(limit)
	var recs []record.Record
	if err == nil {
		recs, err = view(ctx, s, func(ctx context.Context, c *pgx.Conn) ([]record.Record, error) {
			return readLog(ctx, c, id, after, limit)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: read session %q after %d: %w", id, after, err)
	}
	return recs, nil
}

// readLog returns a page of a log. A missing record is an error; the page never has a gap.
func readLog(ctx context.Context, c *pgx.Conn, id string, after int64, limit int) ([]record.Record, error) {
	for last := (store.Head{LastSeq: -1}); ; {
		recs, err := readPage(ctx, c, id, after, limit)
		if errors.Is(err, errRaced) {
			continue
		}
		if err != nil || len(recs) > 0 && recs[0].Seq-1 == after {
			return recs, err
		}
		head, err := headOf(ctx, c, id)
		if err != nil {
			return nil, err
		}
		gone := max(after, head.Purged)
		switch {
		case len(recs) > 0 && recs[0].Seq-1 == gone, len(recs) == 0 && head.LastSeq <= gone:
			return recs, nil
		case head.LastSeq == last.LastSeq && head.Purged == last.Purged: // no write came between the two
			return nil, missing(id, gone, &state{last: head.LastSeq, purged: head.Purged})
		}
		last = head
	}
}

func missing(id string, after int64, s *state) error {
	return fmt.Errorf("%w: the record behind %d of session %q is missing: its log has %d records, %d of them purged",
		store.ErrDamaged, after, id, s.last, s.purged)
}

// readPage reads records until they are so many, or hold store.ReadBytes. It returns errRaced if the log was purged
// between two of its statements.
func readPage(ctx context.Context, c *pgx.Conn, id string, after int64, limit int) (recs []record.Record, err error) {
	for size := 0; len(recs) < limit && size < store.ReadBytes; {
		n := min(limit-len(recs), pageRecords)
		rows, err := c.Query(ctx, logQuery, id, after, n, store.ReadBytes-size)
		page, err := collect(rows, err, scanRecord)
		if err != nil {
			return nil, err
		}
		for i := range page {
			if len(recs) > 0 && page[i].Seq != after+1 {
				if i == 0 {
					return nil, errRaced
				}
				return nil, fmt.Errorf("%w: record %d of session %q stands behind record %d",
					store.ErrDamaged, page[i].Seq, id, after)
			}
			recs, after = append(recs, page[i]), page[i].Seq
			size += len(page[i].Data)
		}
		if len(page) < n {
			break // the end, or enough bytes
		}
	}
	return recs, nil
}

// OpenTurns returns the heads of at most limit sessions that have an open turn and an id above after, in order of the
// bytes of the id.
func (s *Store) OpenTurns(ctx context.Context, after string, limit int) ([]store.Head, error) {
	heads, err := s.heads(ctx, limit, `SELECT `+headColumns+` FROM heads h
		WHERE h.open_turn <> '' AND h.id > $2 ORDER BY h.id LIMIT $1`, after)
	if err != nil {
		return nil, fmt.Errorf("postgres: open turns after %q: %w", after, err)
	}
	return heads, nil
}

// Idle returns the heads of at most limit sessions that have records and no open turn and were last updated before a
// time, the longest idle first.
func (s *Store) Idle(ctx context.Context, before time.Time, limit int) ([]store.Head, error) {
	heads, err := s.heads(ctx, limit, `SELECT `+headColumns+` FROM heads h
		WHERE h.idle_since IS NOT NULL AND h.idle_since < $2 ORDER BY h.idle_since, h.id LIMIT $1`, before.UnixMicro())
	if err != nil {
		return nil, fmt.Errorf("postgres: sessions idle since %v: %w", before, err)
	}
	return heads, nil
}

// Unindexed returns none: no build has written to such a database without an index.
func (s *Store) Unindexed(ctx context.Context, after string, limit int) ([]store.Head, error) {
	heads, err := s.heads(ctx, limit, `SELECT `+headColumns+` FROM heads h WHERE false AND h.id > $2 LIMIT $1`, after)
	if err != nil {
		return nil, fmt.Errorf("postgres: sessions without an index after %q: %w", after, err)
	}
	return heads, nil
}

// heads runs a query whose first argument is the limit.
func (s *Store) heads(ctx context.Context, limit int, text string, arg any) ([]store.Head, error) {
	if err := rules.CheckLimit(limit); err != nil {
		return nil, err
	}
	return view(ctx, s, func(ctx context.Context, c *pgx.Conn) ([]store.Head, error) {
		rows, err := c.Query(ctx, text, limit, arg)
		return collect(rows, err, scanHead)
	})
}
