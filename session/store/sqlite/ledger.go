package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
)

// What follows is for what a server keeps in the same database beside its sessions; see package ledger.

// Transact calls f with the connection that writes, in a transaction that is committed when f returns nil. f
// may use the connection until it returns, and must neither begin nor end transactions.
func (s *Store) Transact(ctx context.Context, f func(context.Context, *sql.Conn) error) error {
	if s.beside != nil {
		return s.beside.update(ctx, f)
	}
	return s.writeWith(ctx, func() (refusal, fault error) { return s.writer.savepoint(f) })
}

// Erase is Transact for an f that removes what must not be found in the files of the database either, soon after: see
// tidy and scrub.
func (s *Store) Erase(ctx context.Context, f func(context.Context, *sql.Conn) error) error {
	if s.beside != nil {
		return s.beside.update(ctx, f)
	}
	return s.writeWith(ctx, func() (refusal, fault error) {
		s.writer.tx.removed = true
		return s.writer.savepoint(f)
	})
}

// writeWith runs f on the writer goroutine. It does not return while f runs: f may write to variables of the caller,
// who reads them afterwards, also when ctx has ended.
func (s *Store) writeWith(ctx context.Context, f func() (refusal, fault error)) error {
	var running sync.Mutex // held while f runs; protects over
	over := false          // nobody waits for f
	err := s.write(ctx, 0, func(*tx) (refusal, fault error) {
		running.Lock()
		defer running.Unlock()
		if over {
			return context.Cause(ctx), nil
		}
		return f()
	})
	running.Lock()
	defer running.Unlock()
	over = true
	return err
}

// savepoint calls f within the transaction of the writer, and undoes what f has written if f fails.
func (w *writer) savepoint(f func(context.Context, *sql.Conn) error) (refusal, fault error) {
	if err := w.exec("SAVEPOINT ledger"); err != nil {
		return nil, err
	}
	refusal = f(context.Background(), w.conn) // nothing may interrupt the writer
	if refusal != nil {
		if err := w.exec("ROLLBACK TO ledger"); err != nil { // SQLite has undone the whole transaction
			return nil, refusal
		}
	}
	return refusal, w.exec("RELEASE ledger")
}

// View calls f with a connection that reads, which f may use until it returns.
func (s *Store) View(ctx context.Context, f func(context.Context, *sql.Conn) error) error {
	switch {
	case s.beside != nil:
		return f(ctx, s.beside.conn)
	case s.only != nil:
		return f(ctx, s.only.current().conn)
	case s.readers == nil:
		return s.writeWith(ctx, func() (refusal, fault error) { return f(context.Background(), s.writer.conn), nil })
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return errClosed
	}
	conn, err := s.readers.Conn(ctx)
	if err != nil {
		return err
	}
	return errors.Join(f(ctx, conn), conn.Close())
}

// beside is a database that a server may have open, for Transact and View alone.
type beside struct{ *reading }

// openBeside opens a database that exists and has the schema of this build.
func openBeside(ctx context.Context, path string, o *options) (_ *Store, err error) {
	if path, err = existing(path); err != nil {
		return nil, err
	}
	if _, err := onNetwork(filepath.Dir(path), o); err != nil {
		return nil, err
	}
	r, err := connect(ctx, dsn(path, pragmas(append([]string{"secure_delete(ON)"}, durable...)...)))
	s := &Store{beside: &beside{r}}
	if err == nil {
		err = r.current(ctx, o)
	}
	if err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

// current fails if a database does not have the schema of this build.
func (r *reading) current(ctx context.Context, o *options) error {
	have, err := r.schema(ctx)
	if err != nil {
		return err
	}
	want, err := newest(o.migrations)
	switch {
	case err != nil:
		return err
	case have > want:
		return newerSchema(have, want)
	case have < want:
		return fmt.Errorf("the schema of the database is of version %d, this build needs %d: "+
			"an older agentd has it open; start this version first", have, want)
	}
	return nil
}

// update is Store.Transact.
func (b *beside) update(ctx context.Context, f func(context.Context, *sql.Conn) error) (err error) {
	if _, err := b.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	end := "COMMIT"
	if err = f(ctx, b.conn); err != nil {
		end = "ROLLBACK"
	}
	_, failed := b.conn.ExecContext(context.WithoutCancel(ctx), end)
	return errors.Join(err, failed)
}
