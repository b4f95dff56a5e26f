package live

import (
	"context"
	"errors"
	"io"
	"iter"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/backlog"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/recent"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Watcher renders the records of a session after a position, and the deltas between them, as protocol
// messages, until a turn is over. A watcher of a SessionWatcher does not end with a turn. One goroutine
// at a time may use it; Close may be called from any.
//
// Items wait in a queue of bounded size. A full queue is dropped, and Next continues from the log, which
// has every fact, and from the partials.
type Watcher struct {
	s *Session
	t *Turn // nil: always the session's last turn
	// tools are those of calls that may be offered to the client; nil is none. Protected by s.mu.
	tools map[string]bool
	// offered are the tools that the client had when it joined. After Unattended its
	// messages still mark a call as offered while no other client has the offer.
	offered map[string]bool
	asks    bool   // the client takes part in the turn, with or without tools
	by      string // the address of the server that has forwarded the client, "" for none; protected by s.mu
	onClose func()
	// away is why the client, which still reads, gives no results; protected by s.mu.
	away  string
	order int // rises from client to client; protected by s.mu

	// The fields below are owned by the goroutine that calls Next.
	reader *render.Reader
	fresh  bool // the client has sent the prompt, and Next was not called yet: the log to read is short

	// backlog has the items that Next has not rendered. Its lock is taken after s.mu.
	backlog *backlog.Backlog[render.Item]
}

// watch says what a watcher begins with.
type watch struct {
	after int64           // position of the last message the client has
	tools map[string]bool // what the client can be asked for
	asks  bool            // the client takes part
	live  bool            // nothing happened before the client came
	// observes: the watcher stays while its turn is suspended.
	observes bool
	only     bool // messages of other turns are left out
}

// watch returns a watcher that ends with a turn.
func (s *Session) watch(t *Turn, from watch) *Watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &Watcher{
		s:       s,
		t:       t,
		tools:   from.tools,
		offered: from.tools,
		asks:    from.asks,
		fresh:   from.live,
	}
	var failed *fault.Error
	if !from.observes {
		failed = t.failed
	}
	if t.waits != nil && t.startSeq == 0 && s.turn != nil && failed == nil && !from.observes {
		failed = s.turn.failed // the turn that it waits for does not run here
	}
	w.backlog = newBacklog(make(chan struct{}, 1), failed)
	start := render.Start{
		SessionID: s.id, Retention: s.limits().Retention, MaxBytes: s.limits().WatchBytes,
		After: from.after, Turn: t.id, Only: from.only,
	}
	if !from.live {
		start.Replayed = s.seq
	}
	// Rendering starts with the turn, or with the turn that ran when it was queued.
	if now := s.nowLocked(t); now.startSeq > 0 && position.Record(from.after+1) >= now.startSeq {
		start.Rendered = now.startSeq - 1
	} else if t.waits != nil || t.besideSeq > 0 {
		start.Rendered = t.besideSeq - 1
	}
	w.reader = render.NewReader(sessionLog{s}, start)
	w.reader.SetState(t.id, t.snapshot)
	s.joinLocked(w)
	w.backlog.Wake()
	return w
}

// newBacklog returns the backlog of a watcher, which begins with the log.
func newBacklog(ready chan struct{}, failed *fault.Error) *backlog.Backlog[render.Item] {
	if failed == nil {
		return backlog.New[render.Item](ready, nil)
	}
	return backlog.New[render.Item](ready, failed)
}

// ForwardedBy says which server the client is connected to, by the address at which others reach it: "" is this one.
func (w *Watcher) ForwardedBy(address string) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.by = address
}

// Ready receives when Next may have messages. It may also receive when there are none.
func (w *Watcher) Ready() <-chan struct{} { return w.backlog.Ready() }

// Next returns the messages there are now, possibly none, in order, and io.EOF with or after the last
// message of the turn. It never waits for the turn, only for the store. Any other error is final: the log
// could not be read, or, as a *fault.Error, the turn is left open and may be resumed later. What a message
// refers to that [Watcher.Shared] says is kept must not be changed.
func (w *Watcher) Next(ctx context.Context) ([]*agentdv1.RunResponse, error) {
	if w.reader.IsOver() {
		return nil, io.EOF
	}
	w.fresh = false
	queue, lagged, failed := w.backlog.Take()
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
	if failed != nil && !w.backlog.Lags() {
		return w.reader.Take(), failed
	}
	return w.reader.Take(), nil
}

// Shared is render.Reader.Shared of the messages that Next returned last.
func (w *Watcher) Shared(index int) *render.Shared { return w.reader.Shared(index) }

// turnLocked returns the turn that the watcher follows now; nil if the session has no turn.
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
func (l sessionLog) Records(ctx context.Context, after int64) iter.Seq2[*recent.Entry, error] {
	return l.s.recent.Records(ctx, after, watchPage, l.s.page)
}

// Decode returns the fact that a record states.
func (l sessionLog) Decode(rec record.Record) (any, error) { return l.s.decode(rec) }

// catchUp renders the log and the live items; what follows comes through the queue. If the log is
// too long to be rendered at once, the next call continues.
func (w *Watcher) catchUp(ctx context.Context) error {
	live, err := w.live()
	if err != nil {
		return err
	}
	more, err := w.reader.CatchUp(ctx, live)
	switch {
	case errors.Is(err, store.ErrNoSession):
		return refusal.NoSession(w.s.key) // deleted meanwhile
	case errors.Is(err, render.ErrPurged):
		return refusal.Purged(w.s.key) // purged meanwhile
	case more:
		w.backlog.Lag() // the next call of Next continues from the log
	}
	return err
}

// live returns what is not in the log: partials, offers and unserved calls. From now on the queue takes
// items.
func (w *Watcher) live() (out render.Live, err error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	out.Applied = w.s.seq
	out.Bounded, out.Until = w.s.alone, w.s.settled
	if now := w.turnLocked(); now != nil {
		out.Partials, err = w.s.partialsLocked(now, w.reader.After())
		out.Offered, out.Unserved = w.s.askedOfLocked(now, w), w.s.unservedLocked(now)
		if now.startSeq > 0 {
			w.reader.SetState(now.id, now.snapshot)
		}
	}
	w.backlog.CaughtUp()
	return out, err
}

// Close ends the watcher. Request.OnDisconnect says what happens to a turn whose last client closes.
func (w *Watcher) Close() {
	w.s.leave(w)
	w.backlog.Close()
	if w.onClose != nil {
		w.onClose()
	}
}

// CloseAndCancel is Close, and cancels the turn unless another client takes part in it.
func (w *Watcher) CloseAndCancel(reason string) {
	alone := w.isAlone()
	w.Close()
	if alone {
		w.t.Cancel(reason)
	}
}

// isAlone reports whether no other client takes part in the turn.
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

// push keeps an item for Next. It does not block.
func (w *Watcher) push(it render.Item) {
	l := w.s.limits()
	if w.backlog.Push(it, it.Size, l.WatchItems, l.WatchBytes) {
		w.s.store.Lags.Add(1)
	}
}
