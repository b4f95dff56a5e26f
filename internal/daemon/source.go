package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/internal/ledger/sqlledger"
	"github.com/apzuk3/agentd/internal/sealed"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/postgres"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// database is what Check, Export and Replay read: the store of a folder, or one of PostgreSQL. One goroutine uses it.
type database interface {
	store.Store
	sqlledger.DB
	sqlledger.Eraser
	Snapshot(ctx context.Context, f func(context.Context) error) error
	Integrity(ctx context.Context) ([]string, error)
	Orphans(ctx context.Context, report func(table, sessionID string, rows int64)) error
	IDs(ctx context.Context, after string, limit int) ([]string, error)
	Extent(ctx context.Context, id string) (first, last, records int64, err error)
	Keys(ctx context.Context, sessionID string, after store.Key, limit int) ([]store.Key, error)
}

var (
	_ database = (*sqlite.Store)(nil)
	_ database = (*postgres.Store)(nil)
)

// openDatabase opens the database of a config for reading, also beside daemons that have it open.
func openDatabase(ctx context.Context, c *Config) (database, error) {
	if c.StoreURL != "" {
		return postgres.Open(ctx, string(c.StoreURL), postgres.Config{ReadOnly: true})
	}
	return open(ctx, filepath.Join(c.DataDir, databaseFile))
}

// open opens the database of a file for reading.
func open(ctx context.Context, path string) (*sqlite.Store, error) {
	db, err := sqlite.Open(ctx, path, sqlite.Config{ReadOnly: true})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no database %s", path)
	}
	return db, err
}

// source is a database that is read, with the values that sessions have written, and what a server keeps beside them.
type source struct {
	database
	values store.Store
	beside ledger.Ledger
	ring   *sealed.Ring // nil if nothing is sealed
}

// openSource opens the database of a config for reading, with the keys that it is encrypted with.
func openSource(ctx context.Context, c *Config) (*source, error) {
	db, err := openDatabase(ctx, c)
	if err != nil {
		return nil, err
	}
	s, err := newSource(ctx, db, c.Encryption)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", c.place(), err), db.Close())
	}
	return s, nil
}

func newSource(ctx context.Context, db database, keys Encryption) (*source, error) {
	ring, err := sealed.OpenReadOnly(ctx, db, keys)
	if err != nil || ring == nil {
		return &source{db, db, sqlledger.New(db), nil}, err
	}
	return &source{db, sealed.New(db, ring), sealed.NewLedger(sqlledger.New(db), ring), ring}, nil
}

// Beside has report receive what is damaged of what a server keeps beside its sessions.
func (s *source) Beside(ctx context.Context, report func(error) error) error {
	if s.ring == nil {
		return nil
	}
	_, err := sqlledger.Recode(ctx, s.database, sealed.Opens{Ring: s.ring, Fail: report})
	return err
}

// Info, Sessions, Read, Row, Rows, Shared and Key open what is sealed.
func (s *source) Info(ctx context.Context, id string) (store.Info, error) {
	return s.values.Info(ctx, id)
}

func (s *source) Sessions(ctx context.Context, q store.InfoQuery) ([]store.Info, error) {
	return s.values.Sessions(ctx, q)
}

func (s *source) Read(ctx context.Context, id string, after int64, limit int) ([]record.Record, error) {
	return s.values.Read(ctx, id, after, limit)
}

func (s *source) Row(ctx context.Context, kind store.RowKind, sessionID, id string) (store.Row, error) {
	return s.values.Row(ctx, kind, sessionID, id)
}

func (s *source) Rows(ctx context.Context, q store.RowQuery) ([]store.Row, error) {
	return s.values.Rows(ctx, q)
}

func (s *source) Shared(ctx context.Context, scope string) (map[string]json.RawMessage, error) {
	return s.values.Shared(ctx, scope)
}

func (s *source) Key(ctx context.Context, scope, name string) (store.Key, error) {
	return s.values.Key(ctx, scope, name)
}
