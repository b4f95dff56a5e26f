package session

import (
	"context"
	"errors"
)

// once makes a write that cannot be made twice: done is the error of a repeat of
// what has happened, and no error if there was a try before.
func (p *patient) once(ctx context.Context, done error, call func(context.Context) error) error {
	tried := false
	_, err := again(ctx, p, takeWrites, func(ctx context.Context) (struct{}, error) {
		err := call(ctx)
		if tried && errors.Is(err, done) {
			err = nil
		}
		tried = true
		return struct{}{}, err
	})
	return err
}

// Fork makes a session whose id nobody else can have taken.
func (p *patient) Fork(ctx context.Context, f Fork) error {
	return p.once(ctx, ErrSessionExists, func(ctx context.Context) error { return p.raw.Fork(ctx, f) })
}

func (p *patient) Delete(ctx context.Context, id string, lastSeq int64) error {
	return p.once(ctx, ErrNoSession, func(ctx context.Context) error { return p.raw.Delete(ctx, id, lastSeq) })
}

// Update without a version may rise the version by more than one. With one, a
// conflict with what a try before has made is success.
func (p *patient) Update(ctx context.Context, id string, c Change) (Info, error) {
	tried := false
	return again(ctx, p, takeWrites, func(ctx context.Context) (Info, error) {
		info, err := p.raw.Update(ctx, id, c)
		if tried && c.Version != 0 && errors.Is(err, ErrConflict) {
			now, lookErr := p.raw.Info(ctx, id)
			if lookErr != nil {
				return Info{}, lookErr
			}
			if now.Version == c.Version+1 && c.madeIn(&now) {
				return now, nil
			}
		}
		tried = true
		return info, err
	})
}

// madeIn tells whether a session is as c would have it.
func (c *Change) madeIn(i *Info) bool {
	for key, value := range c.Labels {
		if i.Labels[key] != value {
			return false
		}
	}
	return (c.ClientRef == nil || *c.ClientRef == i.ClientRef) && (c.Archived == nil || *c.Archived == i.Archived) &&
		(c.Budget == nil || *c.Budget == i.Budget)
}

// Index may be repeated.
func (p *patient) Index(ctx context.Context, b Batch, lastSeq int64) error {
	_, err := again(ctx, p, takeWrites, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.raw.Index(ctx, b, lastSeq)
	})
	return err
}

func (p *patient) Info(ctx context.Context, id string) (Info, error) {
	return again(ctx, p, beRead, func(ctx context.Context) (Info, error) { return p.raw.Info(ctx, id) })
}

func (p *patient) Sessions(ctx context.Context, q InfoQuery) ([]Info, error) {
	return again(ctx, p, beRead, func(ctx context.Context) ([]Info, error) { return p.raw.Sessions(ctx, q) })
}

func (p *patient) Row(ctx context.Context, kind RowKind, sessionID, id string) (Row, error) {
	return again(ctx, p, beRead, func(ctx context.Context) (Row, error) { return p.raw.Row(ctx, kind, sessionID, id) })
}

func (p *patient) Rows(ctx context.Context, q RowQuery) ([]Row, error) {
	return again(ctx, p, beRead, func(ctx context.Context) ([]Row, error) { return p.raw.Rows(ctx, q) })
}

func (p *patient) Key(ctx context.Context, scope, name string) (Key, error) {
	return again(ctx, p, beRead, func(ctx context.Context) (Key, error) { return p.raw.Key(ctx, scope, name) })
}

func (p *patient) Unindexed(ctx context.Context, after string, limit int) ([]Head, error) {
	return again(ctx, p, beRead, func(ctx context.Context) ([]Head, error) { return p.raw.Unindexed(ctx, after, limit) })
}
