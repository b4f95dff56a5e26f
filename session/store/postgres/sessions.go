package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/internal/rules"
)

const headColumns = `h.id, h.created_at, h.last_seq, h.open_turn, h.updated_at, h.purged, h.attempts, h.waits, h.epoch`

// infoColumns are the columns of store.Info, of sessions s and heads h.
const infoColumns = headColumns + `, s.creator,
	ARRAY(SELECT key FROM labels WHERE session_id = s.id ORDER BY key),
	ARRAY(SELECT value FROM labels WHERE session_id = s.id ORDER BY key),
	s.client_ref, s.metadata, s.agent, s.archived, s.budget, s.drop_payloads, s.version,
	h.usage, h.last_turn, h.last_status, s.forked_from, s.forked_at, s.inherited`

const infoQuery = `SELECT ` + infoColumns + ` FROM sessions s JOIN heads h ON h.id = s.id WHERE s.id = $1`

// Create creates a session with an empty log, and the key if it is not nil; see store.Store.
func (s *Store) Create(ctx context.Context, n store.NewSession, key *store.Key) error {
	err := errors.Join(rules.CheckNew(&n), rules.CheckKey(n.ID, key))
	if err == nil {
		err = s.write(ctx, func(t *tx) error { return t.create(&n, key) })
	}
	if err != nil {
		return fmt.Errorf("postgres: create session %q: %w", n.ID, err)
	}
	return nil
}

// Info returns the info of a session, or store.ErrNoSession. The caller owns the result.
func (s *Store) Info(ctx context.Context, id string) (store.Info, error) {
	info, err := view(ctx, s, func(ctx context.Context, c *pgx.Conn) (store.Info, error) {
		rows, err := c.Query(ctx, infoQuery, id)
		return one(rows, err, scanInfo, store.ErrNoSession)
	})
	if err != nil {
		return store.Info{}, fmt.Errorf("postgres: info of session %q: %w", id, err)
	}
	return info, nil
}

// Sessions returns at most q.Limit sessions, the newest first; see store.Store. The caller owns the result.
func (s *Store) Sessions(ctx context.Context, q store.InfoQuery) ([]store.Info, error) {
	if err := rules.CheckLimit(q.Limit); err != nil {
		return nil, fmt.Errorf("postgres: sessions: %w", err)
	}
	text, args := sessionsQuery(&q)
	infos, err := view(ctx, s, func(ctx context.Context, c *pgx.Conn) ([]store.Info, error) {
		rows, err := c.Query(ctx, text, args...)
		return collect(rows, err, scanInfo)
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: sessions: %w", err)
	}
	return infos, nil
}

// Update changes a session and returns its info after the change; see store.Store.
func (s *Store) Update(ctx context.Context, id string, c store.Change) (info store.Info, err error) {
	if err = rules.CheckLabels(c.Labels); err == nil {
		err = s.write(ctx, func(t *tx) (err error) {
			info, err = t.update(id, &c)
			return err
		})
	}
	if err != nil {
		return store.Info{}, fmt.Errorf("postgres: update session %q: %w", id, err)
	}
	return info, nil
}

// Delete removes a session whose log ends at lastSeq; see store.Store. The package doc says when the bytes are gone.
func (s *Store) Delete(ctx context.Context, id string, lastSeq int64) error {
	if err := s.write(ctx, func(t *tx) error { return t.delete(id, lastSeq) }); err != nil {
		return fmt.Errorf("postgres: delete session %q: %w", id, err)
	}
	return nil
}

// Purge removes the records and rows of a session whose log ends at lastSeq; see store.Store. The package doc says when
// the bytes are gone.
func (s *Store) Purge(ctx context.Context, id string, lastSeq int64) error {
	if err := s.write(ctx, func(t *tx) error { return t.purge(id, lastSeq) }); err != nil {
		return fmt.Errorf("postgres: purge session %q: %w", id, err)
	}
	return nil
}

// Fork creates a session with a copy of another session's log; see store.Store. Appends to that one go on meanwhile.
func (s *Store) Fork(ctx context.Context, f store.Fork) error {
	err := rules.CheckFork(&f)
	if err == nil {
		err = s.write(ctx, func(t *tx) error { return t.fork(&f) })
	}
	if err != nil {
		return fmt.Errorf("postgres: fork session %q at %d into %q: %w", f.From, f.Seq, f.Into.ID, err)
	}
	return nil
}

// SetAttempts sets how often the open turn of a session was made to run, and whether it was suspended because it only
// waits; see store.Store. A session that another replica owns is that one's to count: store.ErrFenced.
func (s *Store) SetAttempts(ctx context.Context, id string, attempts int64, waits bool) error {
	err := s.write(ctx, func(t *tx) error {
		var mine bool
		err := t.QueryRow(t.ctx, `WITH found AS (SELECT id, $4::bigint = 0 OR coalesce(owner, $4) = $4 AS mine
				FROM heads WHERE id = $1 FOR UPDATE),
			counted AS (UPDATE heads SET attempts = $2, waits = $3 FROM found WHERE heads.id = found.id AND mine)
			SELECT mine FROM found`, id, attempts, waits, s.owner()).Scan(&mine)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return store.ErrNoSession
		case err == nil && !mine:
			return store.ErrFenced
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("postgres: attempts of session %q: %w", id, err)
	}
	return nil
}

// Index writes the rows, the usage and the last turn of a session; see store.Store.
func (s *Store) Index(ctx context.Context, b store.Batch, lastSeq int64) error {
	err := rules.CheckIndex(&b)
	var usage string
	if err == nil {
		usage, err = rules.UsageText(b.Usage)
	}
	if err == nil {
		err = s.write(ctx, func(t *tx) error { return t.index(&b, usage, lastSeq) })
	}
	if err != nil {
		return fmt.Errorf("postgres: index session %q: %w", b.SessionID, err)
	}
	return nil
}

// state is the part of a session that writes are checked against.
type state struct {
	last, purged, created, epoch int64
	turn                         string
}

// lock returns the state of a session, nil for none, and keeps others from changing it.
func (t *tx) lock(id string) (*state, error) {
	s := new(state)
	err := t.QueryRow(t.ctx, `SELECT last_seq, purged, created_at, epoch, open_turn FROM heads
		WHERE id = $1 FOR UPDATE`, id).Scan(&s.last, &s.purged, &s.created, &s.epoch, &s.turn)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return s, err
}

// endingAt is lock of a session whose log ends at lastSeq; it refuses another one.
func (t *tx) endingAt(id string, lastSeq int64) (*state, error) {
	s, err := t.lock(id)
	switch {
	case err != nil:
		return nil, err
	case s == nil:
		return nil, answered{store.ErrNoSession}
	case s.last != lastSeq:
		return nil, endsAt(s)
	}
	return s, nil
}

// endsAt is the refusal of a write that expects another end of the log.
func endsAt(s *state) error { return fmt.Errorf("%w: it ends at %d", store.ErrConflict, s.last) }

func (t *tx) create(n *store.NewSession, key *store.Key) error {
	s, err := t.lock(n.ID)
	switch {
	case err != nil:
		return err
	case s != nil:
		return answered{store.ErrSessionExists}
	}
	if err := t.keyIsFree(key); err != nil {
		return err
	}
	if err := t.insert(n); err != nil {
		return err
	}
	return t.key(key)
}

// insertSession returns how many sessions it has made, and how many their tenant has now.
const insertSession = `WITH h AS (
	INSERT INTO heads (id, created_at, updated_at) VALUES ($1::text, $2::bigint, $2::bigint)
	ON CONFLICT (id) DO NOTHING RETURNING id
), s AS (
	INSERT INTO sessions (id, created_at, creator, client_ref, budget, drop_payloads, metadata, agent)
	SELECT h.id, $2::bigint, $3::text, $4::text, $5::text, $6::boolean, $7::text, $8::text FROM h RETURNING tenant
), c AS (
	INSERT INTO session_counts (tenant, sessions) SELECT s.tenant, 1 FROM s WHERE s.tenant <> ''
	ON CONFLICT (tenant) DO UPDATE SET sessions = session_counts.sessions + 1 RETURNING sessions
) SELECT (SELECT count(*) FROM h), coalesce((SELECT sessions FROM c), 0)`

// insert creates a session that did not exist when the transaction looked.
func (t *tx) insert(n *store.NewSession) error {
	at := n.CreatedAt.UnixMicro()
	budget, err := json.Marshal(n.Budget)
	if err != nil {
		return err
	}
	var made, sessions int64
	err = t.QueryRow(t.ctx, insertSession, n.ID, at, n.Creator, n.ClientRef, string(budget), n.DropToolPayloads,
		n.Metadata, n.Agent).Scan(&made, &sessions)
	switch {
	case err != nil:
		return err
	case made == 0:
		return errRaced
	}
	if sessions > 0 { // with this one; a session without a tenant is not counted
		if err := n.TooMany(sessions - 1); err != nil {
			return err
		}
	}
	return t.labels(n.ID, at, n.Labels)
}

// labels sets labels of a session, and removes those with an empty value. created is when the session was created.
func (t *tx) labels(id string, created int64, labels map[string]string) error {
	b := &pgx.Batch{}
	for key, value := range labels {
		if value == "" {
			b.Queue(`DELETE FROM labels WHERE session_id = $1 AND key = $2`, id, key)
		} else {
			b.Queue(`INSERT INTO labels (session_id, key, value, created_at) VALUES ($1, $2, $3, $4)
				ON CONFLICT (session_id, key) DO UPDATE SET value = excluded.value`, id, key, value, created)
		}
	}
	return t.all(b)
}

// update changes a session and returns its info after the change.
func (t *tx) update(id string, c *store.Change) (info store.Info, err error) {
	s, err := t.lock(id)
	switch {
	case err != nil:
		return info, err
	case s == nil:
		return info, store.ErrNoSession
	}
	var at *int64
	if !c.At.IsZero() {
		at = new(c.At.UnixMicro())
	}
	var budget *string
	if c.Budget != nil {
		data, err := json.Marshal(*c.Budget)
		if err != nil {
			return info, err
		}
		budget = new(string(data))
	}
	tag, err := t.Exec(t.ctx, `UPDATE sessions SET version = version + 1, client_ref = coalesce($3::text, client_ref),
		metadata = coalesce($4::text, metadata), archived = coalesce($5::boolean, archived),
		budget = coalesce($6::text, budget) WHERE id = $1::text AND ($2::bigint = 0 OR version = $2::bigint)`,
		id, c.Version, c.ClientRef, c.Metadata, c.Archived, budget)
	switch {
	case err != nil:
		return info, err
	case tag.RowsAffected() == 0:
		return info, answered{fmt.Errorf("%w: its version is not %d", store.ErrConflict, c.Version)}
	}
	if at != nil {
		if err := t.exec(`UPDATE heads SET updated_at = $2 WHERE id = $1`, id, at); err != nil {
			return info, err
		}
	}
	if err := t.labels(id, s.created, c.Labels); err != nil {
		return info, err
	}
	rows, err := t.Query(t.ctx, infoQuery, id)
	return one(rows, err, scanInfo, store.ErrNoSession)
}

func (t *tx) delete(id string, lastSeq int64) error {
	if _, err := t.endingAt(id, lastSeq); err != nil {
		return err
	}
	b := &pgx.Batch{}
	for _, table := range []string{"records", "entries", "labels", "notices"} {
		b.Queue(`DELETE FROM `+table+` WHERE session_id = $1`, id)
	}
	b.Queue(`UPDATE session_counts SET sessions = sessions - 1
		WHERE tenant = (SELECT tenant FROM sessions WHERE id = $1)`, id)
	b.Queue(`DELETE FROM session_counts
		WHERE sessions <= 0 AND tenant = (SELECT tenant FROM sessions WHERE id = $1)`, id)
	b.Queue(`DELETE FROM keys WHERE session_id = $1`, id) // behind the count, see lockOrder
	b.Queue(`DELETE FROM sessions WHERE id = $1`, id)
	b.Queue(`DELETE FROM heads WHERE id = $1`, id)
	return t.all(b)
}

func (t *tx) purge(id string, lastSeq int64) error {
	s, err := t.endingAt(id, lastSeq)
	switch {
	case err != nil:
		return err
	case s.turn != "":
		return fmt.Errorf("%w: turn %q is open", store.ErrConflict, s.turn)
	}
	b := &pgx.Batch{}
	b.Queue(`DELETE FROM records WHERE session_id = $1`, id)
	b.Queue(`DELETE FROM entries WHERE session_id = $1`, id)
	b.Queue(`UPDATE heads SET purged = last_seq WHERE id = $1`, id)
	from, to := rules.EventBounds(id)
	b.Queue(`DELETE FROM agent_eventlog WHERE event_id >= $1 AND event_id < $2`, from, to)
	return t.all(b)
}

// index writes the rows, the usage and the last turn of b for a log that ends at lastSeq. usage is the text of b.Usage.
func (t *tx) index(b *store.Batch, usage string, lastSeq int64) error {
	if _, err := t.endingAt(b.SessionID, lastSeq); err != nil {
		return err
	}
	batch := &pgx.Batch{}
	batch.Queue(`DELETE FROM entries WHERE session_id = $1`, b.SessionID)
	batch.Queue(`UPDATE heads SET usage = $2, last_turn = $3, last_status = $4 WHERE id = $1`,
		b.SessionID, usage, b.LastTurn, b.LastStatus)
	insertRows(batch, b.SessionID, b.Rows)
	return t.all(batch)
}

// insertRows writes rows of a session in place of those of the same kind and id.
func insertRows(batch *pgx.Batch, id string, rows []store.Row) {
	if len(rows) == 0 {
		return
	}
	batch.Queue(`INSERT INTO entries (session_id, kind, id, turn_id, seq, created_at, status, data)
		SELECT $1::text, u.* FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[],
			$8::bytea[]) AS u`+rowConflict, append([]any{id}, rowArgs(rows)...)...)
}

func scanHead(row pgx.CollectableRow) (h store.Head, err error) {
	var created, updated int64
	err = row.Scan(&h.ID, &created, &h.LastSeq, &h.OpenTurn, &updated, &h.Purged, &h.Attempts, &h.Waits, &h.Epoch)
	h.CreatedAt, h.UpdatedAt = time.UnixMicro(created).UTC(), time.UnixMicro(updated).UTC()
	return h, err
}

func scanInfo(row pgx.CollectableRow) (i store.Info, err error) {
	var created, updated int64
	var keys, values []string
	var budget, usage string
	err = row.Scan(&i.ID, &created, &i.LastSeq, &i.OpenTurn, &updated, &i.Purged, &i.Attempts, &i.Waits, &i.Epoch,
		&i.Creator, &keys, &values, &i.ClientRef, &i.Metadata, &i.Agent, &i.Archived, &budget, &i.DropToolPayloads,
		&i.Version, &usage, &i.LastTurn, &i.LastStatus, &i.ForkedFrom, &i.ForkedAt, &i.Inherited)
	if err != nil {
		return i, err
	}
	i.CreatedAt, i.UpdatedAt = time.UnixMicro(created).UTC(), time.UnixMicro(updated).UTC()
	if err := json.Unmarshal([]byte(usage), &i.Usage); err != nil {
		return i, fmt.Errorf("%w: usage of session %q: %w", store.ErrDamaged, i.ID, err)
	}
	if err := json.Unmarshal([]byte(budget), &i.Budget); err != nil {
		return i, fmt.Errorf("%w: budget of session %q: %w", store.ErrDamaged, i.ID, err)
	}
	if len(keys) > 0 {
		i.Labels = make(map[string]string, len(keys))
	}
	for n, key := range keys {
		i.Labels[key] = values[n]
	}
	return i, nil
}

// sessionsQuery is written so that one index has the sessions of a tenant in the order of the result: that of the
// client's reference if it is set, else that of the first label, else that of the time of creation.
func sessionsQuery(q *store.InfoQuery) (text string, args []any) {
	var f filter
	created, id := "s.created_at", "s.id"
	labels := slices.Sorted(maps.Keys(q.Labels))
	from := "sessions s"
	switch {
	case q.ClientRef != "":
		f.add("s.client_ref <> ''")
		f.add("s.client_ref = ?", q.ClientRef)
	case q.Tenant != nil && len(labels) > 0:
		from = "labels l JOIN sessions s ON s.id = l.session_id"
		created, id = "l.created_at", "l.session_id"
		f.add("l.tenant = ? AND l.key = ? AND l.value = ?", tenant.Prefix(*q.Tenant), labels[0], q.Labels[labels[0]])
		labels = labels[1:]
	}
	if q.Tenant != nil {
		f.add("s.tenant = ?", tenant.Prefix(*q.Tenant))
	}
	for _, key := range labels {
		f.add("EXISTS (SELECT 1 FROM labels WHERE session_id = s.id AND key = ? AND value = ?)", key, q.Labels[key])
	}
	f.times(created, q.CreatedFrom, q.CreatedBefore)
	f.times("h.updated_at", q.UpdatedFrom, q.UpdatedBefore)
	if q.Archived != nil {
		f.add("s.archived = ?", *q.Archived)
	}
	if len(q.LastStatuses) > 0 {
		f.add("h.last_status = ANY(?::text[])", q.LastStatuses)
	}
	if q.After != nil {
		f.add("("+created+", "+id+") < (?, ?)", q.After.CreatedAt.UnixMicro(), q.After.ID)
	}
	text = "SELECT " + infoColumns + " FROM " + from + " JOIN heads h ON h.id = s.id" + f.where() +
		" ORDER BY " + created + " DESC, " + id + " DESC LIMIT " + f.arg(q.Limit)
	return text, f.args
}

// filter collects the conditions of a query. A question mark in one of them is the place of an argument.
type filter struct {
	conditions []string
	args       []any
}

func (f *filter) add(condition string, args ...any) {
	for _, arg := range args {
		condition = strings.Replace(condition, "?", f.arg(arg), 1)
	}
	f.conditions = append(f.conditions, condition)
}

// arg adds an argument and returns its name.
func (f *filter) arg(arg any) string {
	f.args = append(f.args, arg)
	return fmt.Sprintf("$%d", len(f.args))
}

// times adds the bounds of a column; a zero time is no bound.
func (f *filter) times(column string, from, before time.Time) {
	if !from.IsZero() {
		f.add(column+" >= ?", from.UnixMicro())
	}
	if !before.IsZero() {
		f.add(column+" < ?", before.UnixMicro())
	}
}

func (f *filter) where() string {
	if len(f.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(f.conditions, " AND ")
}
