package session

import (
	"context"
	"io"
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Watcher turns the records of a turn, and the deltas between them, into
// protocol messages. One goroutine may use it at a time; Close may be called
// from any.
//
// What has happened waits in a queue of bounded size. When the queue is full it
// is dropped, and Next goes on from the log, in which every fact is, and with what
// has been said of messages that are not complete.
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
	seq    int64  // of a fact
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
	w.queue, w.bytes = nil, 0
	w.mu.Unlock()
	if lagged {
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
	if failed != nil && !w.over && !w.behind() {
		w.view.fail(failed)
		w.over = true
	}
	if w.over {
		w.Close()
		return w.view.take(), io.EOF
	}
	return w.view.take(), nil
}

// watchPage is how many records a watcher that catches up reads at once.
const watchPage = 32

// catchUp renders what the log has up to the last record that the session has
// applied; what is applied later comes through the queue. A record that is
// durable but not applied must wait: a client could answer a call that the
// session does not know yet. When that is more than may wait for a watcher, the
// next call goes on.
func (w *Watcher) catchUp(ctx context.Context) error {
	w.s.mu.Lock()
	applied := w.s.seq
	live := w.s.liveLocked(w.view.turnID)
	w.mu.Lock()
	w.lagged = false
	w.mu.Unlock()
	w.s.mu.Unlock()
	left := w.s.limits.WatchBytes
	for rec, err := range w.s.records(ctx, w.cursor, watchPage) {
		if err != nil {
			return err
		}
		if rec.Seq > applied || rec.TurnID != w.view.turnID {
			break
		}
		if left <= 0 {
			w.lag()
			return nil
		}
		left -= len(rec.Data)
		fact, err := w.s.decode(rec)
		if err != nil {
			return err
		}
		w.render(item{seq: rec.Seq, fact: fact})
		if w.over {
			return nil
		}
	}
	w.showLive(live, max(left, 1))
	return nil
}

// liveLocked returns what has been said of the messages of a turn that are not
// complete, as one delta each and kind.
func (s *Session) liveLocked(turnID string) []*Delta {
	if s.turn == nil || s.turn.id != turnID {
		return nil
	}
	var live []*Delta
	for _, id := range slices.Sorted(maps.Keys(s.turn.streamed)) {
		m := s.turn.streamed[id]
		live = append(live,
			&Delta{MessageID: id, Path: m.path, Text: m.thoughts.String(), Thought: true},
			&Delta{MessageID: id, Path: m.path, Text: m.text.String()})
	}
	return live
}

// showLive renders what of that has not been shown, and leaves to the next call
// of Next what takes more than the bytes left.
func (w *Watcher) showLive(live []*Delta, left int) {
	for _, d := range live {
		seen := w.view.seen(d)
		end := seen + left
		for end < len(d.Text) && !utf8.RuneStart(d.Text[end]) {
			end++
		}
		more := end < len(d.Text)
		if more {
			d.Text = d.Text[:end]
		}
		w.view.delta(d, 0)
		if more {
			w.lag()
			return
		}
		left = end - len(d.Text)
	}
}

// behind tells whether the log holds more than has been rendered.
func (w *Watcher) behind() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lagged
}

// lag has the next call of Next go on from the log.
func (w *Watcher) lag() {
	w.mu.Lock()
	w.queue, w.bytes, w.lagged = nil, 0, true
	w.mu.Unlock()
	w.wake()
}

func (w *Watcher) render(it item) {
	if it.delta != nil {
		w.view.delta(it.delta, it.offset)
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
