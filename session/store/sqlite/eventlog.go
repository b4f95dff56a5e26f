package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/internal/rules"
)

// eventTime is the form of times in the event log, which SQLite's functions for times read, and whose order is that of
// the times.
const eventTime = "2006-01-02 15:04:05.000000+00:00"

const insertEventQuery = `INSERT INTO agent_eventlog
	(app_name, user_id, session_id, event_id, branch, author, timestamp, invocation_id, metadata)
	SELECT ?1, creator, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM sessions WHERE id = ?9
	ON CONFLICT (event_id) DO NOTHING`

const deleteEventsQuery = `DELETE FROM agent_eventlog WHERE event_id >= ? AND event_id < ?`

// events writes the events of a batch.
func (t *tx) events(b *store.Batch) error {
	for i := range b.Events {
		e := &b.Events[i]
		err := write(t.insertEvent, e.App, e.SessionID, e.ID, e.Branch, e.Author,
			e.Time.UTC().Format(eventTime), e.Invocation, e.Metadata, b.SessionID)
		if err != nil {
			return fmt.Errorf("event %q: %w", e.ID, err)
		}
	}
	return nil
}

// Events returns at most q.Limit events that match q, the lowest number first; see store.Event.
func (s *Store) Events(ctx context.Context, q store.EventQuery) ([]store.Event, error) {
	err := rules.CheckLimit(q.Limit)
	var events []store.Event
	if err == nil {
		text, args := eventsQuery(&q)
		events, err = inspect(ctx, s, scanEvent, text, args...)
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: events after %d: %w", q.After, err)
	}
	return events, nil
}

// LastEvent returns the highest number that an event has had, 0 for none.
func (s *Store) LastEvent(ctx context.Context) (int64, error) {
	last, err := inspect(ctx, s, func(rows *sql.Rows) (n int64, err error) {
		err = rows.Scan(&n)
		return n, err
	}, `SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'agent_eventlog'), 0)`)
	if err != nil {
		return 0, fmt.Errorf("sqlite: last event: %w", err)
	}
	return last[0], nil
}

// eventsQuery is the query of q with its arguments.
func eventsQuery(q *store.EventQuery) (text string, args []any) {
	f := filter{}
	f.add(`seq > ?`, q.After)
	if q.Tenant != nil {
		f.add(`substr(session_id, 1, instr(session_id, '/')) = ?`, q.TenantPrefix())
	}
	switch key, from, to := q.Session(); {
	case from != "":
		f.add(`(session_id = ? OR session_id >= ? AND session_id < ?)`, key, from, to)
	case key != "":
		f.add(`session_id = ?`, key)
	}
	if q.BranchPrefix != "" {
		f.add(`substr(branch, 1, length(?)) = ?`, q.BranchPrefix, q.BranchPrefix)
	}
	if q.Author != "" {
		f.add(`author = ?`, q.Author)
	}
	text = `SELECT seq, app_name, user_id, session_id, event_id, branch, author, timestamp, invocation_id, metadata
		FROM agent_eventlog` + f.where() + ` ORDER BY seq` + atMost
	return text, append(f.args, q.Limit)
}

func scanEvent(rows *sql.Rows) (e store.Event, err error) {
	at := ""
	err = rows.Scan(&e.Number, &e.App, &e.User, &e.SessionID, &e.ID, &e.Branch, &e.Author, &at, &e.Invocation,
		&e.Metadata)
	if err != nil {
		return e, err
	}
	if e.Time, err = time.Parse(eventTime, strings.TrimSpace(at)); err != nil {
		return e, fmt.Errorf("event %d: %w", e.Number, err)
	}
	e.Time = e.Time.UTC()
	return e, nil
}
