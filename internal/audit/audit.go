// Package audit is a part of agentd, not an API: it writes the audit trail of a server to its ledger, some entries at a
// time, so that they cost callers next to nothing.
//
// It knows neither requests nor what is worth an entry.
package audit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/apzuk3/agentd/internal/keytext"
	"github.com/apzuk3/agentd/internal/ledger"
)

const (
	// maxWaiting is how many entries may wait to be written. Who adds another one waits.
	maxWaiting = 1024
	// gathering is how long an entry waits for others to be written with.
	gathering = 100 * time.Millisecond
	// writeTimeout bounds one write with its repeats.
	writeTimeout = 30 * time.Second
	// closeWait is how long Close waits for writes, at most: a database that hangs keeps no process.
	closeWait = 2 * time.Second
	// retryEvery is the wait before a write that has failed is repeated.
	retryEvery = 500 * time.Millisecond
	// sweepEvery is how often old entries are removed, sweepSize how many at a time.
	sweepEvery = time.Hour
	sweepSize  = 1000
)

// Config says what a trail does.
type Config struct {
	// Ledger has the entries. Required.
	Ledger ledger.Ledger
	// Keep is how long entries are kept; 0 is for ever.
	Keep time.Duration
	// Logger receives the entries that cannot be written. Required.
	Logger *slog.Logger
}

// Trail takes entries. All methods may be called from any goroutine.
type Trail struct {
	cfg     Config
	waiting chan ledger.Entry
	ending  sync.RWMutex // held for writing while the trail ends, for reading while an entry is added
	ended   bool
	closing chan struct{} // closed by Close
	done    chan struct{} // closed when everything is written

	writing context.Context //nolint:containedctx // ends closeWait after Close has begun
	give    context.CancelFunc
}

// New starts a trail. Its goroutine ends with Close.
func New(cfg Config) *Trail {
	t := &Trail{
		cfg: cfg, waiting: make(chan ledger.Entry, maxWaiting), closing: make(chan struct{}), done: make(chan struct{}),
	}
	t.writing, t.give = context.WithCancel(context.Background())
	go t.run()
	return t
}

// Add has an entry written, within about 100 ms. A process that dies before loses it. It waits while too many wait to
// be written. A ledger that is away is tried again for half a minute; an entry whose write was not confirmed may be
// there twice then. What cannot be written, and what comes after Close, goes to the log.
func (t *Trail) Add(e ledger.Entry) {
	for _, text := range []*string{&e.Session, &e.Turn, &e.Subject} { // which callers may have named
		*text = keytext.Hide(*text)
	}
	t.ending.RLock()
	defer t.ending.RUnlock()
	if t.ended {
		t.log([]ledger.Entry{e}, "the trail has ended")
		return
	}
	t.waiting <- e
}

// Close writes what waits, and ends the trail. What is not written within two seconds goes to the log.
func (t *Trail) Close() {
	t.ending.Lock()
	first := !t.ended
	t.ended = true
	t.ending.Unlock()
	if first {
		close(t.closing)
		close(t.waiting)
		defer time.AfterFunc(closeWait, t.give).Stop()
	}
	<-t.done
	t.give()
}

// run is the one goroutine that writes.
func (t *Trail) run() {
	defer close(t.done)
	t.sweep()
	sweeps := time.NewTicker(sweepEvery)
	defer sweeps.Stop()
	for {
		select {
		case e, ok := <-t.waiting:
			if !ok {
				return
			}
			t.write(t.gather(e))
		case <-sweeps.C:
			t.sweep()
		}
	}
}

// gather waits for the entries that are written with a first one.
func (t *Trail) gather(first ledger.Entry) []ledger.Entry {
	batch := []ledger.Entry{first}
	timer := time.NewTimer(gathering)
	defer timer.Stop()
	for len(batch) < maxWaiting {
		select {
		case e, ok := <-t.waiting:
			if !ok {
				return batch
			}
			batch = append(batch, e)
		case <-timer.C:
			return batch
		}
	}
	return batch
}

// write writes a batch. It repeats what fails, unless so much waits that callers would wait soon, or the trail ends.
func (t *Trail) write(batch []ledger.Entry) {
	ctx, cancel := context.WithTimeout(t.writing, writeTimeout)
	defer cancel()
	for {
		err := t.cfg.Ledger.AddEntries(ctx, batch)
		if err == nil {
			return
		}
		if len(t.waiting) < maxWaiting/2 && t.rest(ctx) {
			continue
		}
		t.log(batch, err.Error())
		return
	}
}

// rest waits until it is time for another try, and reports whether there is one.
func (t *Trail) rest(ctx context.Context) bool {
	timer := time.NewTimer(retryEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-t.closing:
	}
	return false
}

// log writes entries to the log that are nowhere else.
func (t *Trail) log(batch []ledger.Entry, why string) {
	for i := range batch {
		e := &batch[i]
		t.cfg.Logger.Error("an entry of the audit trail is not written", slog.String("error", why),
			slog.Time("at", e.Time), slog.String("tenant", e.Tenant), slog.String("principal", e.Principal),
			slog.String("role", e.Role.String()), slog.String("via", e.Via), slog.String("from", e.From),
			slog.String("action", e.Action), slog.String("session", e.Session), slog.String("turn", e.Turn),
			slog.String("subject", e.Subject), slog.String("outcome", e.Outcome))
	}
}

// sweep removes old entries, in pieces, so that other writers come between.
func (t *Trail) sweep() {
	if t.cfg.Keep == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(t.writing, writeTimeout)
	defer cancel()
	before := time.Now().Add(-t.cfg.Keep)
	for {
		n, err := t.cfg.Ledger.RemoveEntries(ctx, before, sweepSize)
		if err != nil {
			t.cfg.Logger.Warn("old entries of the audit trail are not removed", slog.String("error", err.Error()))
		}
		if err != nil || n < sweepSize {
			return
		}
	}
}
