// Package memowners owns sessions for several servers of one process that share a store: [session.Owners] in memory,
// with the semantics of a real one. Epochs rise with each claim, the store refuses what an earlier owner writes, and
// what a dead server owned can be claimed.
//
// It is for tests. Nothing of it outlives the process.
package memowners

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/store"
)

// Group is the servers over one store. Its methods may be called from any goroutine.
type Group struct {
	raw store.Store

	mu       sync.Mutex // protects the fields below, and is held while the store writes
	heads    map[string]*head
	asks     map[string]*ask
	replicas []*Replica
}

// head is what is known of the owner of a session.
type head struct {
	epoch int64
	owner *Replica
	due   time.Time // zero for never
}

// ask is what servers ask of the owner of a session.
type ask struct {
	followed, wanted time.Time // when that was asked last
	by               *Replica  // who wants
	settled, epoch   int64     // what the owner has said
}

// askFor is for how long what is asked counts.
const askFor = 5 * time.Second

// Replica is one server: its owners, and its store. A Replica that is dead claims nothing, and the others may claim
// what it had.
type Replica struct {
	store.Store
	g       *Group
	address string

	// Protected by Group.mu.
	dead     bool
	draining bool
	claims   int
	refused  int   // appends that were fenced
	cut      error // what claims and releases return
	blind    error // what the next call of Standing returns
}

// New returns a group without servers over a store.
func New(raw store.Store) *Group {
	return &Group{raw: raw, heads: map[string]*head{}, asks: map[string]*ask{}}
}

// Recover makes sessions due that have an open turn in the store.
func (g *Group) Recover(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for after := ""; ; {
		page, err := g.raw.OpenTurns(ctx, after, recoverPage)
		if err != nil {
			return err
		}
		for _, head := range page {
			after = head.ID
			g.headLocked(head.ID).due = time.Now()
		}
		if len(page) < recoverPage {
			return nil
		}
	}
}

// recoverPage is how many open turns are read at a time.
const recoverPage = 100

// Join returns a server that others reach at an address.
func (g *Group) Join(address string) *Replica {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &Replica{Store: g.raw, g: g, address: address}
	g.replicas = append(g.replicas, r)
	return r
}

// Die makes the server dead for the others. What it still writes is refused once another one has claimed the session.
func (r *Replica) Die() {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	r.dead = true
}

// Cut makes claims and releases of the server fail with err; nil ends that.
func (r *Replica) Cut(err error) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	r.cut = err
}

// Claims returns how often the server has claimed, and Fenced how many of its appends were refused.
func (r *Replica) Claims() int {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	return r.claims
}

// Fenced is described at Claims.
func (r *Replica) Fenced() int {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	return r.refused
}

// OwnerOf returns the address of the owner of a session and its epoch; "" is nobody.
func (g *Group) OwnerOf(key string) (address string, epoch int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.heads[key]
	switch {
	case h == nil:
		return "", 0
	case h.owner == nil:
		return "", h.epoch
	}
	return h.owner.address, h.epoch
}

// Orphan takes a session from its owner, which does not know it yet. The session is due.
func (g *Group) Orphan(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.headLocked(key)
	h.owner, h.due = nil, time.Now()
	h.epoch++
}

// Owned returns the sessions that have an owner, in order.
func (g *Group) Owned() (keys []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, h := range g.heads {
		if h.owner != nil {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func (g *Group) headLocked(key string) *head {
	if g.heads[key] == nil {
		g.heads[key] = &head{}
	}
	return g.heads[key]
}

// Claim implements session.Owners.
func (r *Replica) Claim(ctx context.Context, key string) (session.Claim, error) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if r.cut != nil {
		return session.Claim{}, r.cut
	}
	if r.dead {
		return session.Claim{}, fmt.Errorf("memowners: %s is dead", r.address)
	}
	info, err := r.g.raw.Info(ctx, key)
	if err != nil {
		return session.Claim{}, err
	}
	h := r.g.headLocked(key)
	if h.owner != nil && h.owner != r && !h.owner.dead {
		return session.Claim{}, &session.Elsewhere{Address: h.owner.address}
	}
	if h.owner != nil && h.owner.dead {
		h.due = time.Now()
	}
	h.owner, h.epoch = r, max(h.epoch, info.Epoch)+1
	r.claims++
	return session.Claim{Epoch: h.epoch, LastSeq: info.LastSeq, Archived: info.Archived}, nil
}

// Release implements session.Owners.
func (r *Replica) Release(_ context.Context, key string, epoch int64, due time.Duration) error {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if r.cut != nil {
		return r.cut
	}
	h := r.g.heads[key]
	if h == nil || h.owner != r || h.epoch != epoch {
		return nil
	}
	h.owner = nil
	switch {
	case due == session.Never:
		h.due = time.Time{}
	case due >= 0:
		h.due = time.Now().Add(due)
	}
	return nil
}

// Owner implements session.Owners.
func (r *Replica) Owner(_ context.Context, key string) (string, error) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if r.cut != nil {
		return "", r.cut
	}
	h := r.g.heads[key]
	if h == nil || h.owner == nil || h.owner == r || h.owner.dead {
		return "", nil
	}
	return h.owner.address, nil
}

// Blind has the next call of Standing fail.
func (r *Replica) Blind(err error) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	r.blind = err
}

// Standing implements session.Owners.
func (r *Replica) Standing(ctx context.Context, key string) (last int64, owned, purged bool, err error) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if err = cmp.Or(r.cut, r.blind); err != nil {
		r.blind = nil
		return 0, false, false, err
	}
	info, err := r.g.raw.Info(ctx, key)
	if err != nil {
		return 0, false, false, err
	}
	h := r.g.heads[key]
	return info.LastSeq, h != nil && h.owner != nil, info.Purged > 0 && info.Purged == info.LastSeq, nil
}

// Ask implements session.Owners.
func (r *Replica) Ask(_ context.Context, key string, wants bool) (settled int64, heard bool, err error) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	h := r.g.heads[key]
	switch {
	case r.cut != nil:
		return 0, false, r.cut
	case h == nil:
		return 0, false, store.ErrNoSession
	}
	a := r.g.asks[key]
	if a == nil {
		a = &ask{}
		r.g.asks[key] = a
	}
	if wants {
		a.wanted, a.by = time.Now(), r
	} else {
		a.followed = time.Now()
	}
	if a.epoch == h.epoch {
		settled = a.settled
	}
	return settled, true, nil
}

// Asked implements session.Owners.
func (r *Replica) Asked(f func(key string, follows bool, settled int64, wants string)) {
	for _, call := range r.asked() {
		call(f)
	}
}

// asked returns calls of what Asked gets, in the order of the keys.
func (r *Replica) asked() (calls []func(func(string, bool, int64, string))) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(r.g.asks)) {
		a, h := r.g.asks[key], r.g.heads[key]
		if h == nil || h.owner != r || r.dead {
			continue
		}
		follows, settled, wants := time.Since(a.followed) < askFor, int64(0), ""
		if a.epoch == h.epoch {
			settled = a.settled
		}
		if a.by != nil && a.by != r && !a.by.dead && time.Since(a.wanted) < askFor {
			wants = a.by.address
		}
		calls = append(calls, func(f func(string, bool, int64, string)) { f(key, follows, settled, wants) })
	}
	return calls
}

// Settle implements session.Owners.
func (r *Replica) Settle(_ context.Context, key string, epoch, settled int64) error {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if r.cut != nil {
		return r.cut
	}
	if a, h := r.g.asks[key], r.g.heads[key]; a != nil && h != nil && h.owner == r && h.epoch == epoch {
		a.epoch, a.settled = epoch, settled
	}
	return nil
}

// Drain says to the others that the server takes no more sessions.
func (r *Replica) Drain() {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	r.draining = true
}

// Another implements session.Owners.
func (r *Replica) Another() string {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	for _, other := range r.g.replicas {
		if other != r && !other.dead && !other.draining {
			return other.address
		}
	}
	return ""
}

// Due implements session.Owners. The sessions are shared by their keys among the servers that live.
func (r *Replica) Due(_ context.Context, most int) (keys []string, err error) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if r.cut != nil || r.dead || r.draining {
		return nil, r.cut
	}
	for key, h := range r.g.heads {
		orphaned := h.owner != nil && h.owner.dead
		if orphaned || h.owner == nil && !h.due.IsZero() && !h.due.After(time.Now()) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	living := int64(0)
	for _, other := range r.g.replicas {
		if !other.dead && !other.draining {
			living++
		}
	}
	share := max(1, (len(keys)+int(living)-1)/int(living))
	return keys[:min(len(keys), most, share)], nil
}

// Append implements store.Store: it writes if the server is the owner under the epoch of the batch.
func (r *Replica) Append(ctx context.Context, b store.Batch) error {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	h := r.g.headLocked(b.SessionID)
	if b.Create == nil || h.epoch > 0 {
		if b.Create != nil && (h.owner != r || h.epoch != b.Epoch) {
			return fmt.Errorf("%w: of epoch %d", store.ErrSessionExists, h.epoch)
		}
		if h.owner != r || h.epoch != b.Epoch {
			r.refused++
			return fmt.Errorf("%w: epoch %d, this one has %d", store.ErrFenced, h.epoch, b.Epoch)
		}
	}
	if err := r.g.raw.Append(ctx, b); err != nil {
		return err
	}
	if b.Create != nil {
		h.owner, h.epoch = r, b.Epoch
	}
	return nil
}

// AppendMany implements store.Store.
func (r *Replica) AppendMany(ctx context.Context, batches []store.Batch) []error {
	errs := make([]error, len(batches))
	for i := range batches {
		errs[i] = r.Append(ctx, batches[i])
	}
	return errs
}

// Delete implements store.Store.
func (r *Replica) Delete(ctx context.Context, id string, lastSeq int64) error {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	err := r.g.raw.Delete(ctx, id, lastSeq)
	if err == nil {
		delete(r.g.heads, id)
		delete(r.g.asks, id)
	}
	return err
}

// String returns the owners of all sessions, for a test that fails.
func (g *Group) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []string
	for key, h := range g.heads {
		owner := "nobody"
		if h.owner != nil {
			owner = h.owner.address
		}
		out = append(out, fmt.Sprintf("%s: %s, epoch %d, due %v", key, owner, h.epoch, h.due))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
