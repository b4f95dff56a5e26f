package session

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Watcher turns the records of a session from a position on, and the deltas
// between them, into protocol messages, until a turn is over; that of a
// SessionWatcher goes on. One goroutine may
// use it at a time; Close may be called from any.
//
// What has happened waits in a queue of bounded size. When the queue is full it
// is dropped, and Next goes on from the log, in which every fact is, and from
// the texts that are on their way.
type Watcher struct {
	s     *Session
	t     *Turn         // nil: whichever is the session's last one
	ready chan struct{} // holds one signal
	// tools are what this client can be asked for; nil is none. Protected by s.mu.
	tools map[string]bool
	// offered are the tools the client came with, also when it has closed its
	// side: as long as nobody else is asked, it is told of calls as if it were.
	offered map[string]bool
	asks    bool // the client takes part in the turn, with or without tools
	onClose func()
	// away is why the client, which still reads, cannot answer; protected by s.mu.
	away  string
	order int // rises from client to client; protected by s.mu

	// The fields below are owned by the goroutine that calls Next.
	reader *render.Reader
	fresh  bool // the client has come with its turn and has seen nothing yet: its log is short

	mu     sync.Mutex // protects the fields below; taken after s.mu
	queue  []render.Item
	bytes  int
	lagged bool // the queue was dropped: read the log
	failed *fault.Error
	closed bool
}

// watch says what a watcher begins with.
type watch struct {
	after int64           // position of the last message the client has
	tools map[string]bool // what the client can be asked for
	asks  bool            // the client takes part
	live  bool            // nothing happened before the client came
	// observes: the client stays while its turn is suspended.
	observes bool
	only     bool // what is about other turns is not shown
}

// watch returns a watcher that ends with a turn.
func (s *Session) watch(t *Turn, from watch) *Watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &Watcher{
		s:       s,
		t:       t,
		ready:   make(chan struct{}, 1),
		tools:   from.tools,
		offered: from.tools,
		asks:    from.asks,
		fresh:   from.live,
		lagged:  true,
	}
	if !from.observes {
		w.failed = t.failed
	}
	if t.waits != nil && t.startSeq == 0 && s.turn != nil && w.failed == nil && !from.observes {
		w.failed = s.turn.failed // what it waits for is not running here
	}
	start := render.Start{
		SessionID: s.id, Retention: s.limits.Retention, MaxBytes: s.limits.WatchBytes,
		After: from.after, Turn: t.id, Only: from.only,
	}
	if !from.live {
		start.Replayed = s.seq
	}
	// What came before the turn, or the one it waits for, does not matter.
	if now := s.nowLocked(t); now.startSeq > 0 && position.Record(from.after+1) >= now.startSeq {
		start.Rendered = now.startSeq - 1
	} else if t.waits != nil || t.besideSeq > 0 {
		start.Rendered = t.besideSeq - 1
	}
	w.reader = render.NewReader(sessionLog{s}, start)
	w.reader.SetState(t.id, t.snapshot)
	s.joinLocked(w)
	w.wake()
	return w
}

// Ready receives when Next may have something to give. It may receive without
// cause.
func (w *Watcher) Ready() <-chan struct{} { return w.ready }

// Next returns the messages there are now, possibly none, in order, and io.EOF
// with or after the last message of the turn. It never waits for the turn, only
// for the store. Any other error is final: the log could not be read, or, as an
// *fault.Error, the turn has been left as it is and will go on later.
func (w *Watcher) Next(ctx context.Context) ([]*agentdv1.RunResponse, error) {
	if w.reader.IsOver() {
		return nil, io.EOF
	}
	w.fresh = false
	lagged, failed, queue := w.takeQueue()
	if lagged {
		if err := w.catchUp(ctx); err != nil {
			return w.reader.Take(), err
		}
	}
	for _, it := range queue {
		w.reader.Render(it)
	}
	if w.reader.IsOver() {
		w.Close()
		return w.reader.Take(), io.EOF
	}
	if failed != nil && !w.lagging() {
		return w.reader.Take(), failed
	}
	return w.reader.Take(), nil
}

// takeQueue empties the queue.
func (w *Watcher) takeQueue() (lagged bool, failed *fault.Error, queue []render.Item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lagged, failed, queue = w.lagged, w.failed, w.queue
	w.queue, w.bytes = nil, 0
	return lagged, failed, queue
}

// turnLocked is the turn that the watcher is about now; nil for that of a session
// without turns.
func (w *Watcher) turnLocked() *Turn {
	if w.t == nil {
		return w.s.turn
	}
	return w.s.nowLocked(w.t)
}

// watchPage is how many records a watcher that catches up reads at once.
const watchPage = 32

// sessionLog is the log of a session as its watchers read it.
type sessionLog struct{ s *Session }

// Records returns the records after a seq.
func (l sessionLog) Records(ctx context.Context, after int64) iter.Seq2[record.Record, error] {
	return l.s.records(ctx, after, watchPage)
}

// Decode returns the fact that a record states.
func (l sessionLog) Decode(rec record.Record) (any, error) { return l.s.decode(rec) }

// catchUp renders the log, and what is live beside it; what comes later comes through the
// queue. When that is more than may wait for a watcher, the next call goes on.
func (w *Watcher) catchUp(ctx context.Context) error {
	live, err := w.live()
	if err != nil {
		return err
	}
	more, err := w.reader.CatchUp(ctx, live)
	switch {
	case errors.Is(err, store.ErrNoSession):
		return refusal.NoSession(w.s.id) // it was deleted meanwhile
	case errors.Is(err, render.ErrPurged):
		return refusal.Purged(w.s.id) // the log has gone meanwhile
	case more:
		w.lag()
	}
	return err
}

// live returns what there is now beside the log. What comes later comes through the queue.
func (w *Watcher) live() (out render.Live, err error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	out.Applied = w.s.seq
	if now := w.turnLocked(); now != nil {
		out.Partials, err = w.s.partialsLocked(now, w.reader.After())
		out.Offered, out.Unserved = w.s.askedOfLocked(now, w), w.s.unservedLocked(now)
		if now.startSeq > 0 {
			w.reader.SetState(now.id, now.snapshot)
		}
	}
	w.caughtUp()
	return out, err
}

// caughtUp says that the queue holds all that is to come.
func (w *Watcher) caughtUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lagged = false
}

// lag has the next call of Next go on from the log.
func (w *Watcher) lag() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue, w.bytes, w.lagged = nil, 0, true
	w.wake()
}

// Close lets go of the session. A turn whose last client closes is on its own:
// see Request.OnDisconnect.
func (w *Watcher) Close() {
	w.s.leave(w)
	lock.Do(&w.mu, func() { w.closed, w.queue = true, nil })
	if w.onClose != nil {
		w.onClose()
	}
}

// CloseAndCancel is Close for a client that wants its turn no more: the turn is
// canceled, unless another client takes part in it.
func (w *Watcher) CloseAndCancel(reason string) {
	alone := w.isAlone()
	w.Close()
	if alone {
		w.t.Cancel(reason)
	}
}

// isAlone tells whether no other client takes part in the turn.
func (w *Watcher) isAlone() bool {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	now := w.s.nowLocked(w.t)
	for other := range w.s.watchers {
		if other != w && other.asks && w.s.nowLocked(other.t) == now {
			return false
		}
	}
	return true
}

// push queues an item, or drops the queue when it is full. It does not block.
func (w *Watcher) push(it render.Item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if !w.lagged {
		l := w.s.limits
		if len(w.queue) > 0 && (len(w.queue) >= l.WatchItems || w.bytes+it.Size > l.WatchBytes) {
			w.queue, w.bytes, w.lagged = nil, 0, true
		} else {
			w.queue = append(w.queue, it)
			w.bytes += it.Size
		}
	}
	w.wake()
}

// lagging tells whether the log holds more than has been rendered.
func (w *Watcher) lagging() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lagged
}

// fail ends the watcher with an error in place of the turn's end.
func (w *Watcher) fail(err *fault.Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = err
	w.wake()
}

func (w *Watcher) wake() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}
