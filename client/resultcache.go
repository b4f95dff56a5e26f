package client

import (
	"container/list"
	"context"
	"sync"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Limits of the results that a client remembers.
const (
	maxResults     = 1024
	maxResultBytes = 16 << 20
)

// callKey names a tool call; ids are unique within their session.
type callKey struct {
	session, call string
}

// resultCache holds the results of tool calls. When the server sends a call again,
// in the same run or in a later run of the session, the client sends the stored
// result and does not run the tool twice. The cache also holds calls in progress
// and the calls of a running turn; the runs bound their number. Beyond the limits
// above it drops the oldest of the others.
type resultCache struct {
	mu    sync.Mutex // protects the fields below and those of the entries
	byKey map[callKey]*cachedResult
	order *list.List // of *cachedResult, finished and released; the oldest in front
	bytes int        // of the outputs, parts and errors in order
}

// cachedResult is the cache entry of one call.
type cachedResult struct {
	key  callKey
	done chan struct{}                         // closed when msg is final
	msg  *agentdv1.RunRequest_ToolCallResponse // nil after done: there is no result, claim again
}

func newResultCache() *resultCache {
	return &resultCache{byKey: make(map[callKey]*cachedResult), order: list.New()}
}

// claim returns the result of a call. If another goroutine runs the call, claim waits
// for it. If nobody does, mine is true and the caller must store or abandon the entry.
func (m *resultCache) claim(ctx context.Context, key callKey) (entry *cachedResult, mine bool, err error) {
	for {
		m.mu.Lock()
		entry := m.byKey[key]
		if entry == nil {
			entry = &cachedResult{key: key, done: make(chan struct{})}
			m.byKey[key] = entry
			m.mu.Unlock()
			return entry, true, nil
		}
		m.mu.Unlock()
		select {
		case <-entry.done:
			if entry.msg != nil {
				return entry, false, nil
			}
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

// known reports whether the cache holds the result of a call.
func (m *resultCache) known(key callKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	entry := m.byKey[key]
	return entry != nil && entry.msg != nil
}

// store stores the result of a claimed call. The cache keeps it until letGo.
func (m *resultCache) store(entry *cachedResult, msg *agentdv1.RunRequest_ToolCallResponse) {
	m.mu.Lock()
	defer m.mu.Unlock()
	entry.msg = msg
	close(entry.done)
}

// replace replaces a stored result that letGo has not released.
func (m *resultCache) replace(entry *cachedResult, msg *agentdv1.RunRequest_ToolCallResponse) *cachedResult {
	m.mu.Lock()
	defer m.mu.Unlock()
	instead := &cachedResult{key: entry.key, done: entry.done, msg: msg}
	m.byKey[entry.key] = instead
	return instead
}

// letGo releases a stored result: the cache may drop it from now on.
func (m *resultCache) letGo(entry *cachedResult) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.order.PushBack(entry)
	m.bytes += size(entry)
	for m.order.Len() > maxResults || (m.bytes > maxResultBytes && m.order.Len() > 1) {
		oldest := m.order.Remove(m.order.Front()).(*cachedResult)
		m.bytes -= size(oldest)
		delete(m.byKey, oldest.key)
	}
}

// abandon gives back a claimed call that has no result.
func (m *resultCache) abandon(entry *cachedResult) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byKey, entry.key)
	close(entry.done)
}

func size(entry *cachedResult) int {
	return len(entry.msg.GetOutput()) + len(entry.msg.GetError()) + sizeOf(entry.msg.GetParts())
}
