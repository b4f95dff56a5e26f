package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/internal/rules"
)

// infoColumns are the columns of store.Info; the query calls the session s.
const infoColumns = `s.id, s.created_at, s.last_seq, s.open_turn, s.updated_at, s.purged, s.attempts, s.waits, s.epoch,
	s.creator, (SELECT json_group_array(json_array(key, value)) FROM labels WHERE session_id = s.id),
	s.client_ref, s.metadata, s.agent, s.archived, s.budget, s.drop_payloads, s.version,
	s.usage, s.last_turn, s.last_status, s.forked_from, s.forked_at, s.inherited`

const infoQuery = `SELECT ` + infoColumns + ` FROM sessions s WHERE s.id = ?`

// unindexedQuery repeats the condition of the partial index, so that SQLite uses that index.
const unindexedQuery = `SELECT ` + headColumns + ` FROM sessions WHERE indexed = 0 AND id > ? ORDER BY id` + atMost

// Create creates a session with an empty log, and the key if it is not nil; see store.Store.
func (s *Store) Create(ctx context.Context, n store.NewSession, key *store.Key) error {
	err := rules.CheckNew(&n)
	if err == nil {
		err = rules.CheckKey(n.ID, key)
	}
	if err == nil {
		n, key := rules.OwnNew(&n), rules.OwnKey(key)
		err = s.write(ctx, 0, func(tx *tx) (error, error) { return tx.create(n, key) })
	}
	if err != nil {
		return fmt.Errorf("sqlite: create session %q: %w", n.ID, err)
	}
	return nil
}

// Info returns the info of a session, or store.ErrNoSession. The caller owns the result.
func (s *Store) Info(ctx context.Context, id string) (store.Info, error) {
	info, err := view(ctx, s, func(ctx context.Context, r *reads) (store.Info, error) {
		return one(ctx, r.getInfo, scanInfo, store.ErrNoSession, id)
	})
	if err != nil {
		return store.Info{}, fmt.Errorf("sqlite: info of session %q: %w", id, err)
	}
	return info, nil
}

// Sessions returns at most q.Limit sessions, the newest first; see store.Store. The caller owns the result.
// One condition selects the index that is read: the client's reference if it is set, else the first label,
// else the time of creation. The other conditions filter the sessions that this index returns, so each
// session that they drop costs a look.
func (s *Store) Sessions(ctx context.Context, q store.InfoQuery) ([]store.Info, error) {
	if err := rules.CheckLimit(q.Limit); err != nil {
		return nil, fmt.Errorf("sqlite: sessions: %w", err)
	}
	text, args := sessionsQuery(&q)
	infos, err := view(ctx, s, func(ctx context.Context, r *reads) ([]store.Info, error) {
		return list(ctx, r, scanInfo, text, args)
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: sessions: %w", err)
	}
	return infos, nil
}

// Update changes a session and returns its info after the change; see store.Store.
func (s *Store) Update(ctx context.Context, id string, c store.Change) (store.Info, error) {
	var info store.Info
	err := rules.CheckLabels(c.Labels)
	if err == nil {
		rules.OwnChange(&c)
		err = s.write(ctx, 0, func(tx *tx) (refusal, fault error) {
			info, refusal, fault = tx.update(id, &c)
			return refusal, fault
		})
	}
	if err != nil { // info may still be written to
		return store.Info{}, fmt.Errorf("sqlite: update session %q: %w", id, err)
	}
	return info, nil
}

// Delete removes a session whose log ends at lastSeq; see store.Store. The package doc says when the bytes
// are gone from the files.
func (s *Store) Delete(ctx context.Context, id string, lastSeq int64) error {
	err := s.write(ctx, 0, func(tx *tx) (error, error) { return tx.delete(id, lastSeq) })
	if err != nil {
		return fmt.Errorf("sqlite: delete session %q: %w", id, err)
	}
	return nil
}

// Fork creates a session with a copy of another session's log; see store.Store. Other writes wait while it
// copies.
func (s *Store) Fork(ctx context.Context, f store.Fork) error {
	err := rules.CheckFork(&f)
	if err == nil {
		f.Into, f.Key, f.Rows = *rules.OwnNew(&f.Into), rules.OwnKey(f.Key), slices.Clone(f.Rows)
		n := rules.Size(&store.Batch{Rows: f.Rows})
		err = s.write(ctx, n, func(tx *tx) (error, error) { return tx.fork(&f) })
	}
	if err != nil {
		return fmt.Errorf("sqlite: fork session %q at %d into %q: %w", f.From, f.Seq, f.Into.ID, err)
	}
	return nil
}

// filter collects the conditions of a query.
type filter struct {
	conditions []string
	args       []any
}

func (f *filter) add(condition string, args ...any) {
	f.conditions, f.args = append(f.conditions, condition), append(f.args, args...)
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

// sessionsQuery names the index that has the sessions in the order of the result.
func sessionsQuery(q *store.InfoQuery) (text string, args []any) {
	var f filter
	created, id := "s.created_at", "s.id"
	labels := slices.Sorted(maps.Keys(q.Labels))
	var from string
	switch {
	case q.Tenant == nil: // of all tenants: no index has the order
		from = "sessions s"
		if q.ClientRef != "" {
			f.add("s.client_ref = ?", q.ClientRef)
		}
	case q.ClientRef != "":
		from = "sessions s INDEXED BY sessions_by_ref"
		f.add("s.tenant = ?", tenant.Prefix(*q.Tenant))
		f.add("s.client_ref <> '' AND s.client_ref = ?", q.ClientRef)
	case len(labels) > 0:
		from = "labels l INDEXED BY labels_by_value CROSS JOIN sessions s ON s.id = l.session_id"
		created, id = "l.created_at", "l.session_id"
		f.add("l.tenant = ? AND l.key = ? AND l.value = ?", tenant.Prefix(*q.Tenant), labels[0], q.Labels[labels[0]])
		labels = labels[1:]
	default:
		from = "sessions s INDEXED BY sessions_by_creation"
		f.add("s.tenant = ?", tenant.Prefix(*q.Tenant))
	}
	for _, key := range labels {
		f.add("EXISTS (SELECT 1 FROM labels WHERE session_id = s.id AND key = ? AND value = ?)", key, q.Labels[key])
	}
	f.times(created, q.CreatedFrom, q.CreatedBefore)
	f.times("s.updated_at", q.UpdatedFrom, q.UpdatedBefore)
	if q.Archived != nil {
		f.add("s.archived = ?", *q.Archived)
	}
	if len(q.LastStatuses) > 0 {
		f.add("s.last_status IN (?"+strings.Repeat(", ?", len(q.LastStatuses)-1)+")", anys(q.LastStatuses)...)
	}
	if q.After != nil {
		f.add("("+created+", "+id+") < (?, ?)", q.After.CreatedAt.UnixMicro(), q.After.ID)
	}
	text = "SELECT " + infoColumns + " FROM " + from + f.where() +
		" ORDER BY " + created + " DESC, " + id + " DESC" + atMost
	return text, append(f.args, q.Limit)
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// one returns the only row, or the error none if there is none.
func one[T any](
	ctx context.Context, stmt *sql.Stmt, scan func(*sql.Rows) (T, error), none error, args ...any,
) (T, error) {
	all, err := query(ctx, stmt, scan, args...)
	if err == nil && len(all) == 0 {
		err = none
	}
	if err != nil {
		var zero T
		return zero, err
	}
	return all[0], nil
}

// list runs a query that is not prepared.
func list[T any](ctx context.Context, r *reads, scan func(*sql.Rows) (T, error), text string, args []any) ([]T, error) {
	rows, err := r.db.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	return collect(rows, scan)
}

func scanInfo(rows *sql.Rows) (i store.Info, err error) {
	var created, updated int64
	var labels, budget, usage []byte
	err = rows.Scan(&i.ID, &created, &i.LastSeq, &i.OpenTurn, &updated, &i.Purged, &i.Attempts, &i.Waits, &i.Epoch,
		&i.Creator, &labels, &i.ClientRef, &i.Metadata, &i.Agent, &i.Archived, &budget, &i.DropToolPayloads,
		&i.Version, &usage, &i.LastTurn, &i.LastStatus, &i.ForkedFrom, &i.ForkedAt, &i.Inherited)
	if err != nil {
		return i, err
	}
	i.CreatedAt, i.UpdatedAt = time.UnixMicro(created).UTC(), time.UnixMicro(updated).UTC()
	if err := json.Unmarshal(usage, &i.Usage); err != nil {
		return i, fmt.Errorf("usage of session %q: %w", i.ID, err)
	}
	if err := json.Unmarshal(budget, &i.Budget); err != nil {
		return i, fmt.Errorf("budget of session %q: %w", i.ID, err)
	}
	var pairs [][2]string
	if err := json.Unmarshal(labels, &pairs); err != nil {
		return i, fmt.Errorf("labels of session %q: %w", i.ID, err)
	}
	if len(pairs) > 0 {
		i.Labels = make(map[string]string, len(pairs))
	}
	for _, p := range pairs {
		i.Labels[p[0]] = p[1]
	}
	return i, nil
}
