package sqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/apzuk3/agentd/internal/gestalt"
)

const turnColumns = `id, session_id, subject, key, content, request, trace, tools, phase, message, queued, created_at,
	ended_at, position`

func scanTurn(row interface{ Scan(...any) error }) (*gestalt.Turn, error) {
	t := &gestalt.Turn{}
	var created, ended int64
	err := row.Scan(&t.ID, &t.SessionID, &t.Subject, &t.Key, &t.Content, &t.Request, &t.Trace, &t.Tools, &t.Phase,
		&t.Message, &t.Queued, &created, &ended, &t.Position)
	t.Created, t.Ended = timeOf(created), timeOf(ended)
	return t, orNone(err)
}

// AddTurn implements gestalt.Store.
func (s *store) AddTurn(
	ctx context.Context, n *gestalt.Turn, grant string, most int,
) (known *gestalt.Turn, err error) {
	err = s.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		if known, err = sameTurn(ctx, c, n); !errors.Is(err, gestalt.ErrNone) {
			return err
		}
		known = nil
		var open int
		err = c.QueryRowContext(ctx, `SELECT count(*) FROM gestalt_turns
			WHERE session_id = $1 AND phase IN ('waiting', 'running')`, n.SessionID).Scan(&open)
		if err == nil && open >= most {
			err = gestalt.ErrTooMany
		}
		if err != nil {
			return err
		}
		n.Queued = open > 0
		return insertTurn(ctx, c, n, grant)
	})
	return known, within(err, "add turn %q", n.ID)
}

func sameTurn(ctx context.Context, c *sql.Conn, n *gestalt.Turn) (*gestalt.Turn, error) {
	known, err := scanTurn(c.QueryRowContext(ctx, `SELECT `+turnColumns+` FROM gestalt_turns
		WHERE key <> '' AND session_id = $1 AND subject = $2 AND key = $3`, n.SessionID, n.Subject, n.Key))
	if errors.Is(err, gestalt.ErrNone) {
		known, err = turnOf(ctx, c, n.ID)
	}
	return known, err
}

// SameTurn implements gestalt.Store.
func (s *store) SameTurn(ctx context.Context, n *gestalt.Turn) (known *gestalt.Turn, err error) {
	err = s.db.View(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		known, err = sameTurn(ctx, c, n)
		return err
	})
	return known, within(err, "look for turn %q", n.ID)
}

func insertTurn(ctx context.Context, c *sql.Conn, n *gestalt.Turn, grant string) error {
	_, err := c.ExecContext(ctx, `INSERT INTO gestalt_turns (`+turnColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
		n.ID, n.SessionID, n.Subject, n.Key, n.Content, blob(n.Request), n.Trace, blob(n.Tools), string(n.Phase),
		n.Message, n.Queued, nanos(n.Created), nanos(n.Ended), n.Position)
	if err != nil {
		return err
	}
	if grant != "" {
		_, err = c.ExecContext(ctx, `INSERT INTO gestalt_grants (turn_id, secret) VALUES ($1, $2)`, n.ID, grant)
		if err != nil {
			return err
		}
	}
	_, err = c.ExecContext(ctx, `UPDATE gestalt_sessions SET turned_at = $1, updated_at = $1 WHERE id = $2`,
		nanos(n.Created), n.SessionID)
	return err
}

func turnOf(ctx context.Context, c *sql.Conn, id string) (*gestalt.Turn, error) {
	return scanTurn(c.QueryRowContext(ctx, `SELECT `+turnColumns+` FROM gestalt_turns WHERE id = $1`, id))
}

// Turn implements gestalt.Store.
func (s *store) Turn(ctx context.Context, id string) (found *gestalt.Turn, err error) {
	err = s.db.View(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		found, err = turnOf(ctx, c, id)
		return err
	})
	return found, within(err, "read turn %q", id)
}

// Turns implements gestalt.Store.
func (s *store) Turns(ctx context.Context, sessionID string, offset, limit int) ([]*gestalt.Turn, error) {
	list, err := listed(ctx, s.db, scanTurn, `SELECT `+turnColumns+` FROM gestalt_turns WHERE session_id = $1
		ORDER BY created_at DESC, id LIMIT $2 OFFSET $3`, sessionID, limit, offset)
	return list, within(err, "list turns of session %q", sessionID)
}

// OpenTurns implements gestalt.Store.
func (s *store) OpenTurns(ctx context.Context, sessionID string) ([]*gestalt.Turn, error) {
	list, err := listed(ctx, s.db, scanTurn, `SELECT `+turnColumns+` FROM gestalt_turns
		WHERE phase IN ('waiting', 'running') AND ($1 = '' OR session_id = $1) ORDER BY created_at, id`, sessionID)
	return list, within(err, "list open turns")
}

// BeginTurn implements gestalt.Store.
func (s *store) BeginTurn(ctx context.Context, id string, tools []byte) (bool, error) {
	was, err := s.changed(ctx, s.db.Transact, `UPDATE gestalt_turns SET phase = 'running', tools = $1
		WHERE id = $2 AND phase = 'waiting'`, blob(tools), id)
	return was, within(err, "begin turn %q", id)
}

// EndTurn implements gestalt.Store.
func (s *store) EndTurn(
	ctx context.Context, t *gestalt.Turn, from gestalt.Phase, events []gestalt.Event,
) (was bool, err error) {
	err = s.db.Erase(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		was, err = exec(ctx, c, `UPDATE gestalt_turns SET phase = $1, message = $2, ended_at = $3
			WHERE id = $4 AND phase = $5`, string(t.Phase), t.Message, nanos(t.Ended), t.ID, string(from))
		if err != nil || !was {
			return err
		}
		if _, err = c.ExecContext(ctx, `DELETE FROM gestalt_grants WHERE turn_id = $1`, t.ID); err != nil {
			return err
		}
		return insertEvents(ctx, c, t.ID, events)
	})
	return was, within(err, "end turn %q", t.ID)
}

// Grant implements gestalt.Store.
func (s *store) Grant(ctx context.Context, turnID string) (grant string, err error) {
	err = s.db.View(ctx, func(ctx context.Context, c *sql.Conn) error {
		err := c.QueryRowContext(ctx, `SELECT secret FROM gestalt_grants WHERE turn_id = $1`, turnID).Scan(&grant)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return grant, within(err, "read the grant of turn %q", turnID)
}

// AddEvents implements gestalt.Store.
func (s *store) AddEvents(ctx context.Context, turnID string, from, to int64, events []gestalt.Event) error {
	err := s.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		was, err := exec(ctx, c, `UPDATE gestalt_turns SET position = $1 WHERE id = $2 AND position = $3`,
			to, turnID, from)
		if err == nil && !was {
			err = gestalt.ErrMoved
		}
		if err != nil {
			return err
		}
		return insertEvents(ctx, c, turnID, events)
	})
	return within(err, "add events of turn %q", turnID)
}

func insertEvents(ctx context.Context, c *sql.Conn, turnID string, events []gestalt.Event) error {
	for i := range events {
		e := &events[i]
		_, err := c.ExecContext(ctx, `INSERT INTO gestalt_events (turn_id, seq, message, data)
			VALUES ($1, $2, $3, $4)`, turnID, e.Seq, e.Message, blob(e.Data))
		if err != nil {
			return err
		}
	}
	return nil
}

func scanEvent(row interface{ Scan(...any) error }) (e gestalt.Event, err error) {
	err = row.Scan(&e.Seq, &e.Message, &e.Data)
	return e, err
}

// Events implements gestalt.Store.
func (s *store) Events(ctx context.Context, turnID string, after int64, limit int) ([]gestalt.Event, error) {
	list, err := listed(ctx, s.db, scanEvent, `SELECT seq, message, data FROM gestalt_events
		WHERE turn_id = $1 AND seq > $2 ORDER BY seq LIMIT $3`, turnID, after, limit)
	return list, within(err, "read events of turn %q", turnID)
}

// LastEvent implements gestalt.Store.
func (s *store) LastEvent(ctx context.Context, turnID string) (seq int64, err error) {
	err = s.db.View(ctx, func(ctx context.Context, c *sql.Conn) error {
		return c.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM gestalt_events WHERE turn_id = $1`,
			turnID).Scan(&seq)
	})
	return seq, within(err, "read events of turn %q", turnID)
}

// Pieces implements gestalt.Store.
func (s *store) Pieces(ctx context.Context, turnID, message string) ([]gestalt.Event, error) {
	list, err := listed(ctx, s.db, scanEvent, `SELECT seq, message, data FROM gestalt_events
		WHERE message <> '' AND turn_id = $1 AND message = $2 ORDER BY seq`, turnID, message)
	return list, within(err, "read a message of turn %q", turnID)
}
