package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/apzuk3/agentd/session/store"
)

// What follows is for checks of a database: what it holds that no session needs to ask for.

// integrityMost is how many problems SQLite reports of one database.
const integrityMost = 100

// IDs returns the ids of at most limit sessions above after, in their order, also of those whose other
// columns cannot be read.
func (s *Store) IDs(ctx context.Context, after string, limit int) ([]string, error) {
	ids, err := inspect(ctx, s, scanText, `SELECT id FROM sessions WHERE id > ? ORDER BY id`+atMost, after, limit)
	if err != nil {
		return nil, fmt.Errorf("sqlite: sessions after %q: %w", after, err)
	}
	return ids, nil
}

// Extent returns the first and the last record that a session has, and how many; 0 for none.
func (s *Store) Extent(ctx context.Context, id string) (first, last, records int64, err error) {
	extents, err := inspect(ctx, s, func(rows *sql.Rows) (e [3]int64, err error) {
		err = rows.Scan(&e[0], &e[1], &e[2])
		return e, err
	}, `SELECT coalesce(min(seq), 0), coalesce(max(seq), 0), count(*) FROM records WHERE session_id = ?`, id)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("sqlite: records of session %q: %w", id, err)
	}
	return extents[0][0], extents[0][1], extents[0][2], nil
}

// Keys returns at most limit keys of a session whose (scope, name) is above that of after, in that order.
func (s *Store) Keys(ctx context.Context, sessionID string, after store.Key, limit int) ([]store.Key, error) {
	keys, err := inspect(ctx, s, scanKey, `SELECT scope, name, content, session_id, id
		FROM keys INDEXED BY keys_of_session
		WHERE session_id = ? AND (scope, name) > (?, ?) ORDER BY scope, name`+atMost,
		sessionID, after.Scope, after.Name, limit)
	if err != nil {
		return nil, fmt.Errorf("sqlite: keys of session %q: %w", sessionID, err)
	}
	return keys, nil
}

// Orphans calls report for each session that does not exist and that a table has rows of.
func (s *Store) Orphans(ctx context.Context, report func(table, sessionID string, rows int64)) error {
	type orphan struct {
		session string
		rows    int64
	}
	for _, table := range []string{"records", "entries", "labels", "keys"} {
		orphans, err := inspect(ctx, s, func(rows *sql.Rows) (o orphan, err error) {
			err = rows.Scan(&o.session, &o.rows)
			return o, err
		}, `SELECT session_id, count(*) FROM `+table+` WHERE session_id NOT IN (SELECT id FROM sessions)
			GROUP BY session_id ORDER BY session_id LIMIT 1000`)
		if err != nil {
			return fmt.Errorf("sqlite: rows without a session: %w", err)
		}
		for _, o := range orphans {
			report(table, o.session, o.rows)
		}
	}
	return nil
}

// Integrity returns what SQLite finds wrong with the file, at most 100 problems of each kind, and what its
// schema has besides the tables and indexes of this program, or lacks, or else which tenants' sessions are not
// counted right. It reads the whole file.
func (s *Store) Integrity(ctx context.Context) ([]string, error) {
	problems, err := inspect(ctx, s, scanText, fmt.Sprintf(`PRAGMA integrity_check(%d)`, integrityMost))
	if damagedError(err) { // so much that SQLite cannot look
		return []string{err.Error()}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: check the file: %w", err)
	}
	if len(problems) == 1 && problems[0] == "ok" {
		problems = nil
	}
	differ, err := s.schemaDiffers(ctx)
	if err != nil {
		return nil, fmt.Errorf("sqlite: compare the schema: %w", err)
	}
	if problems = append(problems, differ...); len(problems) > 0 {
		return problems, nil
	}
	if problems, err = inspect(ctx, s, scanText, miscountedQuery, integrityMost); err != nil {
		return nil, fmt.Errorf("sqlite: count the sessions of tenants: %w", err)
	}
	return problems, nil
}

// damagedError reports whether an error says that the file is damaged.
func damagedError(err error) bool { return errors.Is(err, store.ErrDamaged) }

// newSchema returns what schemaOf returns of a new database. Nobody changes it.
var newSchema = sync.OnceValues(func() (map[string]string, error) {
	fresh, err := Open(context.Background(), Memory, Config{})
	if err != nil {
		return nil, err
	}
	schema, err := fresh.schemaOf(context.Background())
	return schema, errors.Join(err, fresh.Close())
})

// schemaDiffers compares the schema with that of a new database.
func (s *Store) schemaDiffers(ctx context.Context) ([]string, error) {
	want, err := newSchema()
	if err != nil {
		return nil, err
	}
	have, err := s.schemaOf(ctx)
	if err != nil {
		return nil, err
	}
	var differ []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		switch text, ok := have[name]; {
		case !ok:
			differ = append(differ, "the schema lacks "+name)
		case text != want[name]:
			differ = append(differ, fmt.Sprintf("the schema has %s as %q, want %q", name, text, want[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[name]; !ok {
			differ = append(differ, "the schema has "+name+", which this program does not know")
		}
	}
	return differ, nil
}

// schemaOf returns the texts of tables and indexes by what they are and their names. sqlite_stat tables are
// SQLite's own.
func (s *Store) schemaOf(ctx context.Context) (map[string]string, error) {
	objects, err := inspect(ctx, s, func(rows *sql.Rows) (o [2]string, err error) {
		err = rows.Scan(&o[0], &o[1])
		return o, err
	}, `SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_schema
		WHERE name NOT LIKE 'sqlite^_stat%' ESCAPE '^'`)
	if err != nil {
		return nil, err
	}
	schema := make(map[string]string, len(objects))
	for _, o := range objects {
		schema[o[0]] = plainStatement(o[1])
	}
	return schema, nil
}

func scanText(rows *sql.Rows) (text string, err error) {
	err = rows.Scan(&text)
	return text, err
}

// inspect runs a query that is not prepared.
func inspect[T any](
	ctx context.Context, s *Store, scan func(*sql.Rows) (T, error), text string, args ...any,
) ([]T, error) {
	return view(ctx, s, func(ctx context.Context, r *reads) ([]T, error) { return list(ctx, r, scan, text, args) })
}
