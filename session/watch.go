package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/refusal"
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
	view   *view
	read   int64   // the last record rendered
	over   bool    // the end has been rendered
	fresh  bool    // the client has come with its turn and has seen nothing yet: its log is short
	target string  // the turn whose end is the watcher's; "" for none
	cuts   []int64 // records behind which a long log may be cut, in order; see cut
	behind int64   // records up to this one happened before the client came

	mu     sync.Mutex // protects the fields below; taken after s.mu
	queue  []item
	bytes  int
	lagged bool // the queue was dropped: read the log
	failed *fault.Error
	closed bool
}

// item is a fact, a delta, or a call that is handed to this client.
type item struct {
	pos   int64
	rec   record.Record // of a fact
	fact  any           // see entry.fact
	delta *record.Delta
	offer *record.ToolCall
	// unserved is a call that no client is asked for.
	unserved *unservedCall
	mine     []string // the calls of the fact that this watcher's client is asked for
	old      bool     // the delta is of a message that was complete before the client came
	size     int
	// snapshot is the state at the start of a turn, of its first fact.
	snapshot map[string]any
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
		target:  t.id,
		view: &view{
			sessionID: s.id,
			at:        from.after,
			snapshots: map[string]map[string]any{t.id: t.snapshot},
			rendered:  rendered{asked: map[string]bool{}},
			retention: s.limits.Retention,
		},
		lagged: true,
	}
	if !from.observes {
		w.failed = t.failed
	}
	if from.only {
		w.view.only = t.id
	}
	if t.waits != nil && t.startSeq == 0 && s.turn != nil && w.failed == nil && !from.observes {
		w.failed = s.turn.failed // what it waits for is not running here
	}
	if w.fresh = from.live; !from.live {
		w.behind = s.seq
	}
	// What came before the turn, or the one it waits for, does not matter.
	if now := s.nowLocked(t); now.startSeq > 0 && position.Record(from.after+1) >= now.startSeq {
		w.read = now.startSeq - 1
	} else if t.waits != nil || t.besideSeq > 0 {
		w.read = t.besideSeq - 1
	}
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
	if w.over {
		return nil, io.EOF
	}
	w.fresh = false
	lagged, failed, queue := w.takeQueue()
	if lagged {
		err := w.catchUp(ctx)
		if errors.Is(err, store.ErrNoSession) {
			err = refusal.NoSession(w.s.id) // it was deleted meanwhile
		}
		if err != nil {
			return w.view.take(), err
		}
	}
	for _, it := range queue {
		w.render(it)
	}
	if w.over {
		w.Close()
		return w.view.take(), io.EOF
	}
	if failed != nil && !w.lagging() {
		return w.view.take(), failed
	}
	return w.view.take(), nil
}

// takeQueue empties the queue.
func (w *Watcher) takeQueue() (lagged bool, failed *fault.Error, queue []item) {
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

// catchUp renders what the log has up to the last record that the session has
// applied, and the texts that are on their way; what comes later comes through
// the queue. A record that is durable but not applied must wait: a client could
// answer a call that the session does not know yet. When that is more than may
// wait for a watcher, the next call goes on.
func (w *Watcher) catchUp(ctx context.Context) error {
	now, err := w.present()
	if err != nil {
		return err
	}
	upTo := now.seq
	cut, err := w.cut(ctx, upTo, now.partials)
	if err != nil {
		return err
	}
	if cut < upTo {
		now = present{}
		w.lag()
	}
	facts, err := w.facts(ctx, cut)
	if err != nil {
		return err
	}
	items := slices.Concat(now.partials, facts)
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(a.pos, b.pos) })
	for _, it := range items {
		for _, call := range now.offered {
			it.mine = append(it.mine, call.ID)
		}
		w.render(it)
	}
	if !w.over && w.read < cut {
		return refusal.Purged(w.s.id) // the log has gone meanwhile
	}
	if !w.over && cut == upTo {
		for _, call := range now.offered { // those whose request this client may have lost
			w.view.offer(call)
		}
		for _, u := range now.unserved {
			w.view.unserved(u)
		}
	}
	return nil
}

// present is what a session has beside its log for a watcher.
type present struct {
	seq      int64  // the last record that is applied
	partials []item // the deltas of messages that are not complete
	offered  []record.ToolCall
	unserved []unservedCall
}

// present returns what there is now. What comes later comes through the queue.
func (w *Watcher) present() (out present, err error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	out.seq = w.s.seq
	if now := w.turnLocked(); now != nil {
		out.partials, err = w.s.partialsLocked(now, w.view.at)
		out.offered, out.unserved = w.s.askedOfLocked(now, w), w.s.unservedLocked(now)
		if now.startSeq > 0 && !w.view.whole {
			w.view.snapshots[now.id] = now.snapshot
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

// cut returns the record up to which to render at once: not more than may wait
// for a watcher, but never in the middle of a message, whose first deltas come
// before records that follow.
func (w *Watcher) cut(ctx context.Context, upTo int64, partials []item) (int64, error) {
	if fits, err := w.fits(ctx, upTo); fits || err != nil {
		return upTo, err
	}
	if len(w.cuts) == 0 {
		var err error
		if w.cuts, err = w.findCuts(ctx, upTo, partials); err != nil {
			return 0, err
		}
	}
	next := w.cuts[0]
	w.cuts = w.cuts[1:]
	return next, nil
}

// findCuts looks ahead in the log for the next places to cut, at least one.
func (w *Watcher) findCuts(ctx context.Context, upTo int64, partials []item) ([]int64, error) {
	type step struct {
		seq   int64
		size  int
		first int64 // position of the message's first delta
	}
	var steps []step
	size := 0
	for rec, err := range w.s.records(ctx, w.read, watchPage) {
		if err != nil {
			return nil, err
		}
		if rec.Seq > upTo {
			break
		}
		st := step{seq: rec.Seq, size: len(rec.Data), first: position.Of(rec.Seq, 0)}
		if rec.Kind == record.KindEvent {
			ev, err := w.s.runner.Decode(rec.Data)
			if err != nil {
				return nil, fmt.Errorf("session %s: record %d: %w", w.s.id, rec.Seq, err)
			}
			if first := ev.Marks.First(); first > 0 {
				st.first = first
			}
		}
		steps = append(steps, st)
		if size += st.size; size > w.s.limits.WatchBytes && rec.Kind == record.KindTurnEnded {
			break // no message goes on behind its turn; it may do so behind anything else
		}
	}
	least := position.Of(upTo+1, 0) // of what comes after a step
	for _, it := range partials {
		least = min(least, it.pos)
	}
	may := make([]bool, len(steps))
	for i, st := range slices.Backward(steps) {
		may[i] = least >= position.Of(st.seq, position.Deltas)
		least = min(least, st.first)
	}
	var cuts []int64
	size = 0
	for i, st := range steps {
		if size += st.size; size > w.s.limits.WatchBytes && may[i] {
			cuts, size = append(cuts, st.seq), 0
		}
	}
	if len(cuts) == 0 {
		cuts = []int64{upTo}
	}
	return cuts, nil
}

// fits tells whether what is to be rendered up to a record is not more than may
// wait for a watcher.
func (w *Watcher) fits(ctx context.Context, upTo int64) (bool, error) {
	size := 0
	for rec, err := range w.s.records(ctx, w.read, watchPage) {
		if err != nil {
			return false, err
		}
		if rec.Seq > upTo {
			break
		}
		if size += len(rec.Data); size > w.s.limits.WatchBytes {
			return false, nil
		}
	}
	return true, nil
}

// facts reads the records up to one, and the deltas of their messages.
func (w *Watcher) facts(ctx context.Context, upTo int64) ([]item, error) {
	var items []item
	for rec, err := range w.s.records(ctx, w.read, watchPage) {
		if err != nil {
			return nil, err
		}
		if rec.Seq > upTo {
			break
		}
		fact, err := w.s.decode(rec)
		if err != nil {
			return nil, err
		}
		if ev, ok := fact.(*record.Event); ok {
			ds, err := deltasOf(ev, w.view.at)
			if err != nil {
				return nil, fmt.Errorf("session %s: record %d: %w", w.s.id, rec.Seq, err)
			}
			for i := range ds {
				ds[i].old = rec.Seq <= w.behind
			}
			items = append(items, ds...)
		}
		items = append(items, item{pos: position.Of(rec.Seq, 0), rec: rec, fact: fact})
		if rec.Kind == record.KindTurnEnded && rec.TurnID == w.target {
			break
		}
	}
	return items, nil
}

// lag has the next call of Next go on from the log.
func (w *Watcher) lag() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue, w.bytes, w.lagged = nil, 0, true
	w.wake()
}

func (w *Watcher) render(it item) {
	switch {
	case w.over:
	case it.offer != nil:
		w.view.offer(*it.offer)
	case it.unserved != nil:
		w.view.unserved(*it.unserved)
	case it.delta != nil:
		w.view.delta(it.delta, it.pos, it.old)
	case it.rec.Seq > w.read:
		w.read = it.rec.Seq
		if it.snapshot != nil && !w.view.whole {
			w.view.snapshots[it.rec.TurnID] = it.snapshot
		}
		end := w.view.fact(it.rec, it.fact, it.rec.Seq <= w.behind, it.mine)
		if w.view.joined != "" {
			w.target = w.view.joined
		}
		w.over = end && it.rec.TurnID == w.target
	}
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
