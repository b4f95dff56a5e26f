package retry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// lossy is a store that answers each write as script says, one step a try, and
// says so in tries. What is not in the script cannot be called.
type lossy struct {
	store.Store
	script []error
	tries  int
	now    store.Info
}

func (s *lossy) next() error {
	err := s.script[s.tries]
	s.tries++
	return err
}

func (s *lossy) Create(context.Context, store.NewSession, *store.Key) error { return s.next() }
func (s *lossy) Fork(context.Context, store.Fork) error                     { return s.next() }
func (s *lossy) Delete(context.Context, string, int64) error                { return s.next() }
func (s *lossy) Index(context.Context, store.Batch, int64) error            { return s.next() }
func (s *lossy) Info(context.Context, string) (store.Info, error)           { return s.now, s.next() }
func (s *lossy) Row(context.Context, store.RowKind, string, string) (store.Row, error) {
	return store.Row{}, s.next()
}
func (s *lossy) Key(context.Context, string, string) (store.Key, error) { return store.Key{}, s.next() }
func (s *lossy) Update(context.Context, string, store.Change) (store.Info, error) {
	return store.Info{Version: 7}, s.next()
}

// TestTriesOfIndex says what comes of writes beside the log that are tried again:
// that a try before has done it is success, that another has is not.
func TestTriesOfIndex(t *testing.T) {
	lost := errors.New("connection reset by the database")
	change := store.Change{Version: 1, Labels: map[string]string{"k": "v", "none": ""}, ClientRef: new("ref"), Archived: new(true), Budget: &record.Budget{Tokens: 5}}
	made := store.Info{Version: 2, Labels: map[string]string{"k": "v"}, ClientRef: "ref", Archived: true, Budget: record.Budget{Tokens: 5}}
	with := func(f func(*store.Info)) store.Info {
		out := made
		f(&out)
		return out
	}
	update := func(c store.Change) func(context.Context, *Store) error {
		return func(ctx context.Context, p *Store) error {
			info, err := p.Update(ctx, "a", c)
			if err == nil && info.Version == 0 {
				err = errors.New("no session is returned")
			}
			return err
		}
	}
	create := func(ctx context.Context, p *Store) error { return p.Create(ctx, store.NewSession{ID: "a"}, nil) }
	fork := func(ctx context.Context, p *Store) error { return p.Fork(ctx, store.Fork{}) }
	remove := func(ctx context.Context, p *Store) error { return p.Delete(ctx, "a", 1) }
	for name, c := range map[string]struct {
		call   func(context.Context, *Store) error
		script []error
		now    store.Info
		want   error
	}{
		"create, done by a try before":        {create, []error{lost, lost, store.ErrSessionExists}, store.Info{}, nil},
		"create, done by another":             {create, []error{store.ErrSessionExists}, store.Info{}, store.ErrSessionExists},
		"create, not done":                    {create, []error{lost, nil}, store.Info{}, nil},
		"create, under a taken key":           {create, []error{lost, store.ErrKeyTaken}, store.Info{}, store.ErrKeyTaken},
		"fork, done by a try before":          {fork, []error{lost, store.ErrSessionExists}, store.Info{}, nil},
		"fork, done by another":               {fork, []error{store.ErrSessionExists}, store.Info{}, store.ErrSessionExists},
		"fork of none":                        {fork, []error{lost, store.ErrNoSession}, store.Info{}, store.ErrNoSession},
		"delete, done by a try before":        {remove, []error{lost, store.ErrNoSession}, store.Info{}, nil},
		"delete, done by another":             {remove, []error{store.ErrNoSession}, store.Info{}, store.ErrNoSession},
		"delete of what has moved on":         {remove, []error{lost, store.ErrConflict}, store.Info{}, store.ErrConflict},
		"update of any version":               {update(store.Change{}), []error{lost, nil}, store.Info{}, nil},
		"update, done by a try before":        {update(change), []error{lost, store.ErrConflict, nil}, made, nil},
		"update, done and looked for twice":   {update(change), []error{lost, store.ErrConflict, lost, store.ErrConflict, nil}, made, nil},
		"update, at once in conflict":         {update(change), []error{store.ErrConflict}, made, store.ErrConflict},
		"update by another":                   {update(change), []error{lost, store.ErrConflict, nil}, with(func(i *store.Info) { i.ClientRef = "other" }), store.ErrConflict},
		"update of a label by another":        {update(change), []error{lost, store.ErrConflict, nil}, with(func(i *store.Info) { i.Labels = nil }), store.ErrConflict},
		"update of the rest by another":       {update(change), []error{lost, store.ErrConflict, nil}, with(func(i *store.Info) { i.Archived = false }), store.ErrConflict},
		"update of the budget by another":     {update(change), []error{lost, store.ErrConflict, nil}, with(func(i *store.Info) { i.Budget.Tokens = 6 }), store.ErrConflict},
		"update, and another one since":       {update(change), []error{lost, store.ErrConflict, nil}, with(func(i *store.Info) { i.Version = 3 }), store.ErrConflict},
		"update of what is deleted meanwhile": {update(change), []error{lost, store.ErrConflict, store.ErrNoSession}, store.Info{}, store.ErrNoSession},
		"index":                               {func(ctx context.Context, p *Store) error { return p.Index(ctx, store.Batch{}, 1) }, []error{lost, nil}, store.Info{}, nil},
		"a row that there is not": {func(ctx context.Context, p *Store) error {
			_, err := p.Row(ctx, store.RowTurn, "a", "t")
			return err
		}, []error{lost, store.ErrNotFound}, store.Info{}, store.ErrNotFound},
		"a key that there is not": {func(ctx context.Context, p *Store) error {
			_, err := p.Key(ctx, "s", "k")
			return err
		}, []error{lost, store.ErrNotFound}, store.Info{}, store.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &lossy{now: c.now}
				for _, err := range c.script {
					if err != nil {
						err = fmt.Errorf("store: %w", err)
					}
					db.script = append(db.script, err)
				}
				p := New(Config{
					Store: db, Patience: time.Minute, Logger: slog.New(slog.DiscardHandler),
					OnFatal: func(err error) { t.Errorf("fatal: %v", err) },
				})
				defer p.Abort()
				if err := c.call(t.Context(), p); !errors.Is(err, c.want) || c.want == nil && err != nil {
					t.Errorf("error is %v, want %v", err, c.want)
				}
				if db.tries != len(c.script) {
					t.Errorf("%d tries, want %d", db.tries, len(c.script))
				}
			})
		})
	}
}
