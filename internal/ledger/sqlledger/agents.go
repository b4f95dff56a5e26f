package sqlledger

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/apzuk3/agentd/internal/ledger"
)

const agentColumns = `a.tenant, a.name, v.version, v.hash, v.content, v.maker, v.created_at, a.created_at, a.archived_at`

const agentTables = ` FROM agents a JOIN agent_versions v ON v.tenant = a.tenant AND v.name = a.name `

// AddAgent implements ledger.Ledger.
func (s *store) AddAgent(
	ctx context.Context, a ledger.Agent, read int64, names, versions int,
) (out ledger.Agent, made bool, err error) {
	err = s.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		made = false
		now, err := agent(ctx, c, a.Tenant, a.Name, 0, "")
		isNew := errors.Is(err, ledger.ErrNoAgent)
		switch {
		case err != nil && !isNew:
			return err
		case !now.Archived.IsZero():
			return ledger.ErrAgentArchived
		case read != ledger.AnyVersion && read != now.Version:
			return &ledger.ChangedError{Version: now.Version}
		case !isNew && now.Hash == a.Hash:
			out = now
			return nil
		case now.Version >= int64(versions):
			return ledger.ErrTooMany
		}
		a.Version, a.First, a.Archived = now.Version+1, now.First, time.Time{}
		if isNew {
			a.First = a.Created
			err = addName(ctx, c, &a, names)
		} else {
			_, err = c.ExecContext(ctx, `UPDATE agents SET version = $1 WHERE tenant = $2 AND name = $3`,
				a.Version, a.Tenant, a.Name)
		}
		if err != nil {
			return err
		}
		out, made = a, true
		_, err = c.ExecContext(ctx, `INSERT INTO agent_versions (tenant, name, version, hash, content, maker, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			a.Tenant, a.Name, a.Version, a.Hash, a.Content, a.Maker, nanos(a.Created))
		return err
	})
	return out, made, within(err, "add agent %q", a.Name)
}

// addName adds an agent without a version.
func addName(ctx context.Context, c *sql.Conn, a *ledger.Agent, most int) error {
	var n int
	err := c.QueryRowContext(ctx, `SELECT count(*) FROM agents WHERE tenant = $1`, a.Tenant).Scan(&n)
	if err == nil && n >= most {
		err = ledger.ErrTooMany
	}
	if err != nil {
		return err
	}
	_, err = c.ExecContext(ctx, `INSERT INTO agents (tenant, name, version, created_at, archived_at)
		VALUES ($1, $2, $3, $4, 0)`, a.Tenant, a.Name, a.Version, nanos(a.First))
	return err
}

// Agent implements ledger.Ledger.
func (s *store) Agent(
	ctx context.Context, tenant, name string, version int64, prefix string,
) (a ledger.Agent, err error) {
	err = s.db.View(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		a, err = agent(ctx, c, tenant, name, version, prefix)
		return err
	})
	return a, within(err, "read agent %q", name)
}

func agent(
	ctx context.Context, c *sql.Conn, tenant, name string, version int64, prefix string,
) (ledger.Agent, error) {
	a, err := scanAgent(c.QueryRowContext(ctx, `SELECT `+agentColumns+agentTables+`
		WHERE a.tenant = $1 AND a.name = $2 AND ($3 = 0 OR v.version = $3) AND substr(v.hash, 1, $4) = $5
		ORDER BY v.version DESC LIMIT 1`, tenant, name, version, len(prefix), prefix))
	if errors.Is(err, sql.ErrNoRows) {
		return ledger.Agent{}, ledger.ErrNoAgent
	}
	return a, err
}

// Agents implements ledger.Ledger.
func (s *store) Agents(ctx context.Context, q ledger.AgentQuery) (all []ledger.Agent, err error) {
	where := `WHERE a.tenant = $1 AND v.version = a.version AND ($2 = 1 OR a.archived_at = 0)
		AND ($3 = 0 OR a.created_at < $4 OR a.created_at = $4 AND a.name < $5)
		ORDER BY a.created_at DESC, a.name DESC LIMIT $6`
	archived, paged, after := 0, 0, ledger.Agent{}
	if q.Archived {
		archived = 1
	}
	if q.After != nil {
		paged, after = 1, *q.After
	}
	args := []any{q.Tenant, archived, paged, nanos(after.First), after.Name, q.Limit}
	if q.Name != "" {
		where = `WHERE a.tenant = $1 AND a.name = $2 AND ($3 = 0 OR v.version < $4) ORDER BY v.version DESC LIMIT $5`
		args = []any{q.Tenant, q.Name, paged, after.Version, q.Limit}
	}
	err = s.db.View(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		all = nil
		rows, err := c.QueryContext(ctx, `SELECT `+agentColumns+agentTables+where, args...)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			a, err := scanAgent(rows)
			if err != nil {
				return err
			}
			all = append(all, a)
		}
		return rows.Err()
	})
	return all, within(err, "list agents")
}

func scanAgent(row interface{ Scan(...any) error }) (a ledger.Agent, err error) {
	var created, first, archived int64
	err = row.Scan(&a.Tenant, &a.Name, &a.Version, &a.Hash, &a.Content, &a.Maker, &created, &first, &archived)
	a.Created, a.First, a.Archived = timeOf(created), timeOf(first), timeOf(archived)
	return a, err
}

// ArchiveAgent implements ledger.Ledger.
func (s *store) ArchiveAgent(ctx context.Context, tenant, name string, at time.Time) (a ledger.Agent, err error) {
	err = s.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		_, err = c.ExecContext(ctx, `UPDATE agents SET archived_at = $1
			WHERE tenant = $2 AND name = $3 AND archived_at = 0`, nanos(at), tenant, name)
		if err != nil {
			return err
		}
		a, err = agent(ctx, c, tenant, name, 0, "")
		return err
	})
	return a, within(err, "archive agent %q", name)
}

// RemoveAgent implements ledger.Ledger.
func (s *store) RemoveAgent(ctx context.Context, tenant, name string) error {
	err := s.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, `DELETE FROM agent_versions WHERE tenant = $1 AND name = $2`, tenant, name)
		if err != nil {
			return err
		}
		result, err := c.ExecContext(ctx, `DELETE FROM agents WHERE tenant = $1 AND name = $2`, tenant, name)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, ledger.ErrNoAgent)
		}
		return nil
	})
	return within(err, "remove agent %q", name)
}

// RemoveAgentsOf implements ledger.Ledger.
func (s *store) RemoveAgentsOf(ctx context.Context, tenant, user string) (removed int, err error) {
	if user != "" {
		_, err = s.count(ctx, `UPDATE agent_versions SET maker = '' WHERE tenant = $1 AND maker = $2`, tenant, user)
		return 0, within(err, "forget who made agents")
	}
	err = s.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, `DELETE FROM agent_versions WHERE tenant = $1`, tenant)
		if err != nil {
			return err
		}
		result, err := c.ExecContext(ctx, `DELETE FROM agents WHERE tenant = $1`, tenant)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		removed = int(n)
		return err
	})
	return removed, within(err, "remove agents")
}
