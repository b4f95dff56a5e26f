package sealed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apzuk3/agentd/session/store"
)

const (
	// mostValues is how many values one data key seals: half of what is allowed with random nonces (NIST SP 800-38D).
	mostValues = 1 << 31
	// blockValues are counted in the database at once.
	blockValues = 1 << 20
)

// ErrNoKeys means that a database has sealed values, and that a master key is missing.
var ErrNoKeys = errors.New("the database is encrypted")

// Ring holds the data keys of a database. Its methods may be called from any goroutine.
type Ring struct {
	table table
	cfg   Config
	peers Peers // nil for a process that is alone
	most  int64 // values of one data key
	block int64 // values that are counted at once

	// using is held for reading from when a key is taken until what it has sealed is written, and for writing while
	// the current key is replaced. Taken before mu.
	using sync.RWMutex

	mu      sync.Mutex // held while the database is read and written, too; protects the fields below
	masters *masters
	current *dataKey // seals; nil until one is needed
	left    int64    // values that current may seal and that are counted
	said    uint32   // to the peers; 0 for nothing

	lost atomic.Bool // what was said is forgotten; the next one who takes a key says it again

	keys sync.Map // of *dataKey by uint32, also of keys that the database does not have any more
}

// Open reads the data keys of a database. It returns nil for a database without any and a config without master keys:
// nothing is to be sealed or opened. It returns an error if a key cannot be unwrapped. It wraps anew, in one
// transaction, what an older master key has wrapped.
func Open(ctx context.Context, db DB, cfg Config, log *slog.Logger) (*Ring, error) {
	return open(ctx, db, cfg, nil, log)
}

func open(ctx context.Context, db DB, cfg Config, peers Peers, log *slog.Logger) (*Ring, error) {
	r, err := read(ctx, db, cfg)
	if err != nil || r == nil {
		return nil, err
	}
	r.peers = peers
	if err := r.rewrap(ctx, r.masters, log); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.reserve(ctx, 1); err != nil {
		return nil, err
	}
	return r, nil
}

// Reload reads the file of master keys again, and wraps anew what others than the first one have wrapped. After an
// error all that is sealed can be opened as before.
func (r *Ring) Reload(ctx context.Context, log *slog.Logger) error {
	m, err := r.cfg.masters()
	if err == nil {
		err = r.rewrap(ctx, m, log)
	}
	if err != nil {
		return err
	}
	r.setMasters(m)
	return r.rewrap(ctx, m, log) // a key that was made meanwhile
}

func (r *Ring) setMasters(m *masters) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.masters = m
}

// OpenReadOnly is Open for a database that is only read.
func OpenReadOnly(ctx context.Context, db DB, cfg Config) (*Ring, error) { return read(ctx, db, cfg) }

func read(ctx context.Context, db DB, cfg Config) (*Ring, error) {
	m, err := cfg.masters()
	if err != nil {
		return nil, err
	}
	r := &Ring{table: table{db}, cfg: cfg, masters: m, most: mostValues, block: blockValues}
	wrapped, err := r.table.all(ctx)
	if err != nil {
		return nil, err
	}
	if m.none() && len(wrapped) == 0 {
		return nil, nil
	}
	if err := r.unwrap(ctx, wrapped); err != nil {
		return nil, err
	}
	return r, nil
}

// unwrap adds keys that the ring does not have yet. The caller holds mu, or nobody else has the ring.
func (r *Ring) unwrap(ctx context.Context, wrapped []wrappedKey) error {
	if err := r.masters.miss(wrapped); err != nil {
		return err
	}
	for i := range wrapped {
		w := &wrapped[i]
		if r.known(w.id) != nil {
			continue
		}
		bytes, err := r.masters.unwrap(ctx, w.master, w.wrapped)
		if err != nil {
			return fmt.Errorf("unwrap data key %d: %w", w.id, err)
		}
		key, err := newDataKey(w.id, bytes)
		clear(bytes)
		if err != nil {
			return fmt.Errorf("data key %d: %w", w.id, err)
		}
		if id, _ := keyOf(w.proof); id != w.id {
			return fmt.Errorf("data key %d has no proof", w.id)
		}
		if _, err := key.aead.Open(nil, nil, w.proof[headBytes:], proofPlace); err != nil {
			return fmt.Errorf("data key %d was unwrapped by %s to another key than the one that was wrapped",
				w.id, describe(w.master))
		}
		r.keys.Store(w.id, key)
	}
	return nil
}

// proofPlace is the place of a value that shows that a data key is the right one.
var proofPlace = place("proof\x00")

// miss says which master keys are missing.
func (m *masters) miss(wrapped []wrappedKey) error {
	missing := map[string]bool{}
	for i := range wrapped {
		if name := wrapped[i].master; !m.has(name) {
			missing[describe(name)] = true
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%w, and these keys are missing: %s", ErrNoKeys,
		strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
}

// describe is a master key in words.
func describe(master string) string {
	if id, ok := strings.CutPrefix(master, byFile); ok {
		return fmt.Sprintf("%q (--encryption-keys)", id)
	}
	return "that of --encryption-command"
}

// rewrap wraps by the current one of master keys what others have wrapped.
func (r *Ring) rewrap(ctx context.Context, m *masters, log *slog.Logger) error {
	wrapped, err := r.table.all(ctx)
	if err == nil {
		err = m.miss(wrapped)
	}
	if err != nil {
		return err
	}
	var changed []wrappedKey
	for _, w := range wrapped {
		if w.master == m.current() {
			continue
		}
		key, err := m.unwrap(ctx, w.master, w.wrapped)
		if err == nil {
			w.wrapped, err = m.wrap(ctx, key)
			clear(key)
		}
		if err != nil {
			return fmt.Errorf("wrap data key %d anew: %w", w.id, err)
		}
		w.master = m.current()
		changed = append(changed, w)
	}
	if len(changed) == 0 {
		return nil
	}
	if err := r.table.rewrap(ctx, changed); err != nil {
		return err
	}
	log.Info("data keys were wrapped anew", slog.Int("keys", len(changed)), slog.String("by", describe(m.current())))
	return nil
}

// take returns a key that may seal n values. The caller holds using for reading.
func (r *Ring) take(ctx context.Context, n int64) (*dataKey, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost.Swap(false) {
		r.current, r.left, r.said = nil, 0, 0
	}
	if r.left < n {
		if err := r.reserve(ctx, n); err != nil {
			return nil, err
		}
	}
	r.left -= n
	return r.current, nil
}

// reserve counts at least n values more, of another key if the current one has sealed enough. The caller holds mu.
func (r *Ring) reserve(ctx context.Context, n int64) error {
	if r.masters.none() {
		return ErrNoKeys
	}
	n = max(n, r.block)
	for {
		if err := r.count(ctx, n); err != nil || r.peers == nil {
			return err
		}
		newest, err := r.begin(ctx)
		if err == nil && newest {
			return nil
		}
		r.current, r.left = nil, 0
		if err != nil {
			return err
		}
	}
}

// count is reserve for a process that is alone.
func (r *Ring) count(ctx context.Context, n int64) error {
	if r.current == nil {
		last, err := r.table.last(ctx)
		if err != nil {
			return err
		}
		if last != 0 && r.known(last) == nil {
			if err := r.againLocked(ctx); err != nil {
				return err
			}
		}
		r.current = r.known(last)
	}
	if r.current != nil {
		ok, err := r.table.use(ctx, r.current.id, n, r.most)
		if err != nil || ok {
			if ok {
				r.left += n
			}
			return err
		}
	}
	return r.add(ctx, n)
}

// add makes a key, of which n values are counted, the current one. The caller holds mu.
func (r *Ring) add(ctx context.Context, n int64) error {
	bytes := make([]byte, keyBytes)
	_, _ = rand.Read(bytes) // never fails
	defer clear(bytes)
	wrapped, err := r.masters.wrap(ctx, bytes)
	if err != nil {
		return fmt.Errorf("wrap a new data key: %w", err)
	}
	w := wrappedKey{master: r.masters.current(), wrapped: wrapped, used: n + 1, created: time.Now()}
	var key *dataKey
	err = r.table.add(ctx, &w, func(id int64) (proof []byte, err error) {
		if id >= math.MaxUint32 {
			return nil, errors.New("there are too many data keys")
		}
		w.id = uint32(id)
		if key, err = newDataKey(w.id, bytes); err != nil {
			return nil, err
		}
		return key.seal(proofPlace, nil), nil
	})
	if err != nil {
		return err
	}
	r.keys.Store(key.id, key)
	r.current, r.left = key, n
	return nil
}

// open opens what was sealed for a place. Errors are those of a damaged value, but for those of reading the keys that
// another process has added.
func (r *Ring) open(ctx context.Context, place, value []byte) ([]byte, error) {
	if id, sealed := keyOf(value); sealed && r.known(id) == nil {
		if err := r.again(ctx); err != nil {
			return nil, err
		}
	}
	return r.openKnown(place, value)
}

// openKnown is open without a look at the database.
func (r *Ring) openKnown(place, value []byte) ([]byte, error) {
	id, sealed := keyOf(value)
	if !sealed {
		return value, nil
	}
	key := r.known(id)
	if key == nil {
		return nil, fmt.Errorf("%w: a value is sealed with data key %d, which the database does not have",
			store.ErrDamaged, id)
	}
	out, err := key.aead.Open(nil, nil, value[headBytes:], place)
	if err != nil {
		return nil, fmt.Errorf("%w: a value that was sealed with data key %d does not open here: "+
			"it was changed or moved", store.ErrDamaged, id)
	}
	return out, nil
}

// known returns a data key that the ring has, or nil.
func (r *Ring) known(id uint32) *dataKey {
	key, _ := r.keys.Load(id)
	out, _ := key.(*dataKey)
	return out
}

// again reads the keys that another process may have added.
func (r *Ring) again(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.againLocked(ctx)
}

func (r *Ring) againLocked(ctx context.Context) error {
	wrapped, err := r.table.all(ctx)
	if err != nil {
		return err
	}
	return r.unwrap(ctx, wrapped)
}
