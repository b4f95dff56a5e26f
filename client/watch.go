package client

import (
	"context"
	"errors"
	"iter"
	"maps"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// WithCursor has [Session.Watch] and [Session.Events] begin behind an event, by its
// [Event].Cursor; "" is the beginning of the session. A cursor of another session is
// INVALID_REQUEST.
func WithCursor(cursor string) WatchOption {
	return option{0, func(c *runConfig) { c.cursor = cursor }}
}

// Events yields what has happened in the session so far, in all of its turns and in the
// order in which it happened, and asks for the next page when it needs one. Unlike a
// run it yields the error of a turn that failed as an event. The [StateUpdate] with which
// a turn begins has what the request of that turn has set, not the whole state.
func (s *Session) Events(ctx context.Context, opts ...WatchOption) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		rc, err := s.watchConfig(opts)
		if err != nil {
			yield(nil, err)
			return
		}
		req := &agentdv1.ListSessionEventsRequest{SessionId: s.id, Cursor: rc.cursor}
		for more := true; more; {
			page, err := unaryWith(ctx, s.client, rc, s.client.sessions.ListSessionEvents, req)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range page.GetEvents() {
				if event := s.placed(e.GetEvent(), e.GetCursor()); event != nil && !yield(event, nil) {
					return
				}
			}
			more = page.GetMore() && page.GetNextCursor() != req.GetCursor()
			req.Cursor = page.GetNextCursor()
		}
	}
}

// Watch yields what [Session.Events] does and then what happens from now on, across
// turns, with text that is on its way. It ends when the loop is left, with ctx, or with
// an error: SESSION_NOT_FOUND when the session is deleted. Who watches a session wakes
// no turn, is asked for nothing and keeps no turn from being suspended or canceled; the
// turns that others start are seen as well as those of this client.
//
// A connection that breaks is set up again, as [WithReconnect] says, and the events go
// on where they were: none is lost and none comes twice. [ConnectionLost] and
// [ConnectionRestored] tell of it. After [ConnectionAbandoned] the error is UNAVAILABLE:
// another Watch with the last [Event].Cursor continues. A stream on which nothing comes
// for four intervals of [WithHeartbeatInterval] counts as lost.
//
// Nothing is read while the caller handles an event; the server waits, and drops a
// client that is much too slow, which then continues as after a lost connection.
func (s *Session) Watch(ctx context.Context, opts ...WatchOption) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		rc, err := s.watchConfig(opts)
		if err != nil {
			yield(nil, err)
			return
		}
		w := &watch{
			session: s, rc: rc, cursor: rc.cursor, yield: yield,
			out: outage{policy: s.client.cfg.reconnect}, unserved: make(map[string]bool),
		}
		if err := w.follow(ctx); err != nil && !w.left {
			if err.SessionID == "" {
				err.SessionID = s.id
			}
			yield(nil, err)
		}
	}
}

// watchConfig applies the options of reading a session.
func (s *Session) watchConfig(opts []WatchOption) (*runConfig, error) {
	if s.id == "" {
		return nil, errorf(ErrInvalidRequest, "client.Session needs the id of a session")
	}
	return s.client.configure(useRequest, func(rc *runConfig) {
		for _, o := range s.request(nil) {
			o.applyRequest(rc)
		}
		for _, o := range opts {
			o.applyWatch(rc)
		}
	})
}

// placed is the event of a message, nil for a heartbeat.
func (s *Session) placed(m *agentdv1.RunResponse, cursor string) *Event {
	event := EventOf(m)
	if event != nil {
		event.Cursor, event.SessionID = cursor, s.id
	}
	return event
}

// watch is one Watch, on as many streams as it takes. It is used by the goroutine that
// ranges alone.
type watch struct {
	session *Session
	rc      *runConfig
	cursor  string // of the last event
	yield   func(*Event, error) bool
	left    bool // the caller wants no more
	out     outage

	// Of the stream that is open.
	heard, news bool     // something came; something new
	heads       []*Event // pieces of an event that has its place with the last one

	why      *Error // why the connection was lost; nil while there is one
	since    time.Time
	attempts int
	unserved map[string]bool // calls whose ToolCallUnserved was delivered
}

// errSilent is the cause by which a stream ends on which nothing comes.
var errSilent = errors.New("the server has said nothing for too long")

// follow opens one stream after the other. It returns why there is none any more.
func (w *watch) follow(ctx context.Context) *Error {
	ctx, sent := w.session.client.newSentToken(ctx)
	for {
		opened := time.Now()
		failure, lost := w.read(ctx)
		switch {
		case w.left:
			return nil
		case ctx.Err() != nil:
			return fromContext(ctx)
		case w.out.policy.Off, !lost && !sent.renewed(ctx, failure):
			return failure
		}
		if w.news || w.heard && time.Since(opened) > w.out.policy.Cap {
			w.out.over()
		}
		if w.lost(failure); w.left {
			return nil
		}
		delay, ok := w.out.next(time.Now(), failure.RetryAfter)
		if !ok {
			w.report(&ConnectionAbandoned{After: time.Since(w.since), Attempts: w.attempts, Err: new(*failure)})
			gaveUp := errorf(ErrUnavailable, "the connection was lost and %d attempts in %s did not bring it back: %w",
				w.attempts, w.out.policy.MaxElapsed, failure)
			gaveUp.RetryAfter = failure.RetryAfter
			return gaveUp
		}
		w.attempts++
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// read reads one stream to its end, and reports whether another one may continue.
func (w *watch) read(outer context.Context) (failure *Error, lost bool) {
	w.heard, w.news, w.heads = false, false, nil
	ctx, cancel := context.WithCancelCause(outer)
	defer cancel(nil)
	limit := 4 * w.session.client.cfg.heartbeat
	silence := time.AfterFunc(max(limit, time.Second), func() { cancel(errSilent) })
	defer silence.Stop()
	if limit == 0 {
		silence.Stop()
	}
	req := connect.NewRequest(&agentdv1.WatchSessionRequest{SessionId: w.session.id, Cursor: w.cursor})
	maps.Copy(req.Header(), w.rc.header)
	stream, err := w.session.client.sessions.WatchSession(ctx, req)
	if err != nil {
		return w.broken(ctx, outer, err)
	}
	defer func() {
		cancel(nil)
		_ = stream.Close()
	}()
	var said *Error // why the server ends the stream
	for stream.Receive() {
		silence.Stop()
		if m := stream.Msg().GetEvent(); m.GetError() != nil && m.GetSeq() == 0 {
			said = fromResponse(m.GetError())
		} else {
			w.handle(m, stream.Msg().GetCursor())
		}
		if w.left {
			return nil, false
		}
		if limit > 0 {
			silence.Reset(limit)
		}
	}
	if said != nil {
		return said, lostCode(said.Code)
	}
	return w.broken(ctx, outer, stream.Err())
}

// broken says why a stream has ended about which the server has not said why.
func (w *watch) broken(ctx, outer context.Context, err error) (failure *Error, lost bool) {
	switch {
	case errors.Is(context.Cause(ctx), errSilent):
		return errorf(ErrUnavailable, "the stream failed: %w", errSilent), true
	case err == nil:
		return errorf(ErrUnavailable, "the server closed the stream without a word"), true
	}
	failure = fromUnary(outer, err)
	if failure.Err == nil { // the server has refused the stream
		return failure, lostCode(failure.Code)
	}
	return failure, lostStream(err)
}

// handle takes a message that does not end the stream.
func (w *watch) handle(m *agentdv1.RunResponse, cursor string) {
	w.heard = true
	if w.restored(); w.left {
		return
	}
	event := w.session.placed(m, cursor)
	switch {
	case event == nil:
		return
	case cursor != "":
		w.cursor, w.news = cursor, true
		for _, head := range w.heads {
			w.deliver(head)
		}
		w.heads = nil
	case event.OutputChunk != nil, event.StateUpdate != nil:
		w.heads = append(w.heads, event) // it comes again if the last piece does not come
		return
	case m.GetToolCallUnserved() != nil: // which is said again to each client that comes back
		if len(w.unserved) >= maxUnserved {
			clear(w.unserved)
		}
		id := m.GetToolCallUnserved().GetToolCallId()
		if w.unserved[id] {
			return
		}
		w.unserved[id] = true
	}
	w.deliver(event)
}

func (w *watch) deliver(event *Event) {
	if !w.left {
		w.left = !w.yield(event, nil)
	}
}

// report delivers an event about the connection.
func (w *watch) report(data EventData) {
	event := newEvent(data)
	event.SessionID = w.session.id
	w.deliver(event)
}

func (w *watch) lost(failure *Error) {
	if w.why == nil {
		w.why, w.since, w.attempts = failure, time.Now(), 0
		w.report(&ConnectionLost{Err: new(*failure)})
	}
}

func (w *watch) restored() {
	if w.why != nil {
		w.why = nil
		w.report(&ConnectionRestored{After: time.Since(w.since), Attempts: w.attempts})
	}
}
