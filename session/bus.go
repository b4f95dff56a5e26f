package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// hints is a bus between the servers over one store, which carries hints. It may lose all of them: what waits for a
// hint looks for itself too, later. All methods may be called from any goroutine.
type hints interface {
	// Publish sends a hint of at most 256 KiB to all servers, this one too. It does not block.
	Publish(subject string, data []byte)
	// Subscribe has f called with each hint of a subject, or of all subjects that begin as one that ends in ">", in the
	// order in which a server has published them. f gets one hint at a time and does not block. end ends that, but for
	// a call that is under way.
	Subscribe(subject string, f func(subject string, data []byte)) (end func(), err error)
	// Carries reports whether hints of all subjects arrive now. A bus that carries subjectWake alone never does.
	Carries() bool
}

// The subjects of hints. Those of a session end in its token.
const (
	subjectWake  = "wake"   // a session is due now
	subjectMoved = "moved." // a session has a new owner
)

// token names a session in subjects, where its key may not stand.
func token(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:16])
}

// Wake has all servers look at once for sessions that are due, where they would do so within adoptEvery. A session that
// this server lets go of with a due time of now needs no call. It does not block.
func (m *Manager) Wake() {
	if m.bus != nil {
		m.bus.Publish(subjectWake, nil)
	}
}

// WhenMoved has f called each time that a server becomes the owner of a session, if a bus says so. f must not block.
// end ends that, but for a call that is under way.
func (m *Manager) WhenMoved(ctx context.Context, id string, f func()) (end func()) {
	if m.bus == nil {
		return func() {}
	}
	key, err := m.keyOf(ctx, id)
	if err != nil {
		return func() {}
	}
	end, err = m.bus.Subscribe(subjectMoved+token(key), func(string, []byte) { f() })
	if err != nil {
		return func() {}
	}
	return end
}

// moved says that this server has become the owner of a session.
func (m *Manager) moved(key string) {
	if m.bus != nil {
		m.bus.Publish(subjectMoved+token(key), nil)
	}
}

// adoptLeast is the least time between two looks for sessions that are due.
const adoptLeast = 20 * time.Millisecond

// woken returns a channel that receives, from now until end is called, when there may be a session that is due.
func (m *Manager) woken() (wake <-chan struct{}, end func()) {
	if m.bus == nil {
		return nil, func() {}
	}
	signal := make(chan struct{}, 1)
	end, err := m.bus.Subscribe(subjectWake, func(string, []byte) {
		select {
		case signal <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return nil, func() {}
	}
	return signal, end
}
