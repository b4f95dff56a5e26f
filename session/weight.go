package session

import "context"

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
	w.s.mu.Lock()
	upTo, begins, texts := w.s.seq, int64(0), 0
	var snapshot map[string]any // nil of those who read the whole: what they are told is in the log
	if now := w.turnLocked(); now != nil {
		for _, m := range now.onTheirWay {
			texts += len(m.text) + len(m.thoughts)
		}
		if !w.view.whole {
			snapshot, begins = now.snapshot, now.startSeq
		}
	}
	w.s.mu.Unlock()
	w.mu.Lock()
	lagged, bytes := w.lagged, w.bytes
	for _, it := range w.queue {
		if it.snapshot != nil {
			begins = w.read + 1
		}
	}
	w.mu.Unlock()
	if lagged {
		bytes = texts + w.logBytes(ctx, upTo)
	}
	weight := textWeight * int64(bytes)
	if begins > w.read {
		weight += stateWeight(snapshot)
	}
	return weight
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
