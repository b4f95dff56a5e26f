package sqlite

import (
	"context"
	"fmt"
	"slices"

	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/internal/rules"
)

// Append writes the batch durably before it returns; see store.Store. It may wait for a place in the
// writer's queue. After an error that package store has no name for, and after store.ErrFailed, the batch
// may have been written.
func (s *Store) Append(ctx context.Context, b store.Batch) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, err := s.queueAppend(ctx, &b)
	if err == nil {
		err = named(o.wait())
	}
	return appendError(&b, err)
}

// AppendMany queues all batches before it waits for the first one, so that few transactions, and few
// fsyncs, write them; see store.Store.
func (s *Store) AppendMany(ctx context.Context, batches []store.Batch) []error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	batches = slices.Clone(batches)
	ops, errs := make([]*op, len(batches)), make([]error, len(batches))
	seen := make(map[string]bool, len(batches))
	for i := range batches {
		b := &batches[i]
		if seen[b.SessionID] {
			errs[i] = rules.Malformedf("an earlier batch is of the same session")
			continue
		}
		seen[b.SessionID] = true
		ops[i], errs[i] = s.queueAppend(ctx, b)
	}
	for i, o := range ops {
		if errs[i] == nil {
			errs[i] = named(o.wait())
		}
		errs[i] = appendError(&batches[i], errs[i])
	}
	return errs
}

// queueAppend checks and queues an append. It keeps b, and copies what b shares with the caller. The caller
// holds mu until it has the result or stops waiting.
func (s *Store) queueAppend(ctx context.Context, b *store.Batch) (*op, error) {
	if err := rules.CheckBatch(b); err != nil {
		return nil, err
	}
	usage, err := rules.UsageText(b.Usage)
	if err != nil {
		return nil, err
	}
	switch {
	case s.closed:
		return nil, errClosed
	case s.writer == nil:
		return nil, errReadOnly
	}
	rules.Own(b)
	o := newOp(ctx, b.SessionID, rules.Size(b), func(tx *tx) (refusal, fault error) { return tx.append(b, usage) })
	return o, named(s.writer.enqueue(o))
}

// appendError says which append has failed; err may be nil.
func appendError(b *store.Batch, err error) error {
	if err != nil {
		err = fmt.Errorf("sqlite: append to session %q after %d: %w", b.SessionID, b.After, err)
	}
	return err
}
