package modelcall

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/apzuk3/agentd/model"
)

// maxSuspension is the longest suspension, whatever a provider asks for.
const maxSuspension = time.Hour

// BreakerConfig configures a Breaker. Zero fields take the defaults.
type BreakerConfig struct {
	// Failures is how many tries in a row have to fail, with errors that are Temporary, before
	// calls are suspended; default 10. Negative suspends nothing.
	Failures int
	// CoolDown is how long calls are suspended; default 10 s. It doubles each time that the next
	// try fails, up to MaxCoolDown, default 2 min or CoolDown if that is longer.
	CoolDown, MaxCoolDown time.Duration
	// Circuits bounds the number of failing models, with one key each, that the breaker keeps;
	// default 1024. Beyond that it forgets the one that was not called for the longest time, as if
	// that had not failed.
	Circuits int
}

// WithDefaults returns c with defaults in place of zeros.
func (c BreakerConfig) WithDefaults() BreakerConfig {
	c.Failures = cmp.Or(c.Failures, 10)
	c.CoolDown = cmp.Or(c.CoolDown, 10*time.Second)
	c.MaxCoolDown = max(cmp.Or(c.MaxCoolDown, 2*time.Minute), c.CoolDown)
	c.Circuits = cmp.Or(c.Circuits, 1024)
	return c
}

// Breaker suspends the calls of models that keep failing, so that callers neither wait for a
// provider that is down nor all call it. It is safe for concurrent use.
//
// A circuit is a model of a provider with a key: the server's, a tenant's, or one caller's own. Circuits
// do not affect each other. A circuit is closed at first: calls go through. It opens after a number of
// tries in a row that failed with errors that are Temporary, for the cool-down, or for as long as
// the provider asks to wait if that is longer; a wish that is too long for a retry opens it at
// once. While it is open, calls fail before they are made. Their error is Suspended, of
// KindRateLimited if that was the last failure and else of KindUnavailable, and its RetryAfter says
// when the circuit is half open. Then one call goes through, and the others fail until it ends: its
// first text, or its response, closes the circuit; its failure opens it for twice as long.
//
// Errors that say nothing about the provider's health (a wrong key, an invalid request, refused
// content) do not count as failures. A call whose caller leaves does not count at all.
type Breaker struct {
	cfg BreakerConfig
	log *slog.Logger

	mu       sync.Mutex // protects the circuits; no error or log is made while it is held
	circuits *simplelru.LRU[Circuit, *circuit]
}

// Circuit names a circuit of a Breaker.
type Circuit struct {
	// Provider and Model are names, and Account is who pays.
	Provider, Model string
	Account         Account
}

// Account identifies a key that is not the server's without revealing it; the zero value is the server's key.
type Account [sha256.Size]byte

// AccountOf returns the account of a key, "" for the server's.
func AccountOf(key string) Account {
	if key == "" {
		return Account{}
	}
	return sha256.Sum256([]byte(key))
}

// circuit is one whose last try failed; a closed circuit without failures has no entry.
type circuit struct {
	failures int           // in a row
	until    time.Time     // when it is half open; zero while it is closed
	cool     time.Duration // how long it was opened for, at least
	last     *model.Error  // the failure that opened it
	probe    *passage      // the call that is let through, if one is under way
}

// passage is a call that admit let through.
type passage struct {
	key   Circuit
	probe bool
}

// NewBreaker returns a breaker that logs when a model begins to fail, when it suspends calls, and when the
// model works again, without keys and without the words of providers; nil if cfg suspends nothing.
func NewBreaker(cfg BreakerConfig, log *slog.Logger) *Breaker {
	if cfg = cfg.WithDefaults(); cfg.Failures < 0 {
		return nil
	}
	circuits, _ := simplelru.NewLRU[Circuit, *circuit](max(cfg.Circuits, 1), nil) // the error is about the count alone
	return &Breaker{cfg: cfg, log: log, circuits: circuits}
}

// wrap returns llm with its calls suspended while it keeps failing. It belongs between a guard and
// the retries; longest is the longest wait that a provider may ask for there.
func (b *Breaker) wrap(llm model.LLM, key Circuit, longest time.Duration) model.LLM {
	return &breaking{b: b, llm: llm, key: key, longest: longest}
}

// breaking is immutable.
type breaking struct {
	b       *Breaker
	llm     model.LLM
	key     Circuit
	longest time.Duration
}

// Generate implements LLM.
func (m *breaking) Generate(
	ctx context.Context, req *model.Request, emit func(model.Delta),
) (resp *model.Response, err error) {
	p, refused := m.b.admit(m.key)
	if refused != nil {
		return nil, refused
	}
	err = context.Canceled // of a panic: it tells nothing
	defer func() {
		if ctx.Err() != nil {
			m.b.finish(p, ctx.Err(), m.longest)
		} else {
			m.b.finish(p, err, m.longest)
		}
	}()
	heard := !p.probe
	return m.llm.Generate(ctx, req, func(d model.Delta) {
		if !heard {
			heard = true
			m.b.finish(p, nil, m.longest)
		}
		emit(d)
	})
}

// admit lets a call through, or returns the error that it fails with.
func (b *Breaker) admit(key Circuit) (*passage, *model.Error) {
	p := &passage{key: key}
	c, left := b.enter(p)
	if c.until.IsZero() {
		return p, nil
	}
	e := &model.Error{Kind: model.KindUnavailable, Provider: key.Provider, Suspended: true, RetryAfter: left}
	if c.last.Kind == model.KindRateLimited {
		e.Kind = model.KindRateLimited
	}
	if e.Message = "not called: the model is suspended" + c.why(); left <= 0 {
		e.RetryAfter = b.cfg.CoolDown
		e.Message = "not called: the model was suspended" + c.why() +
			", and another call finds out whether it responds again"
	}
	return nil, e
}

// enter makes a call the probe of its circuit if the circuit is half open and has
// none. If it has one, or is open, enter returns the circuit as it is now, and what
// is left of the suspension. Otherwise it returns a closed circuit.
func (b *Breaker) enter(p *passage) (c circuit, left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, _ := b.circuits.Get(p.key)
	if found == nil || found.until.IsZero() {
		return circuit{}, 0
	}
	left = time.Until(found.until)
	if left <= 0 && found.probe == nil {
		found.probe, p.probe = p, true
		return circuit{}, 0
	}
	return *found, left
}

// why says what opened the circuit, without the words of the provider: they may repeat what another
// caller sent.
func (c *circuit) why() string {
	status := ""
	if c.last.Status != 0 {
		status = fmt.Sprintf(" with status %d", c.last.Status)
	}
	return fmt.Sprintf(" (failures in a row: %d, the last one: %s%s)", c.failures, c.last.Kind, status)
}

// finish applies the end of a call to its circuit, and logs the first failure of a model that worked,
// when its calls are suspended or let through again, and when it works again.
func (b *Breaker) finish(p *passage, err error, longest time.Duration) {
	did := b.change(p, err, longest)
	if did.failures == 0 && !did.closed {
		return
	}
	log := b.log.With(slog.String("provider", p.key.Provider), slog.String("model", p.key.Model),
		slog.Bool("callers_key", p.key.Account != Account{}))
	switch {
	case did.closed:
		log.Info("a model responds again, its calls resume")
	case did.last == nil:
		log.Info("a model responds again", slog.Int("failures", did.failures))
	case did.opened > 0:
		log.Warn("a model keeps failing, its calls are suspended", slog.Duration("for", did.opened),
			slog.Int("failures", did.failures), slog.String("last", string(did.last.Kind)),
			slog.Int("status", did.last.Status))
	case did.failures == 1:
		log.Warn("a model fails", slog.String("last", string(did.last.Kind)), slog.Int("status", did.last.Status))
	}
}

// change is what the end of a call did to its circuit.
type change struct {
	opened   time.Duration // for how long it opened; 0 if it did not
	closed   bool          // it was open
	failures int           // in a row, so far or until the response; 0 if there were none
	last     *model.Error  // the newest of them, nil for a response
}

// change applies the end of a call to its circuit. A call that began before the circuit opened
// changes nothing while it is open.
func (b *Breaker) change(p *passage, err error, longest time.Duration) (did change) {
	e, _ := errors.AsType[*model.Error](err)
	b.mu.Lock()
	defer b.mu.Unlock()
	c, _ := b.circuits.Get(p.key)
	switch probe := c != nil && c.probe == p; {
	case c != nil && !c.until.IsZero() && !probe:
	case err == nil || e != nil && providerWorks(e):
		did.closed = probe
		if c != nil {
			did.failures = c.failures
		}
		b.circuits.Remove(p.key)
	case e != nil && e.Temporary():
		if c == nil {
			c = &circuit{}
			b.circuits.Add(p.key, c)
		}
		c.failures++
		did = change{failures: c.failures, last: e}
		if probe || c.failures >= b.cfg.Failures || e.RetryAfter > longest {
			did.opened = c.open(b.cfg, e)
		}
	case probe:
		c.probe = nil // the next call finds out
	}
	return did
}

// providerWorks reports whether an error shows that the provider works.
func providerWorks(e *model.Error) bool {
	return e.Status >= http.StatusBadRequest && e.Status < http.StatusInternalServerError &&
		e.Kind != model.KindRateLimited && !e.Temporary()
}

// open suspends the calls after a failure, and returns for how long.
func (c *circuit) open(cfg BreakerConfig, e *model.Error) time.Duration {
	if c.until.IsZero() {
		c.cool = cfg.CoolDown
	} else {
		c.cool = min(2*c.cool, cfg.MaxCoolDown)
	}
	wait := max(c.cool, min(e.RetryAfter, maxSuspension))
	c.until, c.last, c.probe = time.Now().Add(wait), &model.Error{Kind: e.Kind, Status: e.Status}, nil
	return wait
}

// State is what a circuit does with calls.
type State int

// The states of a circuit.
const (
	Closed   State = iota // calls go through
	HalfOpen              // one call goes through
	Open                  // calls fail
)

// Each calls f with each circuit that is not closed. f must not call the breaker. A nil breaker has no circuits.
func (b *Breaker) Each(f func(Circuit, State)) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range b.circuits.Keys() {
		c, _ := b.circuits.Peek(key)
		switch {
		case c.until.IsZero():
		case time.Until(c.until) > 0:
			f(key, Open)
		default:
			f(key, HalfOpen)
		}
	}
}
