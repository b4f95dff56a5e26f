// Package payloads is a part of agentd, not an API: it keeps what tools are given and return for the time of their turn
// alone, in sessions that say so.
//
// A turn needs its payloads until it is over: it may be resumed. They leave its log in the append that ends it, so that
// no crash comes between: either the turn is open and whole, or it is over and without them. What is rewritten is the
// engine's to say; calls keep their ids, names, outcomes and places, so that positions and cursors stay what they were,
// and the index follows from the log as before.
package payloads

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

const (
	// page is how many records of a turn are read at once.
	page = 256
	// maxKnown is of how many sessions it is known whether they keep payloads.
	maxKnown = 4096
)

// Engine is the engine, which knows the form of its events.
type Engine interface {
	// WithoutPayloads returns the records of a turn that have payloads, without them. It ranges over recs more than
	// once.
	WithoutPayloads(recs iter.Seq2[record.Record, error]) ([]record.Record, error)
	// Decode returns the fact of an event.
	Decode(data []byte) (*record.Event, error)
	// Forget drops what is in memory of a session.
	Forget(tenant, sessionID string)
}

// Store is a store whose logs lose their payloads. Its methods may be called from any goroutine.
type Store struct {
	store.Store
	engine Engine
	all    func() bool
	known  *lru.Cache[string, bool]
}

// New returns the store; all reports whether no session keeps payloads.
func New(s store.Store, engine Engine, all func() bool) *Store {
	known, err := lru.New[string, bool](maxKnown)
	if err != nil {
		panic(err) // the size is a constant
	}
	return &Store{Store: s, engine: engine, all: all, known: known}
}

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, b store.Batch) error {
	dropped, err := s.drop(ctx, &b)
	if err != nil {
		return err
	}
	err = s.Store.Append(ctx, b)
	if err == nil {
		s.appended(&b, dropped)
	}
	return err
}

// appended notes what follows from an append.
func (s *Store) appended(b *store.Batch, dropped bool) {
	if b.Create != nil {
		s.known.Add(b.SessionID, b.Create.DropToolPayloads)
	}
	if dropped {
		s.engine.Forget(b.Names())
	}
}

// AppendMany implements store.Store.
func (s *Store) AppendMany(ctx context.Context, batches []store.Batch) []error {
	errs, dropped := make([]error, len(batches)), make([]bool, len(batches))
	var good []store.Batch
	var at []int
	for i := range batches {
		b := batches[i]
		if dropped[i], errs[i] = s.drop(ctx, &b); errs[i] == nil {
			good, at = append(good, b), append(at, i)
		}
	}
	for j, err := range s.Store.AppendMany(ctx, good) {
		if errs[at[j]] = err; err == nil {
			s.appended(&good[j], dropped[at[j]])
		}
	}
	return errs
}

// Delete implements store.Store. The session's id may be that of another one later, which keeps its payloads or not.
func (s *Store) Delete(ctx context.Context, id string, lastSeq int64) error {
	err := s.Store.Delete(ctx, id, lastSeq)
	s.known.Remove(id)
	return err
}

// drop has a batch that ends a turn take its payloads out of the log, and reports whether there are any.
func (s *Store) drop(ctx context.Context, b *store.Batch) (dropped bool, err error) {
	turn := ""
	for i := range b.Records {
		if b.Records[i].Kind == record.KindTurnEnded {
			turn = b.Records[i].TurnID
		}
	}
	if turn == "" {
		return false, nil
	}
	drops, err := s.drops(ctx, b)
	if err != nil || !drops {
		return false, err
	}
	from := int64(0)
	row, err := s.Row(ctx, store.RowTurn, b.SessionID, turn)
	switch {
	case err == nil:
		from = row.Seq - 1
	case !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrNoSession):
		return false, err
	}
	changed, err := s.engine.WithoutPayloads(s.records(ctx, b, turn, from))
	if err != nil {
		return false, fmt.Errorf("payloads of turn %q: %w", turn, err)
	}
	if len(changed) == 0 {
		return false, nil
	}
	now := map[int64]record.Record{}
	for _, rec := range changed {
		if now[rec.Seq] = rec; rec.Seq <= b.After {
			b.Rewrites = append(b.Rewrites, rec)
		}
	}
	own := make([]record.Record, len(b.Records))
	for i, rec := range b.Records {
		if without, ok := now[rec.Seq]; ok {
			rec = without
		}
		own[i] = rec
	}
	b.Records = own
	return true, s.index(ctx, b, turn, from, now)
}

// drops reports whether the payloads of a session are dropped.
func (s *Store) drops(ctx context.Context, b *store.Batch) (bool, error) {
	if s.all() {
		return true, nil
	}
	if b.Create != nil {
		return b.Create.DropToolPayloads, nil
	}
	if drops, ok := s.known.Get(b.SessionID); ok {
		return drops, nil
	}
	info, err := s.Info(ctx, b.SessionID)
	if errors.Is(err, store.ErrNoSession) {
		return false, nil // the append is refused
	}
	if err == nil {
		s.known.Add(b.SessionID, info.DropToolPayloads)
	}
	return info.DropToolPayloads, err
}

// records are those of a turn, after a record of the log, with those of the batch.
func (s *Store) records(ctx context.Context, b *store.Batch, turn string, from int64) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		for after := from; after < b.After; {
			recs, err := s.Read(ctx, b.SessionID, after, page)
			if err != nil {
				yield(record.Record{}, err)
				return
			}
			for _, rec := range recs {
				if after = rec.Seq; rec.Seq > b.After {
					break // a repeat, whose records the log has
				}
				if rec.TurnID == turn && !yield(rec, nil) {
					return
				}
			}
			if len(recs) == 0 {
				break
			}
		}
		for _, rec := range b.Records {
			if rec.TurnID == turn && !yield(rec, nil) {
				return
			}
		}
	}
}

// index has the rows of what people were asked follow from the records as they are now.
func (s *Store) index(ctx context.Context, b *store.Batch, turn string, from int64, now map[int64]record.Record) error {
	recs := func(yield func(record.Record, error) bool) {
		for rec, err := range s.records(ctx, b, turn, from) {
			if without, ok := now[rec.Seq]; ok && err == nil {
				rec = without
			}
			if !yield(rec, err) {
				return
			}
		}
	}
	decode := func(rec record.Record) (any, error) { return rec.Decode(s.engine.Decode) }
	var x index.Index
	rows, err := x.Read(recs, decode, b.After+int64(len(b.Records)), b.SessionID)
	if err != nil {
		return fmt.Errorf("payloads of turn %q: %w", turn, err)
	}
	for _, row := range rows {
		if row.Kind == store.RowInteraction {
			b.Rows = append(slices.Clip(b.Rows), row)
		}
	}
	return nil
}
