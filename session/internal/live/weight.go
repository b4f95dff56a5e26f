package live

import (
	"context"

	"github.com/apzuk3/agentd/session/internal/render"
)

// Weight returns about how many bytes of memory the next call of Next, and sending its messages, take at
// most. Only the goroutine that calls Next may call it.
func (w *Watcher) Weight(ctx context.Context) int64 {
	if w.reader.IsOver() {
		return 0
	}
	upTo, begins, texts, snapshot := w.weigh()
	bytes, first, lags := w.backlog.Size(func(it render.Item) bool { return it.State != nil })
	if lags {
		bytes = texts + w.reader.LogBytes(ctx, upTo)
	}
	weight := render.TextWeight(bytes)
	if first || begins > w.reader.Rendered() {
		weight += render.StateWeight(snapshot)
	}
	return weight
}

// weigh returns the last applied record, the first record of the turn and the state at its start, and the
// size of the partials in bytes. For a watcher of the whole session begins and snapshot are zero: it
// renders the state from the log.
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

// Lags reports whether Weight and Next read a log that may be long.
func (w *Watcher) Lags() bool { return !w.fresh && w.backlog.Lags() }
