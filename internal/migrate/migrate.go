package migrate

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/apzuk3/agentd/session/store/postgres"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// Config says what is copied where. From and To are required.
type Config struct {
	// From is the file of the source.
	From string
	// NetworkFiles takes a source on a network file system, where nothing keeps servers of other machines out of it.
	NetworkFiles bool
	// To is the URL of the target, see postgres.Open.
	To string
	// Progress, if not nil, is called by Run with what it does, and how many rows of how many are done with.
	Progress func(what string, done, total int64)
}

// Result says what the target has.
type Result struct {
	Sessions int64 `json:"sessions"`
	Records  int64 `json:"records"`
	// Rows counts the rows of all tables.
	Rows int64 `json:"rows"`
	// SHA256 is that of all that was compared, in hexadecimal; "" if Earlier is set.
	SHA256 string `json:"sha256,omitempty"`
	// Earlier is when an earlier run has finished; zero if this one has.
	Earlier time.Time `json:"earlier,omitzero"`
}

// aloneWait is how long Run waits for a target that a process has open: PostgreSQL may not have noticed yet that an
// earlier run was killed.
const aloneWait = 5 * time.Second

// run is one run.
type run struct {
	cfg    Config
	src    *sqlite.Store
	dst    *postgres.Store
	source string // the sum over the source
	at     place
	result Result
	all    hash.Hash // of all that is compared
}

// Run copies a store, or goes on with a copy that an earlier run has begun, and compares it with the source. If an
// earlier run has finished, it changes nothing. It refuses a source that a process has open or that has the schema of
// another version, and a target that a server uses or that has anything. ctx ends it at any place.
func Run(ctx context.Context, cfg Config) (_ Result, err error) {
	if cfg.Progress == nil {
		cfg.Progress = func(string, int64, int64) {}
	}
	r := &run{cfg: cfg, all: sha256.New()}
	r.src, err = sqlite.Open(ctx, cfg.From, sqlite.Config{
		ReadOnly: true, Alone: true, NetworkFiles: cfg.NetworkFiles,
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Result{}, fmt.Errorf("there is no database in %s", filepath.Dir(cfg.From))
	case err != nil:
		return Result{}, fmt.Errorf("the source: %w", err)
	}
	defer func() { err = errors.Join(err, r.src.Close()) }()
	if r.source, err = r.sum(ctx); err != nil {
		return Result{}, fmt.Errorf("the source: %w", err)
	}
	if over, err := r.finished(ctx); err != nil || !over.IsZero() {
		r.result.Earlier = over
		return r.result, err
	}
	r.dst, err = postgres.Open(ctx, cfg.To, postgres.Config{Alone: true, AloneWait: aloneWait, Migration: true})
	switch {
	case errors.Is(err, postgres.ErrInUse):
		return Result{}, errors.New("a server, or another migration, has the target open: stop it, or choose another")
	case err != nil:
		return Result{}, fmt.Errorf("the target: %w", err)
	}
	defer func() { err = errors.Join(err, r.dst.Close()) }()
	for _, part := range []func(context.Context) error{r.begin, r.copy, r.compare, r.finish} {
		if err := part(ctx); err != nil {
			return Result{}, err
		}
	}
	r.result.SHA256 = hex.EncodeToString(r.all.Sum(nil))
	return r.result, nil
}

// errOther is why Run leaves a target alone that was filled from another source.
var errOther = errors.New("the target was filled from another source, or from this one before it changed: " +
	"drop that database, make an empty one, and begin anew")

// finished returns when an earlier run has finished the target, zero if none has.
func (r *run) finished(ctx context.Context) (over time.Time, err error) {
	pool, err := pgxpool.ParseConfig(r.cfg.To)
	if err != nil {
		return over, fmt.Errorf("the target: %w", err)
	}
	conn, err := pgx.ConnectConfig(ctx, pool.ConnConfig)
	if err != nil {
		return over, fmt.Errorf("the target: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	var made bool
	err = conn.QueryRow(ctx, `SELECT to_regclass('agentd_migration') IS NOT NULL`).Scan(&made)
	if err != nil || !made {
		return over, err
	}
	var at *time.Time
	var source string
	err = conn.QueryRow(ctx, `SELECT finished_at, source FROM agentd_migration`).Scan(&at, &source)
	if err != nil || at == nil {
		return over, err
	}
	if source != r.source {
		return over, errOther
	}
	return *at, r.count(ctx)
}

// count counts what the source has.
func (r *run) count(ctx context.Context) error {
	return r.src.View(ctx, func(ctx context.Context, c *sql.Conn) error {
		for i := range tables {
			n := int64(0)
			if err := c.QueryRowContext(ctx, "SELECT count(*) FROM "+tables[i].from).Scan(&n); err != nil {
				return err
			}
			r.counted(&tables[i], n)
		}
		return nil
	})
}

// counted adds the rows of a table to the result.
func (r *run) counted(t *table, rows int64) {
	switch t.to {
	case "heads":
		return // which are rows of sessions
	case "sessions":
		r.result.Sessions = rows
	case "records":
		r.result.Records = rows
	}
	r.result.Rows += rows
}

// sum is a sum over the source that changes with it: the ends of all logs, how often each session was changed, and how
// many rows the other tables have.
func (r *run) sum(ctx context.Context) (string, error) {
	sum := sha256.New()
	err := r.src.View(ctx, func(ctx context.Context, c *sql.Conn) error {
		var unindexed int64
		err := c.QueryRowContext(ctx, `SELECT count(*) FROM sessions WHERE indexed = 0`).Scan(&unindexed)
		if err == nil && unindexed > 0 {
			err = fmt.Errorf("%d sessions have no index yet, which an old agentd has written: "+
				"start agentd serve on it, and stop it when it is ready", unindexed)
		}
		if err != nil {
			return err
		}
		queries := []string{
			`SELECT id, last_seq, updated_at, version, purged, attempts, waits, archived FROM sessions ORDER BY id`,
			`SELECT name, seq FROM sqlite_sequence WHERE name <> 'goose_db_version' ORDER BY name`,
		}
		for i := range tables {
			if t := &tables[i]; t.from != "sessions" && t.from != "records" && t.from != "entries" {
				queries = append(queries, "SELECT '"+t.from+"', count(*) FROM "+t.from)
			}
		}
		for _, text := range queries {
			err := rowsOf(ctx, c, text, nil, func(values []any) error {
				sum.Write(canonical(values))
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}

// begin makes the table of the migration, or finds the place where an earlier run was ended.
func (r *run) begin(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, r.dst.Pool(), func(tx pgx.Tx) error {
		var made bool
		err := tx.QueryRow(ctx, `SELECT to_regclass('agentd_migration') IS NOT NULL`).Scan(&made)
		if err != nil || made {
			return err
		}
		for i := range tables {
			var has bool
			err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM `+tables[i].to+`)`).Scan(&has)
			if err == nil && has {
				err = fmt.Errorf("the target is not empty: there are rows in %s; want a database of its own",
					tables[i].to)
			}
			if err != nil {
				return err
			}
		}
		if _, err = tx.Exec(ctx, `CREATE TABLE agentd_migration (
			id integer PRIMARY KEY CHECK (id = 1), source text NOT NULL, step integer NOT NULL, place text NOT NULL,
			began_at timestamptz NOT NULL DEFAULT now(), finished_at timestamptz)`); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO agentd_migration (id, source, step, place) VALUES (1, $1, 0, '')`, r.source)
		return err
	})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	var source string
	// The lock waits for what a run that was killed is about to commit.
	err = pgx.BeginFunc(ctx, r.dst.Pool(), func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `SELECT source, step, place FROM agentd_migration FOR UPDATE`).
			Scan(&source, &r.at.step, &r.at.key)
	})
	switch {
	case err != nil:
		return fmt.Errorf("begin: %w", err)
	case source != r.source:
		return errOther
	}
	return nil
}

// finish has the database count on where SQLite did, makes sessions due that have an open turn, and opens the target.
func (r *run) finish(ctx context.Context) error {
	if now, err := r.sum(ctx); err != nil || now != r.source {
		return errors.Join(err, errors.New("the source has changed during the copy (agentd keys?): "+
			"drop the target, make an empty one, and begin anew"))
	}
	last := map[string]int64{}
	err := r.src.View(ctx, func(ctx context.Context, c *sql.Conn) error {
		return rowsOf(ctx, c, `SELECT name, seq FROM sqlite_sequence`, nil, func(values []any) error {
			last[values[0].(string)] = values[1].(int64)
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	err = pgx.BeginFunc(ctx, r.dst.Pool(), func(tx pgx.Tx) error {
		for i := range tables {
			t := &tables[i]
			if n := last[t.from]; t.numbers != "" && n > 0 {
				_, err := tx.Exec(ctx, `SELECT setval(pg_get_serial_sequence($1, $2), $3)`, t.to, t.numbers, n)
				if err != nil {
					return err
				}
			}
		}
		_, err := tx.Exec(ctx, `UPDATE heads SET due_at = now() WHERE open_turn <> ''`)
		if err == nil {
			_, err = tx.Exec(ctx, `UPDATE agentd_migration SET finished_at = now()`)
		}
		return err
	})
	if err == nil {
		_, err = r.dst.Pool().Exec(ctx, `ANALYZE`)
	}
	if err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	return nil
}
