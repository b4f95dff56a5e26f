package session

import (
	"context"
	"errors"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/principal"
)

// Placed is a message of a session with its place.
type Placed struct {
	Message *agentdv1.RunResponse
	// Cursor names the place, after which a client may continue; "" for a message without one.
	Cursor string
	// Shared keeps the wire forms of a message that other clients receive too; nil for most. Of a kept one, see
	// render.Shared.IsKept, what the message refers to must not be changed.
	Shared *render.Shared
}

// errStops is the error of a SessionWatcher when the server stops.
var errStops = fault.Errorf(fault.Unavailable, "the server is stopping: go on behind the last cursor later").
	After(refusal.Soon)

// SessionEvents returns at most limit messages of a session after a cursor, fewer if they are large, and
// whether there are more. keep, if not nil, selects the messages. It resumes no turn. An error that a
// client may see is of type *fault.Error.
func (m *Manager) SessionEvents(
	ctx context.Context, id, cursor string, limit int, keep func(*agentdv1.RunResponse) bool,
) (out []Placed, more bool, err error) {
	w, err := m.watchSession(ctx, id, cursor, false)
	if err != nil {
		return nil, false, err
	}
	defer w.Close()
	for size := 0; ; {
		next, err := w.watcher.Next(ctx) // of its own
		for _, p := range w.place(next) {
			if p.Message.GetSeq() > 0 && (keep == nil || keep(p.Message)) {
				out = append(out, p)
				size += proto.Size(p.Message)
			}
		}
		if len(out) > limit {
			return out[:limit], true, nil
		}
		_, faulted := errors.AsType[*fault.Error](err)
		switch {
		case refusal.IsGone(err):
			return nil, false, err
		case faulted, err == nil && !w.watcher.Lags():
			return out, false, nil
		case err != nil:
			return nil, false, err
		case size >= eventsBytes:
			return out, true, nil
		}
	}
}

// SessionWatcher renders the records of a session, and the deltas between them, as protocol messages,
// across its turns. It takes no part in them. Only one goroutine may call its methods, except Ready.
//
// While no turn runs, it keeps nothing of the session in memory, and is notified when something happens.
// Items wait in the log, and in the bounded queue of a Watcher.
type SessionWatcher struct { //nolint:revive // a Watcher is one of a turn
	m      *Manager
	key    string        // of the session
	ready  chan struct{} // holds one signal
	roused atomic.Bool   // something has happened since the last Next
	stop   atomic.Bool   // the server stops

	// The fields below are owned by the goroutine that calls Next.
	places   render.Places
	replayed int64         // the last record before the client came; -1 while unknown
	s        *live.Session // nil while it is quiet
	done     func()        // ends the use of s
	watcher  *Watcher      // of s
	follows  bool          // s may be one that another server owns, and messages are shared
}

// WatchSession returns a watcher of a session that begins after a cursor; "" is the beginning. Messages may be shared,
// see [Placed]. An error
// that a client may see is of type *fault.Error.
func (m *Manager) WatchSession(ctx context.Context, id, cursor string) (*SessionWatcher, error) {
	return m.watchSession(ctx, id, cursor, true)
}

// watchSession is WatchSession. With follows the session may be one that another server owns.
func (m *Manager) watchSession(ctx context.Context, id, cursor string, follows bool) (*SessionWatcher, error) {
	at, err := render.PlaceOf(cursor, id)
	if err != nil {
		return nil, err
	}
	key, err := m.keyOf(ctx, id)
	if err != nil {
		return nil, err
	}
	w := &SessionWatcher{
		m: m, key: key, ready: make(chan struct{}, 1), places: render.NewPlaces(id, at), replayed: -1,
		follows: follows,
	}
	if err := w.open(ctx); err != nil {
		return nil, err
	}
	m.readers.Add(w.key, w)
	w.rouse()
	return w, nil
}

// Ready receives when Next may have messages. It may also receive when there are none.
func (w *SessionWatcher) Ready() <-chan struct{} { return w.ready }

// Next returns the messages there are now, possibly none, in order. It never waits for
// a turn, only for the store. Any error is final: the session is gone, its log cannot
// be read, or the server stops.
func (w *SessionWatcher) Next(ctx context.Context) (out []Placed, err error) {
	if !w.roused.Swap(false) && w.watcher == nil {
		return nil, nil
	}
	defer func() {
		if err != nil {
			w.leave()
		}
	}()
	stops := w.stop.Load() // before the messages are read, so that none is missed
	if w.watcher == nil {
		if err := w.open(ctx); err != nil {
			return nil, err
		}
	}
	msgs, err := w.watcher.Next(ctx)
	out = w.place(msgs)
	_, over := errors.AsType[*fault.Error](err)
	switch {
	case err != nil && ctx.Err() != nil:
		return out, context.Cause(ctx)
	case over && stops:
		return out, errStops
	case over: // this Watcher has ended: the next call opens another one, or finds that the session is gone
		w.leave()
		w.rouse()
		return out, nil
	case err != nil:
		return out, err
	case w.watcher.Lags():
		w.roused.Store(true)
		return out, nil
	case stops:
		return out, errStops
	}
	if w.m.owners == nil && w.s.IsQuiet() { // else what another server does would not be noticed
		w.leave()
	}
	return out, nil
}

// Close ends the watcher.
func (w *SessionWatcher) Close() {
	w.m.readers.Remove(w.key, w)
	w.leave()
}

// open acquires the session and watches it.
func (w *SessionWatcher) open(ctx context.Context) error {
	s, done, err := w.acquire(ctx)
	at := w.places.Last().At
	if err == nil && w.m.isStale(ctx, s, &at) {
		done()
		s, done, err = w.acquire(ctx)
	}
	if err != nil {
		return err
	}
	if err := s.CheckPlace(ctx, w.places.Last()); err != nil {
		done()
		return err
	}
	w.s, w.done = s, done
	w.watcher, w.replayed = s.WatchWhole(w.places.Last(), w.replayed, w.ready)
	if !w.follows {
		live.Own(w.watcher)
	}
	return nil
}

// acquire returns the session, whose use done ends.
func (w *SessionWatcher) acquire(ctx context.Context) (s *live.Session, done func(), err error) {
	ref, err := w.m.acquireKey(ctx, w.key)
	if err != nil && w.follows && isElsewhere(err) {
		s, done, far := w.m.followFor(ctx, w.key)
		if errors.Is(far, errUnheard) {
			return nil, nil, err
		}
		return s, done, far
	}
	if err != nil {
		return nil, nil, err
	}
	if err = notFound(ref.Value, principal.Of(ctx)); ref.Value.IsUnmade() {
		err = refusal.NoSession(w.key)
	}
	if err != nil {
		w.m.release(ref)
		return nil, nil, err
	}
	w.m.sessions.Observe(ref)
	w.m.observes(ref.Value)
	return ref.Value, func() { w.m.releaseObserver(ref) }, nil
}

// leave releases what open has acquired.
func (w *SessionWatcher) leave() {
	if w.watcher == nil {
		return
	}
	w.watcher.Close()
	w.done()
	w.s, w.done, w.watcher = nil, nil, nil
}

// place gives messages their places.
func (w *SessionWatcher) place(msgs []*agentdv1.RunResponse) []Placed {
	ends := live.TakeEnds(w.watcher)
	out := make([]Placed, 0, len(msgs))
	for i, m := range msgs {
		if cursor, repeated := w.places.Next(m, ends); !repeated {
			out = append(out, Placed{Message: m, Cursor: cursor, Shared: w.watcher.Shared(i)})
		}
	}
	return out
}

func (w *SessionWatcher) rouse() {
	w.roused.Store(true)
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// rouseReaders notifies the SessionWatchers of a session.
func (m *Manager) rouseReaders(key string) { m.readers.Of(key, (*SessionWatcher).rouse) }

// endReaders ends, in a server that stops, the SessionWatchers of sessions without a running turn.
func (m *Manager) endReaders() {
	running := map[string]bool{}
	for _, d := range m.runningNow() {
		running[d.Key()] = true
	}
	m.readers.All(func(key string, w *SessionWatcher) {
		if !running[key] && !w.stop.Swap(true) {
			w.rouse()
		}
	})
}

// Weight returns about how many bytes of memory the next call of Next, and sending its messages, take at
// most.
func (w *SessionWatcher) Weight(ctx context.Context) int64 {
	if w.watcher == nil {
		if !w.roused.Load() {
			return 0
		}
		if err := w.open(ctx); err != nil {
			return 0 // Next retries and returns the error
		}
	}
	return w.watcher.Weight(ctx)
}

// Lags reports whether Weight and Next read a log that may be long.
func (w *SessionWatcher) Lags() bool {
	if w.watcher == nil {
		return w.roused.Load()
	}
	return w.watcher.Lags()
}
