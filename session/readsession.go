package session

import (
	"context"
	"errors"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/record"
)

// Placed is a message of a session, and its place there.
type Placed struct {
	Message *agentdv1.RunResponse
	// Cursor names the place, for those who go on behind it; "" for what has none.
	Cursor string
}

// errStops is why a reading of a session ends whose server stops.
var errStops = fault.Errorf(fault.Unavailable, "the server is stopping: go on behind the last cursor later").
	After(refusal.Soon)

// SessionEvents returns at most limit messages of a session behind a cursor, fewer if
// they are large, and whether there are more. With keep, those do not count that it
// refuses. The session is left as it is. An error that a client may see is of type
// *fault.Error.
func (m *Manager) SessionEvents(
	ctx context.Context, id, cursor string, limit int, keep func(*agentdv1.RunResponse) bool,
) (out []Placed, more bool, err error) {
	w, err := m.WatchSession(ctx, id, cursor)
	if err != nil {
		return nil, false, err
	}
	defer w.Close()
	for size := 0; ; {
		next, err := w.watcher.Next(ctx)
		for _, p := range w.place(next) {
			if p.Message.GetSeq() > 0 && (keep == nil || keep(p.Message)) {
				out = append(out, p)
				size += proto.Size(p.Message)
			}
		}
		if len(out) > limit {
			return out[:limit], true, nil
		}
		_, aside := errors.AsType[*fault.Error](err)
		switch {
		case refusal.IsGone(err):
			return nil, false, err
		case aside, err == nil && !w.watcher.lagging():
			return out, false, nil
		case err != nil:
			return nil, false, err
		case size >= eventsBytes:
			return out, true, nil
		}
	}
}

// SessionWatcher turns the records of a session, and the deltas between them, into
// protocol messages, across its turns. It takes no part in them. Its methods are for
// one goroutine, but for Ready.
//
// While no turn of the session runs it holds nothing of it in memory; it is woken when
// something happens. What has happened waits in the log, and in the bounded queue of a
// Watcher.
type SessionWatcher struct { //nolint:revive // a Watcher is one of a turn
	m      *Manager
	id     string
	ready  chan struct{} // holds one signal
	roused atomic.Bool   // something has happened since Next looked
	stop   atomic.Bool   // the server stops

	// The fields below are owned by the goroutine that calls Next.
	places   render.Places
	replayed int64    // records up to this one happened before the client came; -1 before that is known
	held     *held    // the session, nil while it is quiet
	watcher  *Watcher // of held
}

// WatchSession returns a watcher of a session that begins behind a cursor, "" is the
// beginning. An error that a client may see is of type *fault.Error.
func (m *Manager) WatchSession(ctx context.Context, id, cursor string) (*SessionWatcher, error) {
	at, err := render.PlaceOf(cursor, id)
	if err != nil {
		return nil, err
	}
	w := &SessionWatcher{m: m, id: id, ready: make(chan struct{}, 1), places: render.NewPlaces(id, at), replayed: -1}
	if err := w.open(ctx); err != nil {
		return nil, err
	}
	m.readers.Add(id, w)
	w.rouse()
	return w, nil
}

// Ready receives when Next may have something to give. It may receive without cause.
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
	stops := w.stop.Load() // before what there is is read
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
	case over: // what was held is of no use any more: whether there is the session another one tells
		w.leave()
		w.rouse()
		return out, nil
	case err != nil:
		return out, err
	case w.watcher.lagging():
		w.roused.Store(true)
		return out, nil
	case stops:
		return out, errStops
	}
	if w.held.Value.isQuiet() {
		w.leave()
	}
	return out, nil
}

// Close lets go of the session.
func (w *SessionWatcher) Close() {
	w.m.readers.Remove(w.id, w)
	w.leave()
}

// open takes the session into memory.
func (w *SessionWatcher) open(ctx context.Context) error {
	h, err := w.m.acquire(ctx, w.id)
	if err != nil {
		return err
	}
	if h.Value.isUnmade() {
		err = refusal.NoSession(w.id)
	} else {
		err = h.Value.checkPlace(ctx, w.places.Last())
	}
	if err != nil {
		w.m.release(h)
		return err
	}
	w.m.sessions.Observe(h)
	w.held = h
	w.watcher, w.replayed = h.Value.watchWhole(w.places.Last(), w.replayed, w.ready)
	return nil
}

// leave lets go of what open has taken.
func (w *SessionWatcher) leave() {
	if w.watcher == nil {
		return
	}
	w.watcher.Close()
	w.m.sessions.ReleaseObserver(w.held)
	w.held, w.watcher = nil, nil
}

// place gives messages their places.
func (w *SessionWatcher) place(msgs []*agentdv1.RunResponse) []Placed {
	ends := w.watcher.reader.TakeEnds()
	out := make([]Placed, 0, len(msgs))
	for _, m := range msgs {
		if cursor, again := w.places.Next(m, ends); !again {
			out = append(out, Placed{Message: m, Cursor: cursor})
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

// watchWhole returns a watcher of all turns of a session, from a place on, that takes no part.
// replayed is the last record that happened before the client came, which is the session's
// last one if it is negative.
func (s *Session) watchWhole(at render.Place, replayed int64, ready chan struct{}) (*Watcher, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if replayed < 0 {
		replayed = s.seq
	}
	w := &Watcher{s: s, ready: ready, lagged: true, reader: render.NewReader(sessionLog{s}, render.Start{
		SessionID: s.id, Retention: s.limits.Retention, MaxBytes: s.limits.WatchBytes,
		After: at.At, Rendered: max(at.From-1, 0), Replayed: replayed,
	})}
	s.joinLocked(w)
	w.wake()
	return w, replayed
}

// checkPlace refuses a place that the session does not have.
func (s *Session) checkPlace(ctx context.Context, p render.Place) error {
	last := lock.Get(&s.mu, func() int64 { return s.seq })
	if position.Record(p.At) > last {
		return fault.Errorf(fault.Invalid, "cursor: session %q has not come that far", s.id).
			Breaking("cursor", fault.RuleRange)
	}
	if p.From == 0 {
		return nil
	}
	// Rendering begins where nothing before it matters.
	if p.From <= position.Record(p.At)+1 {
		for rec, err := range s.records(ctx, max(p.From-2, 0), 2) {
			switch {
			case err != nil:
				return err
			case rec.Seq == p.From-1 && rec.Kind == record.KindTurnEnded,
				rec.Seq == p.From && rec.Kind == record.KindTurnStarted:
				return nil
			}
			if rec.Seq >= p.From {
				break
			}
		}
	}
	return render.ErrNoCursor
}

// isQuiet tells whether no turn runs, or is about to.
func (s *Session) isQuiet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starting == nil && (s.turn == nil || !s.turn.runs())
}

// rouse tells those who read the whole session that something has happened.
func (s *Session) rouse() {
	if s.manager != nil {
		s.manager.rouseReaders(s.id)
	}
}

// rouseReaders tells the watchers of a whole session that something has happened.
func (m *Manager) rouseReaders(id string) { m.readers.Of(id, (*SessionWatcher).rouse) }

// endReaders ends, in a server that stops, the watchers of sessions of which no turn
// runs.
func (m *Manager) endReaders() {
	running := map[string]bool{}
	for _, a := range m.runningNow() {
		running[a.t.s.id] = true
	}
	m.readers.All(func(id string, w *SessionWatcher) {
		if !running[id] && !w.stop.Swap(true) {
			w.rouse()
		}
	})
}
