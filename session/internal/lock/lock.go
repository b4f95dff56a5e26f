// Package lock has the forms in which a session holds its locks.
//
// A lock is held by one function: it takes the lock and defers the unlock. The functions of this package
// are for the rest: a few lines of a longer function under the lock, a call without it, and the wait for
// what another goroutine does.
package lock

import (
	"context"
	"sync"
)

// Get calls f under mu and returns its result.
func Get[T any](mu *sync.Mutex, f func() T) T {
	mu.Lock()
	defer mu.Unlock()
	return f()
}

// Do calls f under mu.
func Do(mu *sync.Mutex, f func()) {
	mu.Lock()
	defer mu.Unlock()
	f()
}

// Without calls f without mu. The caller holds mu before and after: what it has read under the lock may
// have changed.
func Without(mu *sync.Mutex, f func()) {
	mu.Unlock() // the one place where a lock is given up and retaken
	defer mu.Lock()
	f()
}

// Wait returns nil when over is closed, or the cause when ctx ends.
func Wait(ctx context.Context, over <-chan struct{}) error {
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Await calls look until it returns nil, and waits for the channel that it returns in between. The caller
// holds mu; look runs under it, the wait does not. When ctx ends it returns the cause.
func Await(ctx context.Context, mu *sync.Mutex, look func() <-chan struct{}) error {
	for {
		over := look()
		if over == nil {
			return nil
		}
		var err error
		Without(mu, func() { err = Wait(ctx, over) })
		if err != nil {
			return err
		}
	}
}

// Closed is a channel that is closed, of what is over before it began.
var Closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
