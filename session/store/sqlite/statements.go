package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// preparer is a *sql.DB or a *sql.Conn.
type preparer interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// queryer is a preparer that also runs what is not prepared.
type queryer interface {
	preparer
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// statements are prepared statements. Those of a *sql.Conn have to be closed before it, or SQLite keeps the
// connection and its files open.
type statements []*sql.Stmt

// prepare prepares each query into the place that is its key. What it has prepared before an error is to be
// closed as well.
func (s *statements) prepare(ctx context.Context, p preparer, queries map[**sql.Stmt]string) error {
	for dst, query := range queries {
		stmt, err := p.PrepareContext(ctx, query) //nolint:sqlclosecheck // close closes all of them
		if err != nil {
			return fmt.Errorf("prepare %q: %w", query, err)
		}
		*dst = stmt
		*s = append(*s, stmt)
	}
	return nil
}

func (s statements) close() error {
	errs := make([]error, len(s))
	for i, stmt := range s {
		errs[i] = stmt.Close()
	}
	return errors.Join(errs...)
}
