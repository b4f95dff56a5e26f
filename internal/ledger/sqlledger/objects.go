package sqlledger

import (
	"context"
	"database/sql"
	"errors"

	"github.com/apzuk3/agentd/internal/ledger"
)

const objectColumns = `tenant, face, kind, id, version, data, maker`

// PutObject implements ledger.Ledger.
func (s *store) PutObject(ctx context.Context, o ledger.Object, most int) (version int64, err error) {
	err = s.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		now, err := object(ctx, c, &o)
		isNew := errors.Is(err, ledger.ErrNoObject)
		switch {
		case err != nil && !isNew:
			return err
		case now.Version != o.Version:
			return &ledger.ChangedError{Version: now.Version}
		}
		version = now.Version + 1
		if !isNew {
			_, err = c.ExecContext(ctx, `UPDATE objects SET version = $1, data = $2
				WHERE tenant = $3 AND face = $4 AND kind = $5 AND id = $6`,
				version, o.Data, o.Tenant, o.Face, o.Kind, o.ID)
			return err
		}
		var n int
		err = c.QueryRowContext(ctx, `SELECT count(*) FROM objects WHERE tenant = $1 AND face = $2`,
			o.Tenant, o.Face).Scan(&n)
		if err == nil && n >= most {
			err = ledger.ErrTooMany
		}
		if err != nil {
			return err
		}
		_, err = c.ExecContext(ctx, `INSERT INTO objects (`+objectColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			o.Tenant, o.Face, o.Kind, o.ID, version, o.Data, o.Maker)
		return err
	})
	return version, within(err, "set object %q", o.ID)
}

// Object implements ledger.Ledger.
func (s *store) Object(ctx context.Context, o ledger.Object) (out ledger.Object, err error) {
	err = s.db.View(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		out, err = object(ctx, c, &o)
		return err
	})
	return out, within(err, "read object %q", o.ID)
}

func object(ctx context.Context, c *sql.Conn, o *ledger.Object) (ledger.Object, error) {
	out, err := scanObject(c.QueryRowContext(ctx, `SELECT `+objectColumns+` FROM objects
		WHERE tenant = $1 AND face = $2 AND kind = $3 AND id = $4`, o.Tenant, o.Face, o.Kind, o.ID))
	if errors.Is(err, sql.ErrNoRows) {
		return ledger.Object{}, ledger.ErrNoObject
	}
	return out, err
}

func scanObject(row interface{ Scan(...any) error }) (o ledger.Object, err error) {
	err = row.Scan(&o.Tenant, &o.Face, &o.Kind, &o.ID, &o.Version, &o.Data, &o.Maker)
	return o, err
}

// Objects implements ledger.Ledger.
func (s *store) Objects(ctx context.Context, o ledger.Object, limit int) ([]ledger.Object, error) {
	return s.objects(ctx, `WHERE tenant = $1 AND face = $2 AND kind = $3 AND id > $4 ORDER BY id LIMIT $5`,
		o.Tenant, o.Face, o.Kind, o.ID, limit)
}

// ObjectsOf implements ledger.Ledger.
func (s *store) ObjectsOf(ctx context.Context, user string, o ledger.Object, limit int) ([]ledger.Object, error) {
	return s.objects(ctx, `WHERE tenant = $1 AND ($2 = '' OR maker = $2) AND (face, kind, id) > ($3, $4, $5)
		ORDER BY face, kind, id LIMIT $6`, o.Tenant, user, o.Face, o.Kind, o.ID, limit)
}

func (s *store) objects(ctx context.Context, where string, args ...any) (all []ledger.Object, err error) {
	err = s.db.View(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		all = nil
		rows, err := c.QueryContext(ctx, `SELECT `+objectColumns+` FROM objects `+where, args...)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			next, err := scanObject(rows)
			if err != nil {
				return err
			}
			all = append(all, next)
		}
		return rows.Err()
	})
	return all, within(err, "list objects")
}

// RemoveObject implements ledger.Ledger.
func (s *store) RemoveObject(ctx context.Context, o ledger.Object) error {
	n, err := s.count(ctx, `DELETE FROM objects WHERE tenant = $1 AND face = $2 AND kind = $3 AND id = $4`,
		o.Tenant, o.Face, o.Kind, o.ID)
	if err == nil && n == 0 {
		err = ledger.ErrNoObject
	}
	return within(err, "remove object %q", o.ID)
}

// RemoveObjectsOf implements ledger.Ledger.
func (s *store) RemoveObjectsOf(ctx context.Context, tenant, user string) (int, error) {
	n, err := s.count(ctx, `DELETE FROM objects WHERE tenant = $1 AND ($2 = '' OR maker = $2)`, tenant, user)
	return n, within(err, "remove objects")
}
