// Package sqlledger is a part of agentd, not an API: it keeps a ledger in the tables of an SQL database. Its statements
// are those that SQLite and PostgreSQL have in common.
//
// It knows neither which database that is, nor who asks.
package sqlledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/apzuk3/agentd/internal/ledger"
)

// DB is a database with the tables of a ledger.
type DB interface {
	// Transact calls f with a connection in a transaction, which it commits unless f fails.
	Transact(ctx context.Context, f func(context.Context, *sql.Conn) error) error
	// View calls f with a connection that reads.
	View(ctx context.Context, f func(context.Context, *sql.Conn) error) error
}

// New returns the ledger in a database.
func New(db DB) ledger.Ledger { return &store{db} }

type store struct{ db DB }

// scope is what a principal with a token may do, in the form of the database.
type scope struct {
	Session string   `json:"session"`
	Tools   []string `json:"tools,omitempty"`
	Agents  bool     `json:"agents,omitempty"`
}

const columns = `id, sum, kind, tenant, principal, role, scope, note, maker, via, created_at, expires_at, revoked_at`

// CreateKey implements ledger.Ledger.
func (s *store) CreateKey(ctx context.Context, k ledger.APIKey) error {
	narrow := ""
	if p := k.Principal; p.Session != "" {
		text, err := json.Marshal(scope{Session: p.Session, Tools: p.Tools, Agents: p.Agents})
		if err != nil {
			return fmt.Errorf("ledger: scope of API key %q: %w", k.ID, err)
		}
		narrow = string(text)
	}
	err := s.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		var known int
		err := c.QueryRowContext(ctx, `SELECT count(*) FROM api_keys WHERE id = $1`, k.ID).Scan(&known)
		if err == nil && known > 0 {
			err = ledger.ErrKeyExists
		}
		if err != nil {
			return err
		}
		_, err = c.ExecContext(ctx, `INSERT INTO api_keys (`+columns+`)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
			k.ID, k.Sum[:], string(k.Kind), k.Principal.Tenant, k.Principal.ID, k.Principal.Role.String(), narrow,
			k.Note, k.Maker, k.Via, nanos(k.Created), nanos(k.Principal.Expires), nanos(k.Revoked))
		return err
	})
	return within(err, "create API key %q", k.ID)
}

// Key implements ledger.Ledger.
func (s *store) Key(ctx context.Context, id string) (ledger.APIKey, error) {
	var k ledger.APIKey
	err := s.db.View(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		k, err = key(ctx, c, id)
		return err
	})
	return k, within(err, "read API key %q", id)
}

func key(ctx context.Context, c *sql.Conn, id string) (ledger.APIKey, error) {
	k, err := scanKey(c.QueryRowContext(ctx, `SELECT `+columns+` FROM api_keys WHERE id = $1`, id))
	if errors.Is(err, sql.ErrNoRows) {
		return ledger.APIKey{}, ledger.ErrNoKey
	}
	return k, err
}

// Keys implements ledger.Ledger.
func (s *store) Keys(ctx context.Context, q ledger.KeyQuery) (keys []ledger.APIKey, err error) {
	all := 0
	if q.AllTenants {
		all = 1
	}
	err = s.db.View(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		rows, err := c.QueryContext(ctx, `SELECT `+columns+` FROM api_keys
			WHERE id > $1 AND ($2 = '' OR kind = $2) AND ($3 = 1 OR tenant = $4) ORDER BY id LIMIT $5`,
			q.After, string(q.Kind), all, q.Tenant, q.Limit)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			k, err := scanKey(rows)
			if err != nil {
				return err
			}
			keys = append(keys, k)
		}
		return rows.Err()
	})
	return keys, within(err, "list API keys")
}

// RevokeKey implements ledger.Ledger.
func (s *store) RevokeKey(ctx context.Context, id string, at time.Time) (ledger.APIKey, error) {
	var k ledger.APIKey
	err := s.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		_, err = c.ExecContext(ctx, `UPDATE api_keys SET revoked_at = $1 WHERE id = $2 AND revoked_at = 0`,
			nanos(at), id)
		if err != nil {
			return err
		}
		k, err = key(ctx, c, id)
		return err
	})
	return k, within(err, "revoke API key %q", id)
}

// HasKeys implements ledger.Ledger.
func (s *store) HasKeys(ctx context.Context) (has bool, err error) {
	err = s.db.View(ctx, func(ctx context.Context, c *sql.Conn) error {
		var n int
		err := c.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM api_keys WHERE kind = $1 LIMIT 1) AS k`,
			string(ledger.Key)).Scan(&n)
		has = n > 0
		return err
	})
	return has, within(err, "look for API keys")
}

// RemoveTokens implements ledger.Ledger.
func (s *store) RemoveTokens(ctx context.Context, before time.Time, limit int) (removed int, err error) {
	err = s.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		result, err := c.ExecContext(ctx, `DELETE FROM api_keys WHERE id IN (SELECT id FROM api_keys
			WHERE kind = $1 AND expires_at <> 0 AND expires_at < $2 ORDER BY id LIMIT $3)`,
			string(ledger.Token), nanos(before), limit)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		removed = int(n)
		return err
	})
	return removed, within(err, "remove tokens")
}

// scanKey reads the columns of a row.
func scanKey(row interface{ Scan(...any) error }) (k ledger.APIKey, err error) {
	var sum []byte
	var kind, role, narrow string
	var created, expires, revoked int64
	p := &k.Principal
	err = row.Scan(&k.ID, &sum, &kind, &p.Tenant, &p.ID, &role, &narrow, &k.Note, &k.Maker, &k.Via,
		&created, &expires, &revoked)
	if err != nil {
		return k, err
	}
	k.Kind, k.Created, k.Revoked, p.Expires = ledger.Kind(kind), timeOf(created), timeOf(revoked), timeOf(expires)
	if copy(k.Sum[:], sum) != len(k.Sum) || len(sum) != len(k.Sum) {
		return k, fmt.Errorf("the sum of API key %q has %d bytes, want %d", k.ID, len(sum), len(k.Sum))
	}
	if err = p.Role.UnmarshalText([]byte(role)); err != nil {
		return k, fmt.Errorf("API key %q: %w", k.ID, err)
	}
	if narrow == "" {
		return k, nil
	}
	var sc scope
	if err := json.Unmarshal([]byte(narrow), &sc); err != nil {
		return k, fmt.Errorf("the scope of API key %q: %w", k.ID, err)
	}
	p.Session, p.Tools, p.Agents = sc.Session, sc.Tools, sc.Agents
	return k, nil
}

// nanos is a time as the database has it: in nanoseconds since 1970, 0 for none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeOf(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// within says what has failed.
func within(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("ledger: "+format+": %w", append(args, err)...)
}
