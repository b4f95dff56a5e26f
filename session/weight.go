package session

import (
	"context"
	"slices"
)

const (
	// valueWeight is about what one value of a state takes in a message.
	valueWeight = 100
	// textWeight is how often a text is in memory while it is rendered and sent: in
	// its record, in a message, of a state in two forms, and in the bytes that go out.
	textWeight = 6
)

// Weight is about how many bytes of memory the next call of Next, and the sending of
// what that gives, take at most. It belongs to the goroutine that calls Next.
func (w *Watcher) Weight(ctx context.Context) int64 {
	if w.over {
		return 0
	}
	upTo, begins, texts, snapshot := w.weigh()
	lagged, bytes, first := w.weighQueue()
	if first {
		begins = w.read + 1
	}
	if lagged {
		bytes = texts + w.logBytes(ctx, upTo)
	}
	weight := textWeight * int64(bytes)
	if begins > w.read {
		weight += stateWeight(snapshot)
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
		texts += len(m.text) + len(m.thoughts)
	}
	if !w.view.whole {
		begins, snapshot = now.startSeq, now.snapshot
	}
	return w.s.seq, begins, texts, snapshot
}

// weighQueue returns the bytes of the queue, and whether the start of a turn is in it.
func (w *Watcher) weighQueue() (lagged bool, bytes int, starts bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	starts = slices.ContainsFunc(w.queue, func(it item) bool { return it.snapshot != nil })
	return w.lagged, w.bytes, starts
}

// Lags tells whether Weight and Next look through a log that may be long.
func (w *Watcher) Lags() bool { return !w.fresh && w.lagging() }

// logBytes is the size of the records up to one that are rendered at once.
func (w *Watcher) logBytes(ctx context.Context, upTo int64) int {
	size := 0
	for rec, err := range w.s.records(ctx, w.read, watchPage) {
		if err != nil || rec.Seq > upTo || size > w.s.limits.WatchBytes {
			break // Next says what is wrong
		}
		size += len(rec.Data)
	}
	return size
}

// stateWeight is about what a state takes while it is sent.
func stateWeight(v any) int64 {
	switch v := v.(type) {
	case map[string]any:
		n := int64(valueWeight)
		for k, v := range v {
			n += textWeight*int64(len(k)) + stateWeight(v)
		}
		return n
	case []any:
		n := int64(valueWeight)
		for _, v := range v {
			n += stateWeight(v)
		}
		return n
	case string:
		return valueWeight + textWeight*int64(len(v))
	default:
		return valueWeight
	}
}

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
