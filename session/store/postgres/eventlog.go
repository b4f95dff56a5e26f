package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/internal/rules"
)

const (
	// eventLock is the advisory lock under which events get their numbers: it is held from then on until the commit, so
	// that numbers become visible in their order.
	eventLock = 0x6167656e744c6f67

	// takeEventLock is what a transaction runs last before insertEvents: who holds the lock waits for no other lock, so
	// that there is no circle. A server whose client vanishes in between lets go of it.
	takeEventLock = `SELECT set_config('idle_in_transaction_session_timeout', '5s', true), pg_advisory_xact_lock($1)`

	// insertEvents inserts the events of those records that this very transaction has written.
	insertEvents = `INSERT INTO agent_eventlog
		(app_name, user_id, session_id, event_id, branch, author, timestamp, invocation_id, metadata)
		SELECT u.app, (SELECT s.creator FROM sessions s WHERE s.id = u.log), u.session_id, u.event_id, u.branch,
			u.author, timestamptz 'epoch' + u.at * interval '1 microsecond', u.turn, u.metadata::json
		FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[],
			$9::text[], $10::text[]) WITH ORDINALITY
			AS u(app, log, seq, session_id, event_id, branch, author, at, turn, metadata, n)
		CROSS JOIN LATERAL (SELECT 1 FROM records r WHERE r.session_id = u.log AND r.seq = u.seq
			AND r.xmin = pg_current_xact_id()::xid LIMIT 1) AS written
		ORDER BY u.n ON CONFLICT (event_id) DO NOTHING`

	eventColumns = `SELECT seq, app_name, user_id, session_id, event_id, branch, author, timestamp, invocation_id,
		metadata::text FROM agent_eventlog`
)

// eventArgs are the arguments of insertEvents; ok is false if the batches have no events.
func eventArgs(batches ...*store.Batch) (args []any, ok bool) {
	var app, log, session, id, branch, author, turn, metadata []string
	var seq, at []int64
	for _, b := range batches {
		for i := range b.Events {
			e := &b.Events[i]
			app, log, seq = append(app, e.App), append(log, b.SessionID), append(seq, e.Seq)
			session, id = append(session, e.SessionID), append(id, e.ID)
			branch, author = append(branch, e.Branch), append(author, e.Author)
			at, turn = append(at, e.Time.UnixMicro()), append(turn, e.Invocation)
			metadata = append(metadata, e.Metadata)
		}
	}
	return []any{app, log, seq, session, id, branch, author, at, turn, metadata}, len(log) > 0
}

// queueEvents queues what writes the events of batches, as the last of a transaction.
func queueEvents(to *pgx.Batch, batches ...*store.Batch) {
	if args, ok := eventArgs(batches...); ok {
		to.Queue(takeEventLock, int64(eventLock))
		to.Queue(insertEvents, args...)
	}
}

// Events returns at most q.Limit events that match q, the lowest number first; see store.Event.
func (s *Store) Events(ctx context.Context, q store.EventQuery) ([]store.Event, error) {
	err := rules.CheckLimit(q.Limit)
	var events []store.Event
	if err == nil {
		text, args := eventsQuery(&q)
		events, err = look(ctx, s, scanEvent, text, args...)
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: events after %d: %w", q.After, err)
	}
	return events, nil
}

// LastEvent returns the highest number that an event has, 0 for none. Numbers that are given and not
// visible yet do not count.
func (s *Store) LastEvent(ctx context.Context) (int64, error) {
	last, err := look(ctx, s, pgx.RowTo[int64], `SELECT coalesce(max(seq), 0) FROM agent_eventlog`)
	if err != nil {
		return 0, fmt.Errorf("postgres: last event: %w", err)
	}
	return last[0], nil
}

// eventsQuery is the query of q with its arguments.
func eventsQuery(q *store.EventQuery) (text string, args []any) {
	f := filter{}
	f.add(`seq > ?`, q.After)
	if q.Tenant != nil {
		f.add(`substr(session_id, 1, strpos(session_id, '/')) = ?`, q.TenantPrefix())
	}
	switch key, from, to := q.Session(); {
	case from != "":
		f.add(`(session_id = ? OR session_id >= ? AND session_id < ?)`, key, from, to)
	case key != "":
		f.add(`session_id = ?`, key)
	}
	if q.BranchPrefix != "" {
		f.add(`starts_with(branch, ?)`, q.BranchPrefix)
	}
	if q.Author != "" {
		f.add(`author = ?`, q.Author)
	}
	limit := f.arg(q.Limit)
	return eventColumns + f.where() + ` ORDER BY seq LIMIT ` + limit, f.args
}

func scanEvent(row pgx.CollectableRow) (e store.Event, err error) {
	err = row.Scan(&e.Number, &e.App, &e.User, &e.SessionID, &e.ID, &e.Branch, &e.Author, &e.Time, &e.Invocation,
		&e.Metadata)
	e.Time = e.Time.UTC()
	return e, err
}
