package session

import (
	"context"
	"sync"
)

// A lock is held by one function: it takes the lock and defers the unlock. The functions
// of this file are for the rest: a few lines of a longer function under the lock, a call
// without it, and the one way to wait for what another goroutine does.

// locked calls f under mu and returns its result.
func locked[T any](mu *sync.Mutex, f func() T) T {
	mu.Lock()
	defer mu.Unlock()
	return f()
}

// under calls f under mu.
func under(mu *sync.Mutex, f func()) {
	mu.Lock()
	defer mu.Unlock()
	f()
}

// without calls f while mu is free. The caller holds mu, and holds it again afterwards:
// what it has read under the lock before may have changed.
func without(mu *sync.Mutex, f func()) {
	mu.Unlock() // the one place where a lock is given up and taken again
	defer mu.Lock()
	f()
}

// wait returns when over is closed, or with the cause when ctx ends.
func wait(ctx context.Context, over <-chan struct{}) error {
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// awaitLocked calls look until it returns nil, and waits for the channel that it returns
// in between. look runs under s.mu, the wait does not. When ctx ends it returns the cause.
func (s *Session) awaitLocked(ctx context.Context, look func() <-chan struct{}) error {
	for {
		over := look()
		if over == nil {
			return nil
		}
		var err error
		without(&s.mu, func() { err = wait(ctx, over) })
		if err != nil {
			return err
		}
	}
}
