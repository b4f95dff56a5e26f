package session

import (
	"context"
	"slices"

	"github.com/apzuk3/agentd/session/internal/render"
)

// Weight is about how many bytes of memory the next call of Next, and the sending of
// what that gives, take at most. It belongs to the goroutine that calls Next.
func (w *Watcher) Weight(ctx context.Context) int64 {
	if w.reader.IsOver() {
		return 0
	}
	upTo, begins, texts, snapshot := w.weigh()
	lagged, bytes, first := w.weighQueue()
	if lagged {
		bytes = texts + w.reader.LogBytes(ctx, upTo)
	}
	weight := render.TextWeight(bytes)
	if first || begins > w.reader.Rendered() {
		weight += render.StateWeight(snapshot)
	}
	return weight
}

// weigh returns the last record that is applied, the first one of the turn and the state
// at its start, and how many bytes the texts take of messages that are not complete. A
// watcher of the whole session has no such state: what it renders is in the log.
func (w *Watcher) weigh() (upTo, begins int64, texts int, snapshot map[string]any) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	now := w.turnLocked()
	if now == nil {
		return w.s.seq, 0, 0, nil
	}
	for _, m := range now.partials {
		texts += m.Size()
	}
	if !w.reader.IsWhole() {
		begins, snapshot = now.startSeq, now.snapshot
	}
	return w.s.seq, begins, texts, snapshot
}

// weighQueue returns the bytes of the queue, and whether the start of a turn is in it.
func (w *Watcher) weighQueue() (lagged bool, bytes int, starts bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	starts = slices.ContainsFunc(w.queue, func(it render.Item) bool { return it.State != nil })
	return w.lagged, w.bytes, starts
}

// Lags tells whether Weight and Next look through a log that may be long.
func (w *Watcher) Lags() bool { return !w.fresh && w.lagging() }

// Weight is about how many bytes of memory the next call of Next, and the sending of
// what that gives, take at most.
func (w *SessionWatcher) Weight(ctx context.Context) int64 {
	if w.watcher == nil {
		if !w.roused.Load() {
			return 0
		}
		if err := w.open(ctx); err != nil {
			return 0 // Next tries again, and says what is wrong
		}
	}
	return w.watcher.Weight(ctx)
}

// Lags tells whether Weight and Next look through a log that may be long.
func (w *SessionWatcher) Lags() bool {
	if w.watcher == nil {
		return w.roused.Load()
	}
	return w.watcher.Lags()
}
