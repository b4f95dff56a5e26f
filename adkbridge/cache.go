package adkbridge

import (
	"container/list"
	"sync"
)

// cache keeps the histories of sessions between turns, the least recently used
// are dropped. A history that a turn uses is not in the cache.
type cache struct {
	maxEntries, maxBytes int

	mu    sync.Mutex // protects the fields below
	byID  map[string]*list.Element
	order *list.List // of *cached, the most recently used first
	bytes int
}

// cached is an entry; size is what the history weighed when it was put.
type cached struct {
	id   string
	hist *history
	size int
}

func newCache(entries, bytes int) *cache {
	return &cache{maxEntries: entries, maxBytes: bytes, byID: map[string]*list.Element{}, order: list.New()}
}

// take returns a session's history and removes it; an empty one if there is
// none, or if it knows more than the turn that asks.
func (c *cache) take(id string, startSeq int64) *history {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byID[id]; e != nil {
		hist := c.remove(e).hist
		if hist.upto < startSeq {
			return hist
		}
	}
	return newHistory()
}

// put keeps a history. The caller must not use it any more.
func (c *cache) put(id string, hist *history) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byID[id]; e != nil {
		c.remove(e)
	}
	if hist.bytes > c.maxBytes || c.maxEntries < 1 {
		return
	}
	c.byID[id] = c.order.PushFront(&cached{id: id, hist: hist, size: hist.bytes})
	c.bytes += hist.bytes
	for c.order.Len() > c.maxEntries || c.bytes > c.maxBytes {
		c.remove(c.order.Back())
	}
}

func (c *cache) remove(e *list.Element) *cached {
	entry := c.order.Remove(e).(*cached)
	delete(c.byID, entry.id)
	c.bytes -= entry.size
	return entry
}
