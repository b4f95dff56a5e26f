package adkbridge

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// cache keeps the histories of sessions between turns. It drops the least recently
// used. A history that a turn uses is not in the cache.
type cache struct {
	maxBytes int

	mu      sync.Mutex // protects the fields below
	entries *simplelru.LRU[cacheKey, cached]
	bytes   int
}

// cacheKey names a session: two tenants may have one of the same id.
type cacheKey struct{ tenant, id string }

// cached is an entry; size is what the history took when it was put.
type cached struct {
	hist *history
	size int
}

// newCache returns a cache of at most so many histories, none if entries is below 1.
func newCache(entries, bytes int) *cache {
	c := &cache{maxBytes: bytes}
	if entries > 0 { // the error is about the count alone
		c.entries, _ = simplelru.NewLRU(entries, func(_ cacheKey, e cached) { c.bytes -= e.size })
	}
	return c
}

// take returns a session's history and removes it. The history is empty if there is
// none, or if it knows more than the turn that asks.
func (c *cache) take(key cacheKey, startSeq int64) *history {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		return newHistory()
	}
	e, ok := c.entries.Peek(key)
	c.entries.Remove(key)
	if ok && e.hist.upto < startSeq {
		return e.hist
	}
	return newHistory()
}

// put keeps a history. The caller must not use it after.
func (c *cache) put(key cacheKey, hist *history) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		return
	}
	c.entries.Remove(key)
	size := hist.memory()
	if size > c.maxBytes {
		return
	}
	c.entries.Add(key, cached{hist: hist, size: size})
	for c.bytes += size; c.bytes > c.maxBytes; {
		c.entries.RemoveOldest()
	}
}
