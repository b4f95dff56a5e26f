package webhook

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/apzuk3/agentd/internal/backoff"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

const (
	// GiveUp is how long a notice is tried, from when it was made or was sent again.
	GiveUp = 72 * time.Hour
	// KeptFor is how long dead letters are kept, and notices of hooks that no server has.
	KeptFor = 40 * 24 * time.Hour
	// MostNotices is how many notices of a hook may wait, and how many may be dead: the oldest give way.
	MostNotices = 10_000
	// firstWait and longestWait bound the waits between attempts.
	firstWait, longestWait = 5 * time.Second, 6 * time.Hour
	// atOnce is how many requests of one hook a server has under way.
	atOnce = 4
	// lookEvery is how often a server looks for notices of others, sweepEvery for those that are too old or too many,
	// and for marks of tenants.
	lookEvery, sweepEvery = 2 * time.Second, 10 * time.Second
	// leaseMargin is how much longer than a request may take a notice is its sender's.
	leaseMargin = 5 * time.Second
	// sweepSize is how many rows a sweep changes at a time.
	sweepSize = 1000
	// errorPause is the wait after an error of the database.
	errorPause = time.Second
	// storeTimeout bounds one read or write of the database.
	storeTimeout = 30 * time.Second
)

// Reader reads sessions, as store.Store does.
type Reader interface {
	Info(ctx context.Context, id string) (store.Info, error)
	Row(ctx context.Context, kind store.RowKind, sessionID, id string) (store.Row, error)
	Read(ctx context.Context, sessionID string, after int64, limit int) ([]record.Record, error)
}

// Config says what a Sender does. All of it is required; its functions may be called from any goroutine.
type Config struct {
	DB     DB
	Reader Reader
	// Holder names this server among those that share the database, in one life of it.
	Holder string
	// Alone says that no other server uses the database.
	Alone bool
	// Hooks are those that there are now.
	Hooks func() []Hook
	// Budgets are those of tenants.
	Budgets func() Budgets
	// Tried is called after each request with its outcome: ok, a status such as 500, timeout, refused (an address that
	// is not public) or failed; and with dead for each notice that is given up.
	Tried func(hook, outcome string)
	// Agent is the User-Agent.
	Agent string
	// Logger receives what fails, without secrets and contents.
	Logger *slog.Logger
}

// Sender sends notices. Its methods may be called from any goroutine.
type Sender struct {
	cfg    Config
	queue  queue
	client *http.Client
	look   time.Duration // lookEvery
	poke   chan struct{} // holds that there is something to do
	cancel context.CancelFunc
	done   chan struct{}   // closed when the loop has ended
	swept  time.Time       // owned by the loop
	noted  map[string]bool // ids of marks of tenants; owned by the loop

	mu    sync.Mutex
	under map[string]int // requests under way, by hook
	wg    sync.WaitGroup // of requests under way
}

// Start starts a sender. Its goroutine, and those of requests that are under way, end with Close.
func Start(cfg Config) *Sender {
	s := newSender(cfg)
	s.start()
	return s
}

func newSender(cfg Config) *Sender {
	return &Sender{
		cfg: cfg, queue: queue{cfg.DB}, client: newClient(), look: lookEvery, poke: make(chan struct{}, 1),
		done: make(chan struct{}), under: map[string]int{}, noted: map[string]bool{},
	}
}

func (s *Sender) start() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go s.run(ctx)
}

// Poke says that there may be something to send. It does not block.
func (s *Sender) Poke() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// Close ends requests that are under way, whose notices are due again, and returns when nothing runs any more.
func (s *Sender) Close() {
	s.cancel()
	<-s.done
	s.wg.Wait()
}

// run takes what is due, until ctx ends.
func (s *Sender) run(ctx context.Context) {
	defer close(s.done)
	freed := !s.cfg.Alone
	for ctx.Err() == nil {
		var err error
		wait := s.look
		if !freed {
			err = s.within(ctx, func(ctx context.Context) error { return s.queue.free(ctx, time.Now()) })
			freed = err == nil
		}
		hooks := s.cfg.Hooks()
		if err == nil && len(hooks) > 0 {
			wait, err = s.round(ctx, hooks)
		}
		if err != nil && ctx.Err() == nil {
			wait = errorPause
			s.cfg.Logger.Warn("webhooks wait for the database", slog.String("error", err.Error()))
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.poke:
		}
		timer.Stop()
	}
}

// within bounds a use of the database.
func (*Sender) within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return f(ctx)
}

// round begins requests for what is due, and returns how long there is nothing to do.
func (s *Sender) round(ctx context.Context, hooks []Hook) (wait time.Duration, err error) {
	now := time.Now()
	if now.Sub(s.swept) >= sweepEvery {
		if err := s.within(ctx, func(ctx context.Context) error { return s.sweep(ctx, hooks, now) }); err != nil {
			return 0, err
		}
		s.swept = now
	}
	wait = s.look
	for i := range hooks {
		h := hooks[i]
		free := s.free(h.Name)
		if free <= 0 {
			continue // the end of a request pokes
		}
		var due time.Time
		is := false
		err := s.within(ctx, func(ctx context.Context) (err error) {
			due, is, err = s.queue.next(ctx, h.Name)
			return err
		})
		switch {
		case err != nil:
			return 0, err
		case !is:
			continue
		case due.After(now):
			wait = min(wait, due.Sub(now))
			continue
		}
		var taken []delivery
		err = s.within(ctx, func(ctx context.Context) (err error) {
			taken, err = s.queue.take(ctx, h.Name, free, lease{s.cfg.Holder, now, now.Add(h.Timeout + leaseMargin)})
			return err
		})
		if err != nil {
			return 0, err
		}
		for j := range taken {
			s.begin(ctx, &h, &taken[j])
		}
	}
	return max(wait, 0), nil
}

// free is how many requests of a hook may begin.
func (s *Sender) free(hook string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return atOnce - s.under[hook]
}

// begin sends a notice on a goroutine of its own, which Close waits for.
func (s *Sender) begin(ctx context.Context, h *Hook, d *delivery) {
	s.mu.Lock()
	s.under[h.Name]++
	s.mu.Unlock()
	s.wg.Go(func() {
		defer s.Poke()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.under[h.Name]--; s.under[h.Name] == 0 {
				delete(s.under, h.Name)
			}
		}()
		s.send(ctx, h, d)
	})
}

// send makes one attempt, and notes its outcome.
func (s *Sender) send(ctx context.Context, h *Hook, d *delivery) {
	tried := s.attempt(ctx, h, d)
	now := time.Now()
	var o outcome
	switch {
	case tried.dropped:
		o.gone = true
	case ctx.Err() != nil && tried.err != nil, tried.unread: // nobody was asked
		o = outcome{back: true, due: now}
		if tried.unread {
			o.due = now.Add(errorPause)
		}
	case tried.err == nil:
		s.cfg.Tried(h.Name, "ok")
		o = outcome{gone: d.session != "", state: sent, due: now}
	default:
		s.cfg.Tried(h.Name, tried.outcome)
		o = outcome{due: now.Add(wait(d.attempts, tried.after)), err: tried.err.Error()}
		if tried.over || o.due.Sub(d.since) > GiveUp {
			o.state, o.due = dead, now
			s.cfg.Tried(h.Name, "dead")
			s.cfg.Logger.Error("a webhook is a dead letter", slog.String("hook", h.Name), slog.String("id", d.ID),
				slog.Int64("attempts", d.attempts), slog.String("error", o.err))
		}
	}
	// Also when the server stops: the outcome of a request must not be lost.
	err := s.within(context.WithoutCancel(ctx), func(ctx context.Context) error {
		return s.queue.end(ctx, d, s.cfg.Holder, now, o)
	})
	if err != nil {
		s.cfg.Logger.Warn("a webhook may be sent once more", slog.String("hook", h.Name), slog.String("id", d.ID),
			slog.String("error", err.Error()))
	}
}

// wait is the wait after so many attempts, at least what the receiver asks for.
func wait(attempts int64, asked time.Duration) time.Duration {
	return min(max(backoff.Half(firstWait, longestWait, int(attempts)-1), asked), longestWait)
}

// sweep holds the table to its bounds, and notes marks of tenants.
func (s *Sender) sweep(ctx context.Context, hooks []Hook, now time.Time) error {
	if err := s.queue.expire(ctx, now.Add(-KeptFor)); err != nil {
		return err
	}
	for i := range hooks {
		died, err := s.queue.bound(ctx, hooks[i].Name, MostNotices, sweepSize, now)
		if err != nil {
			return err
		}
		if died > 0 {
			s.cfg.Logger.Error("webhooks are dead letters: too many wait", slog.String("hook", hooks[i].Name),
				slog.Int64("notices", died))
		}
		for range died {
			s.cfg.Tried(hooks[i].Name, "dead")
		}
	}
	return s.tenantMarks(ctx, hooks, now.UTC())
}
