package sealed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Store is a store.Store that seals what it writes to another one.
type Store struct {
	store.Store
	ring *Ring
}

var _ store.Store = (*Store)(nil)

// New returns a store over another one, with the keys of a ring.
func New(inner store.Store, ring *Ring) *Store { return &Store{inner, ring} }

// writing is what seals the values of one write, until end.
type writing struct {
	*dataKey
	end func()
}

// write takes a key for n values.
func (r *Ring) write(ctx context.Context, n int) (writing, error) {
	r.using.RLock()
	key, err := r.take(ctx, int64(n))
	if err != nil {
		r.using.RUnlock()
		return writing{}, err
	}
	return writing{key, r.using.RUnlock}, nil
}

// Create implements store.Store.
func (s *Store) Create(ctx context.Context, n store.NewSession, key *store.Key) error {
	w, err := s.ring.write(ctx, 2)
	if err != nil {
		return err
	}
	defer w.end()
	return s.Store.Create(ctx, w.created(n), w.key(key))
}

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, b store.Batch) error {
	w, err := s.ring.write(ctx, values(&b))
	if err != nil {
		return err
	}
	defer w.end()
	sealed, err := w.batch(b)
	if err != nil {
		return err
	}
	return s.repeated(ctx, &b, &sealed, s.Store.Append(ctx, sealed))
}

// AppendMany implements store.Store.
func (s *Store) AppendMany(ctx context.Context, batches []store.Batch) []error {
	n := 0
	for i := range batches {
		n += values(&batches[i])
	}
	errs := make([]error, len(batches))
	w, err := s.ring.write(ctx, n)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer w.end()
	sealed, at := make([]store.Batch, 0, len(batches)), make([]int, 0, len(batches))
	for i := range batches {
		b, err := w.batch(batches[i])
		if errs[i] = err; err == nil {
			sealed, at = append(sealed, b), append(at, i)
		}
	}
	for j, err := range s.Store.AppendMany(ctx, sealed) {
		errs[at[j]] = s.repeated(ctx, &batches[at[j]], &sealed[j], err)
	}
	return errs
}

// values is how many values of a batch are sealed, at most.
func values(b *store.Batch) int {
	return len(b.Records) + len(b.Rewrites) + len(b.Rows) + len(b.Shared) + 2
}

// repeats is how often an append is compared with a log whose values are sealed anew meanwhile.
const repeats = 3

// repeated decides on an append that has failed with err. A repeat of an append that has happened does not have the
// bytes that are stored, since it was sealed again. If it says what is stored, the append is made once more with those
// bytes: whether it succeeds is the other store's to say.
func (s *Store) repeated(ctx context.Context, b, sealed *store.Batch, err error) error {
	for range repeats {
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrSessionExists) {
			return err
		}
		same, failed := s.takeStored(ctx, b, sealed)
		if failed != nil { // err may be wrong then
			return failed
		}
		if !same {
			return err
		}
		err = s.Store.Append(ctx, *sealed)
	}
	return err
}

// takeStored puts what is stored into a sealed batch, and reports whether it says the same as the batch.
func (s *Store) takeStored(ctx context.Context, b, sealed *store.Batch) (same bool, err error) {
	for i := 0; i < len(b.Records); {
		page, err := s.Store.Read(ctx, b.SessionID, b.After+int64(i), len(b.Records)-i)
		if err != nil || len(page) == 0 {
			return false, unlessDamaged(err)
		}
		for j := range page {
			stored, want := &page[j], &b.Records[i]
			if stored.Seq != want.Seq || stored.TurnID != want.TurnID || stored.Kind != want.Kind ||
				stored.Time.UnixMicro() != want.Time.UnixMicro() {
				return false, nil
			}
			data, err := s.ring.open(ctx, recordPlace(b.SessionID, stored), stored.Data)
			if err != nil || !bytes.Equal(data, want.Data) {
				return false, unlessDamaged(err)
			}
			sealed.Records[i].Data = stored.Data
			i++
		}
	}
	if b.Key == nil {
		return true, nil
	}
	stored, err := s.Store.Key(ctx, b.Key.Scope, b.Key.Name)
	if err != nil {
		if errors.Is(err, store.ErrNotFound) { // which the other store finds too
			err = nil
		}
		return true, unlessDamaged(err)
	}
	opened := stored
	if err = s.openKey(ctx, &opened); err == nil && opened == *b.Key {
		sealed.Key = &stored
	}
	return true, unlessDamaged(err)
}

// unlessDamaged returns an error that says nothing about what is stored. What is damaged is not what an append has.
func unlessDamaged(err error) error {
	if errors.Is(err, store.ErrDamaged) {
		return nil
	}
	return err
}

// Read implements store.Store.
func (s *Store) Read(ctx context.Context, id string, after int64, limit int) ([]record.Record, error) {
	var out []record.Record
	for size := 0; ; {
		asked := limit - len(out)
		page, err := s.Store.Read(ctx, id, after, asked)
		if err != nil {
			return nil, err
		}
		last := store.LastPage(page, asked)
		if len(out) > 0 && (len(page) == 0 || page[0].Seq != after+1) {
			head, err := s.Store.Head(ctx, id)
			if err != nil {
				return nil, err
			}
			if head.Purged >= after { // what was read is gone
				out, size = nil, 0
			}
		}
		for i := range page {
			r := &page[i]
			if r.Data, err = s.ring.open(ctx, recordPlace(id, r), r.Data); err != nil {
				return nil, fmt.Errorf("record %d of session %q: %w", r.Seq, id, err)
			}
			after, size = r.Seq, size+len(r.Data)
		}
		// A sealed value is larger, so the other store ends a page that this one may not end yet.
		if out = append(out, page...); last || len(out) >= limit || size >= store.ReadBytes {
			return out, nil
		}
	}
}

// Shared implements store.Store.
func (s *Store) Shared(ctx context.Context, scope string) (map[string]json.RawMessage, error) {
	values, err := s.Store.Shared(ctx, scope)
	if err != nil {
		return nil, err
	}
	for key, value := range values {
		sealed, ok := fromJSON(value)
		if !ok {
			continue
		}
		if values[key], err = s.ring.open(ctx, sharedPlace(scope, key), sealed); err != nil {
			return nil, fmt.Errorf("shared value %q of %q: %w", key, scope, err)
		}
	}
	return values, nil
}

// SetShared implements store.Store.
func (s *Store) SetShared(ctx context.Context, values []store.SharedValue) error {
	w, err := s.ring.write(ctx, len(values))
	if err != nil {
		return err
	}
	defer w.end()
	sealed, err := w.shared(values)
	if err != nil {
		return err
	}
	return s.Store.SetShared(ctx, sealed)
}

// Fork implements store.Store.
func (s *Store) Fork(ctx context.Context, f store.Fork) error {
	head, err := s.Head(ctx, f.From)
	if err != nil && !errors.Is(err, store.ErrNoSession) {
		return err
	}
	w, err := s.ring.write(ctx, int(max(0, min(f.Seq, head.LastSeq)))+len(f.Rows)+2)
	if err != nil {
		return err
	}
	defer w.end()
	f.Rows, f.Key, f.Into = w.rows(f.Rows), w.key(f.Key), w.created(f.Into)
	recode := f.Recode
	f.Recode = func(r *record.Record) (err error) {
		r.Data, err = s.ring.openKnown(recordPlace(f.From, r), r.Data)
		if err == nil && recode != nil {
			err = recode(r)
		}
		if err == nil {
			r.Data = w.seal(recordPlace(f.Into.ID, r), r.Data)
		}
		return err
	}
	return s.Store.Fork(ctx, f)
}

// Row implements store.Store.
func (s *Store) Row(ctx context.Context, kind store.RowKind, sessionID, id string) (store.Row, error) {
	row, err := s.Store.Row(ctx, kind, sessionID, id)
	if err == nil {
		err = s.openRow(ctx, &row)
	}
	if err != nil {
		return store.Row{}, err
	}
	return row, nil
}

// Rows implements store.Store.
func (s *Store) Rows(ctx context.Context, q store.RowQuery) ([]store.Row, error) {
	var out []store.Row
	for size, limit := 0, q.Limit; ; {
		q.Limit = limit - len(out)
		page, err := s.Store.Rows(ctx, q)
		if err != nil {
			return nil, err
		}
		last := q.IsLast(page)
		for i := range page {
			if err := s.openRow(ctx, &page[i]); err != nil {
				return nil, err
			}
			size += len(page[i].Data)
		}
		// As in Read.
		if out = append(out, page...); last || len(out) >= limit || size >= store.ReadBytes {
			return out, nil
		}
		q.After = &out[len(out)-1]
	}
}

// Key implements store.Store.
func (s *Store) Key(ctx context.Context, scope, name string) (store.Key, error) {
	key, err := s.Store.Key(ctx, scope, name)
	if err == nil {
		err = s.openKey(ctx, &key)
	}
	if err != nil {
		return store.Key{}, err
	}
	return key, nil
}

// Index implements store.Store.
func (s *Store) Index(ctx context.Context, b store.Batch, lastSeq int64) error {
	w, err := s.ring.write(ctx, len(b.Rows))
	if err != nil {
		return err
	}
	defer w.end()
	b.Rows = w.rows(b.Rows)
	return s.Store.Index(ctx, b, lastSeq)
}

func (s *Store) openRow(ctx context.Context, r *store.Row) (err error) {
	if r.Data, err = s.ring.open(ctx, rowPlace(r), r.Data); err != nil {
		err = fmt.Errorf("row %q of kind %q of session %q: %w", r.ID, r.Kind, r.SessionID, err)
	}
	return err
}

func (s *Store) openKey(ctx context.Context, k *store.Key) error {
	sealed, ok := fromText(k.Content)
	if !ok {
		return nil
	}
	content, err := s.ring.open(ctx, keyPlace(k), sealed)
	if err != nil {
		return fmt.Errorf("key %q of %q: %w", k.Name, k.Scope, err)
	}
	k.Content = string(content)
	return nil
}

// batch returns a batch with sealed values; the caller's is not changed.
func (k *dataKey) batch(b store.Batch) (_ store.Batch, err error) {
	b.Records = slices.Clone(b.Records)
	for i := range b.Records {
		r := &b.Records[i]
		r.Data = k.seal(recordPlace(b.SessionID, r), r.Data)
	}
	b.Rewrites = slices.Clone(b.Rewrites)
	for i := range b.Rewrites {
		r := &b.Rewrites[i]
		r.Data = k.seal(recordPlace(b.SessionID, r), r.Data)
	}
	b.Rows, b.Key = k.rows(b.Rows), k.key(b.Key)
	if b.Create != nil {
		b.Create = new(k.created(*b.Create))
	}
	b.Shared, err = k.shared(b.Shared)
	return b, err
}

func (k *dataKey) rows(rows []store.Row) []store.Row {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Data = k.seal(rowPlace(&rows[i]), rows[i].Data)
	}
	return rows
}

func (k *dataKey) key(key *store.Key) *store.Key {
	if key == nil {
		return nil
	}
	sealed := *key
	sealed.Content = k.sealText(keyPlace(key), key.Content)
	return &sealed
}

func (k *dataKey) shared(values []store.SharedValue) ([]store.SharedValue, error) {
	values = slices.Clone(values)
	for i := range values {
		v := &values[i]
		switch {
		case v.Value == nil:
		case !json.Valid(v.Value):
			return nil, fmt.Errorf("%w: shared value %q of %q is not JSON", store.ErrMalformed, v.Key, v.Scope)
		default:
			v.Value = k.sealJSON(sharedPlace(v.Scope, v.Key), v.Value)
		}
	}
	return values, nil
}
