package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session/record"
)

// lossy is a store that answers each write as script says, one step a try, and
// says so in tries. What is not in the script cannot be called.
type lossy struct {
	Store
	script []error
	tries  int
	now    Info
}

func (s *lossy) next() error {
	err := s.script[s.tries]
	s.tries++
	return err
}

func (s *lossy) Create(context.Context, NewSession, *Key) error            { return s.next() }
func (s *lossy) Fork(context.Context, Fork) error                          { return s.next() }
func (s *lossy) Delete(context.Context, string, int64) error               { return s.next() }
func (s *lossy) Index(context.Context, Batch, int64) error                 { return s.next() }
func (s *lossy) Info(context.Context, string) (Info, error)                { return s.now, s.next() }
func (s *lossy) Row(context.Context, RowKind, string, string) (Row, error) { return Row{}, s.next() }
func (s *lossy) Key(context.Context, string, string) (Key, error)          { return Key{}, s.next() }
func (s *lossy) Update(context.Context, string, Change) (Info, error) {
	return Info{Version: 7}, s.next()
}

// TestTriesOfIndex says what comes of writes beside the log that are tried again:
// that a try before has done it is success, that another has is not.
func TestTriesOfIndex(t *testing.T) {
	lost := errors.New("connection reset by the database")
	change := Change{Version: 1, Labels: map[string]string{"k": "v", "none": ""}, ClientRef: new("ref"), Archived: new(true), Budget: &record.Budget{Tokens: 5}}
	made := Info{Version: 2, Labels: map[string]string{"k": "v"}, ClientRef: "ref", Archived: true, Budget: record.Budget{Tokens: 5}}
	with := func(f func(*Info)) Info {
		out := made
		f(&out)
		return out
	}
	update := func(c Change) func(context.Context, *patient) error {
		return func(ctx context.Context, p *patient) error {
			info, err := p.Update(ctx, "a", c)
			if err == nil && info.Version == 0 {
				err = errors.New("no session is returned")
			}
			return err
		}
	}
	create := func(ctx context.Context, p *patient) error { return p.Create(ctx, NewSession{ID: "a"}, nil) }
	fork := func(ctx context.Context, p *patient) error { return p.Fork(ctx, Fork{}) }
	remove := func(ctx context.Context, p *patient) error { return p.Delete(ctx, "a", 1) }
	for name, c := range map[string]struct {
		call   func(context.Context, *patient) error
		script []error
		now    Info
		want   error
	}{
		"create, done by a try before":        {create, []error{lost, lost, ErrSessionExists}, Info{}, nil},
		"create, done by another":             {create, []error{ErrSessionExists}, Info{}, ErrSessionExists},
		"create, not done":                    {create, []error{lost, nil}, Info{}, nil},
		"create, under a taken key":           {create, []error{lost, ErrKeyTaken}, Info{}, ErrKeyTaken},
		"fork, done by a try before":          {fork, []error{lost, ErrSessionExists}, Info{}, nil},
		"fork, done by another":               {fork, []error{ErrSessionExists}, Info{}, ErrSessionExists},
		"fork of none":                        {fork, []error{lost, ErrNoSession}, Info{}, ErrNoSession},
		"delete, done by a try before":        {remove, []error{lost, ErrNoSession}, Info{}, nil},
		"delete, done by another":             {remove, []error{ErrNoSession}, Info{}, ErrNoSession},
		"delete of what has moved on":         {remove, []error{lost, ErrConflict}, Info{}, ErrConflict},
		"update of any version":               {update(Change{}), []error{lost, nil}, Info{}, nil},
		"update, done by a try before":        {update(change), []error{lost, ErrConflict, nil}, made, nil},
		"update, done and looked for twice":   {update(change), []error{lost, ErrConflict, lost, ErrConflict, nil}, made, nil},
		"update, at once in conflict":         {update(change), []error{ErrConflict}, made, ErrConflict},
		"update by another":                   {update(change), []error{lost, ErrConflict, nil}, with(func(i *Info) { i.ClientRef = "other" }), ErrConflict},
		"update of a label by another":        {update(change), []error{lost, ErrConflict, nil}, with(func(i *Info) { i.Labels = nil }), ErrConflict},
		"update of the rest by another":       {update(change), []error{lost, ErrConflict, nil}, with(func(i *Info) { i.Archived = false }), ErrConflict},
		"update of the budget by another":     {update(change), []error{lost, ErrConflict, nil}, with(func(i *Info) { i.Budget.Tokens = 6 }), ErrConflict},
		"update, and another one since":       {update(change), []error{lost, ErrConflict, nil}, with(func(i *Info) { i.Version = 3 }), ErrConflict},
		"update of what is deleted meanwhile": {update(change), []error{lost, ErrConflict, ErrNoSession}, Info{}, ErrNoSession},
		"index":                               {func(ctx context.Context, p *patient) error { return p.Index(ctx, Batch{}, 1) }, []error{lost, nil}, Info{}, nil},
		"a row that there is not": {func(ctx context.Context, p *patient) error {
			_, err := p.Row(ctx, RowTurn, "a", "t")
			return err
		}, []error{lost, ErrNotFound}, Info{}, ErrNotFound},
		"a key that there is not": {func(ctx context.Context, p *patient) error {
			_, err := p.Key(ctx, "s", "k")
			return err
		}, []error{lost, ErrNotFound}, Info{}, ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &lossy{now: c.now}
				for _, err := range c.script {
					if err != nil {
						err = fmt.Errorf("store: %w", err)
					}
					store.script = append(store.script, err)
				}
				cfg := Config{Store: store, Logger: slog.New(slog.DiscardHandler)}
				cfg.Limits.StorePatience = time.Minute
				p := newPatient(cfg, func(err error) { t.Errorf("fatal: %v", err) })
				defer p.abort()
				if err := c.call(t.Context(), p); !errors.Is(err, c.want) || c.want == nil && err != nil {
					t.Errorf("error is %v, want %v", err, c.want)
				}
				if store.tries != len(c.script) {
					t.Errorf("%d tries, want %d", store.tries, len(c.script))
				}
			})
		})
	}
}
