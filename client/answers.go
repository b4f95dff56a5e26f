package client

import (
	"container/list"
	"context"
	"sync"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Limits of the answers that a client remembers.
const (
	maxAnswers     = 1024
	maxAnswerBytes = 16 << 20
)

// callKey names a tool call; ids are unique within their session.
type callKey struct {
	session, call string
}

// answers remembers how tool calls were answered, so that a call which the
// server sends again, in the same run or in a later one of the session, is
// answered without running the tool twice. Calls still in progress, and those
// of a run that is under way, are remembered too; runs bound their number. Of
// the others the oldest are forgotten beyond the limits above.
type answers struct {
	mu    sync.Mutex // protects the fields below and those of the entries
	byKey map[callKey]*answer
	order *list.List // of *answer, finished and let go, the oldest in front
	bytes int        // of the outputs, parts and errors in order
}

// answer is one remembered call.
type answer struct {
	key  callKey
	done chan struct{}                         // closed when msg is final
	msg  *agentdv1.RunRequest_ToolCallResponse // nil after done: nobody answered, claim again
}

func newAnswers() *answers {
	return &answers{byKey: make(map[callKey]*answer), order: list.New()}
}

// claim returns the remembered answer to a call after waiting for the one who
// works on it, or, with mine true, an entry that the caller must settle or
// abandon.
func (m *answers) claim(ctx context.Context, key callKey) (entry *answer, mine bool, err error) {
	for {
		m.mu.Lock()
		entry := m.byKey[key]
		if entry == nil {
			entry = &answer{key: key, done: make(chan struct{})}
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

// known tells whether a call has been settled.
func (m *answers) known(key callKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	entry := m.byKey[key]
	return entry != nil && entry.msg != nil
}

// settle stores the answer to a claimed call. It is kept until letGo.
func (m *answers) settle(entry *answer, msg *agentdv1.RunRequest_ToolCallResponse) {
	m.mu.Lock()
	defer m.mu.Unlock()
	entry.msg = msg
	close(entry.done)
}

// replace puts another answer in the place of a settled one that is kept.
func (m *answers) replace(entry *answer, msg *agentdv1.RunRequest_ToolCallResponse) *answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	instead := &answer{key: entry.key, done: entry.done, msg: msg}
	m.byKey[entry.key] = instead
	return instead
}

// letGo has a settled answer be forgotten when its time comes.
func (m *answers) letGo(entry *answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.order.PushBack(entry)
	m.bytes += size(entry)
	for m.order.Len() > maxAnswers || (m.bytes > maxAnswerBytes && m.order.Len() > 1) {
		oldest := m.order.Remove(m.order.Front()).(*answer)
		m.bytes -= size(oldest)
		delete(m.byKey, oldest.key)
	}
}

// abandon gives a claimed call back without an answer.
func (m *answers) abandon(entry *answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byKey, entry.key)
	close(entry.done)
}

func size(entry *answer) int {
	return len(entry.msg.GetOutput()) + len(entry.msg.GetError()) + sizeOf(entry.msg.GetParts())
}
