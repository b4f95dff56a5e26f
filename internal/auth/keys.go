package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/session/principal"
)

const (
	// Freshness is how long a server believes what it has read of an API key: a key that is revoked is refused after
	// that time, a first key closes an open server after that time.
	Freshness = 2 * time.Second
	// keptKeys is how many keys are kept in memory.
	keptKeys = 4096
	// prefix begins each key, for programs that search texts for secrets.
	prefix = "agentd_"
	idLen  = 12
)

var (
	errWrongKey   = errors.New("there is no such API key")
	errRevoked    = errors.New("the API key was revoked")
	errExpiredKey = errors.New("the API key has expired")
)

// NewKey makes an API key for a principal: text is what its holder sends, which nobody can find out later, k is what
// a ledger keeps. The secret has 260 random bits.
func NewKey(kind ledger.Kind, p principal.Principal) (text string, k ledger.APIKey) {
	id := strings.ToLower(rand.Text()[:idLen])
	text = prefix + string(kind) + "_" + id + "_" + rand.Text() + rand.Text()
	p.Via = ""
	return text, ledger.APIKey{ID: id, Sum: sha256.Sum256([]byte(text)), Kind: kind, Principal: p, Created: time.Now()}
}

// parts takes an API key apart; ok is false for another text.
func parts(text string) (kind ledger.Kind, id string, ok bool) {
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return "", "", false
	}
	name, rest, _ := strings.Cut(rest, "_")
	id, _, ok = strings.Cut(rest, "_")
	return ledger.Kind(name), id, ok && len(id) == idLen
}

// keys verifies API keys. It keeps what it has read of them for a while.
type keys struct {
	ledger ledger.Ledger

	mu    sync.Mutex // protects the fields below
	known *lru.LRU[string, known]
	has   bool // a key was made
	asked time.Time
}

// known is a key, or that there is none, and when it was read.
type known struct {
	key  ledger.APIKey
	err  error
	read time.Time
}

func newKeys(l ledger.Ledger) *keys {
	kept, err := lru.NewLRU[string, known](keptKeys, nil)
	if err != nil { // of a size below 1
		panic(err)
	}
	return &keys{ledger: l, known: kept}
}

// principal returns whom an API key speaks for.
func (k *keys) principal(ctx context.Context, text string) (principal.Principal, error) {
	kind, id, _ := parts(text)
	key, err := k.key(ctx, id)
	if err != nil {
		return principal.Principal{}, err
	}
	sum := sha256.Sum256([]byte(text))
	if subtle.ConstantTimeCompare(sum[:], key.Sum[:]) != 1 || kind != key.Kind {
		return principal.Principal{}, errWrongKey
	}
	if err := valid(key); err != nil {
		return principal.Principal{}, fmt.Errorf("%w (%s)", err, id)
	}
	if key.Via != "" {
		via, err := k.key(ctx, key.Via)
		if err == nil {
			err = valid(via)
		}
		if err != nil {
			return principal.Principal{}, fmt.Errorf("the API key that made the token is worth nothing: %w", err)
		}
	}
	p := key.Principal
	p.Via = id
	return p, nil
}

func valid(key ledger.APIKey) error {
	switch {
	case !key.Revoked.IsZero():
		return errRevoked
	case !key.Principal.Expires.IsZero() && !time.Now().Before(key.Principal.Expires):
		return errExpiredKey
	}
	return nil
}

// key reads a key, unless it has just been read.
func (k *keys) key(ctx context.Context, id string) (ledger.APIKey, error) {
	if known, ok := k.fresh(id); ok {
		return known.key, known.err
	}
	key, err := k.ledger.Key(ctx, id)
	if errors.Is(err, ledger.ErrNoKey) {
		err = errWrongKey
	}
	if err == nil || errors.Is(err, errWrongKey) {
		k.keep(id, known{key, err, time.Now()})
		return key, err
	}
	return key, passing{err}
}

func (k *keys) fresh(id string) (known, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.known.Get(id)
	return v, ok && time.Since(v.read) < Freshness
}

func (k *keys) keep(id string, v known) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known.Add(id, v)
}

// any reports whether a key was ever made.
func (k *keys) any(ctx context.Context) (bool, error) {
	if has, ok := k.answered(); ok {
		return has, nil
	}
	has, err := k.ledger.HasKeys(ctx)
	if err != nil {
		return false, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.has, k.asked = k.has || has, time.Now()
	return k.has, nil
}

func (k *keys) answered() (has, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.has, k.has || !k.asked.IsZero() && time.Since(k.asked) < Freshness
}
