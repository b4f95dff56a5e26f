// Package backlog keeps what a reader has not taken yet, up to a bound: beyond it all of it is dropped, and the reader
// lags: it has to read elsewhere what it has missed.
//
// It knows neither readers nor what they read.
package backlog

import (
	"slices"
	"sync"
)

// Backlog is the backlog of one reader, who lags at first. Its methods may be called from any goroutine; none blocks.
type Backlog[T any] struct {
	ready chan struct{} // holds one signal

	mu     sync.Mutex // protects the fields below; nothing else is called while it is held
	items  []T
	bytes  int
	lags   bool // items were dropped, or never kept
	failed error
	closed bool
}

// New returns a backlog that signals on ready, which has room for one signal. failed, if not nil, is how it ends.
func New[T any](ready chan struct{}, failed error) *Backlog[T] {
	return &Backlog[T]{ready: ready, lags: true, failed: failed}
}

// Ready receives when there may be something to take.
func (b *Backlog[T]) Ready() <-chan struct{} { return b.ready }

// Wake signals on Ready.
func (b *Backlog[T]) Wake() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// Take empties the backlog. failed is not nil when the reader is to end with it, after what it takes.
func (b *Backlog[T]) Take() (items []T, lags bool, failed error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	items, b.items, b.bytes = b.items, nil, 0
	return items, b.lags, b.failed
}

// Push keeps an item of a size, unless the backlog is closed or lags. If it has items and one more would be beyond
// these bounds, it drops all of them, and reports that the reader lags from now on.
func (b *Backlog[T]) Push(item T, size, maxItems, maxBytes int) (dropped bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	defer b.Wake()
	switch {
	case b.lags:
	case len(b.items) > 0 && (len(b.items) >= maxItems || b.bytes+size > maxBytes):
		b.items, b.bytes, b.lags = nil, 0, true
		return true
	default:
		b.items = append(b.items, item)
		b.bytes += size
	}
	return false
}

// CaughtUp keeps items from now on.
func (b *Backlog[T]) CaughtUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lags = false
}

// Lag drops all items: the reader lags.
func (b *Backlog[T]) Lag() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.items, b.bytes, b.lags = nil, 0, true
	b.Wake()
}

// Fail has the reader end with an error.
func (b *Backlog[T]) Fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = err
	b.Wake()
}

// Close drops all items, and keeps none from now on.
func (b *Backlog[T]) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.items, b.bytes = true, nil, 0
}

// Lags reports whether the reader has to read elsewhere.
func (b *Backlog[T]) Lags() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lags
}

// Len returns how many items there are, and whether the reader lags.
func (b *Backlog[T]) Len() (items int, lags bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.items), b.lags
}

// Size returns how many bytes the items have, whether one of them fits, and whether the reader lags.
func (b *Backlog[T]) Size(fits func(T) bool) (bytes int, has, lags bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes, slices.ContainsFunc(b.items, fits), b.lags
}
