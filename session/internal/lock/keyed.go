package lock

import (
	"context"
	"sync"
)

// Keyed is a lock of each key. Its zero value is ready, and keeps nothing of a key that nobody holds. Its
// methods may be called from any goroutine.
type Keyed[K comparable] struct {
	mu   sync.Mutex          // protects the field below; nothing else is called under it
	held map[K]chan struct{} // each is closed when its key is free
}

// Lock returns when the caller alone holds the key, until it calls unlock, once. When ctx ends before it
// returns the cause.
func (l *Keyed[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	mine := make(chan struct{})
	for other := l.take(key, mine); other != nil; other = l.take(key, mine) {
		if err := Wait(ctx, other); err != nil {
			return nil, err
		}
	}
	return func() {
		defer close(mine)
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, key)
	}, nil
}

// take makes mine what holds a key, or returns what does.
func (l *Keyed[K]) take(key K, mine chan struct{}) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.held[key]; other != nil {
		return other
	}
	if l.held == nil {
		l.held = map[K]chan struct{}{}
	}
	l.held[key] = mine
	return nil
}
