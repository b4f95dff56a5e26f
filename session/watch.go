package session

import (
	"context"
	"io"
	"sync"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Watcher turns the records of a turn, and the deltas between them, into
// protocol messages. One goroutine may use it at a time; Close may be called
// from any.
//
// What has happened waits in a queue of bounded size. When the queue is full it
// is dropped, and Next goes on from the log, in which every fact is; of the
// dropped deltas, the event that completes their message brings the text.
type Watcher struct {
	s     *Session
	ready chan struct{} // holds one signal

	// The fields below are owned by the goroutine that calls Next.
	view   *view
	cursor int64 // the last record rendered
	over   bool  // the end has been rendered

	mu     sync.Mutex // protects the fields below; taken after s.mu
	queue  []item
	bytes  int
	lagged bool // the queue was dropped: read the log
	failed *Error
	closed bool
}

// item is a fact or a delta on its way to a watcher.
type item struct {
	seq    int64  // of a fact; for a delta, of the last fact before it
	fact   any    // see entry.fact
	delta  *Delta // of a hint
	offset int    // bytes of the message and kind that came before the delta
	size   int
}

func newWatcher(s *Session, t *Turn) *Watcher {
	return &Watcher{
		s:      s,
		ready:  make(chan struct{}, 1),
		view:   newView(s.id, t),
		cursor: t.startSeq - 1,
		lagged: true,
	}
}

// Ready receives when Next may have something to give. It may receive without
// cause.
func (w *Watcher) Ready() <-chan struct{} { return w.ready }

// Next returns the messages there are now, possibly none, in order, and io.EOF
// with or after the last message of the turn. It never waits for the turn, only
// for the store. Any other error is final: the log could not be read.
func (w *Watcher) Next(ctx context.Context) ([]*agentdv1.RunResponse, error) {
	if w.over {
		return nil, io.EOF
	}
	w.mu.Lock()
	lagged, failed, queue := w.lagged, w.failed, w.queue
	w.lagged, w.queue, w.bytes = false, nil, 0
	w.mu.Unlock()
	if lagged {
		// What is pushed from here on lands in the queue; what was dropped
		// before is in the log.
		if err := w.catchUp(ctx); err != nil {
			return w.view.take(), err
		}
	}
	for _, it := range queue {
		if w.over {
			break
		}
		w.render(it)
	}
	if failed != nil && !w.over {
		w.view.fail(failed)
		w.over = true
	}
	if w.over {
		w.Close()
		return w.view.take(), io.EOF
	}
	return w.view.take(), nil
}

func (w *Watcher) catchUp(ctx context.Context) error {
	for rec, err := range w.s.records(ctx, w.cursor) {
		if err != nil {
			w.relag()
			return err
		}
		if rec.TurnID != w.view.turnID {
			break // a later turn
		}
		fact, err := w.s.decode(rec)
		if err != nil {
			return err
		}
		w.render(item{seq: rec.Seq, fact: fact})
		if w.over {
			break
		}
	}
	return nil
}

func (w *Watcher) render(it item) {
	if it.delta != nil {
		// The log, read after a lag, may be ahead of a delta; then its message
		// may be complete already.
		if it.seq >= w.cursor {
			w.view.delta(it.delta, it.offset)
		}
		return
	}
	if it.seq <= w.cursor {
		return
	}
	w.cursor = it.seq
	w.over = w.view.fact(it.fact)
}

// Close lets go of the session. Next returns io.EOF afterwards, or what it had
// begun.
func (w *Watcher) Close() {
	w.s.mu.Lock()
	delete(w.s.watchers, w)
	w.s.mu.Unlock()
	w.mu.Lock()
	w.closed = true
	w.queue = nil
	w.mu.Unlock()
}

// push queues an item, or drops the queue when it is full. It does not block.
func (w *Watcher) push(it item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if !w.lagged {
		l := w.s.limits
		if len(w.queue) > 0 && (len(w.queue) >= l.WatchItems || w.bytes+it.size > l.WatchBytes) {
			w.queue, w.bytes, w.lagged = nil, 0, true
		} else {
			w.queue = append(w.queue, it)
			w.bytes += it.size
		}
	}
	w.wake()
}

// relag has Next read the log again.
func (w *Watcher) relag() {
	w.mu.Lock()
	w.lagged, w.queue, w.bytes = true, nil, 0
	w.mu.Unlock()
}

// fail ends the watcher with an error in place of the turn's end.
func (w *Watcher) fail(err *Error) {
	w.mu.Lock()
	w.failed = err
	w.mu.Unlock()
	w.wake()
}

func (w *Watcher) wake() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}
