package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
)

// watchStream is one call of WatchTurn or WatchSession. Only the goroutine of its
// handler uses it.
type watchStream struct {
	s         *Server
	exchange  *exchange
	sessionID string
	hint      string // see follower
	greets    bool   // the first message is a heartbeat
	view      view
	feed      *roamer
	put       func(session.Placed) error // without a message: the headers
	trailer   func() http.Header

	heartbeats *time.Ticker
	bounded    bool // what is written next has a time limit
}

// serve sends the feed's events until the stream ends.
func (w *watchStream) serve(ctx context.Context) error {
	// The headers tell the client that it is attached, long before the first event if
	// there is none.
	if err := w.write(session.Placed{}); err != nil {
		return err
	}
	defer func() { // the end of the stream, of connect and of net/http, which go out together
		w.exchange.bound(w.s.now().WriteTimeout)
		w.exchange.more(true)
	}()
	if w.greets {
		if err := w.onQuiet(); err != nil {
			return err
		}
	}
	w.heartbeats = time.NewTicker(w.s.now().HeartbeatEvery)
	defer w.heartbeats.Stop()
	f := &follower{srv: w.s, feed: w.feed, view: w.view, hint: w.hint, peer: w, quiet: w.heartbeats.C}
	err := f.follow(ctx)
	if e, ok := errors.AsType[*fault.Error](err); ok {
		if w.s.says(ctx, e) {
			w.trailer().Set(headerMoved, "1")
		}
		accessOf(ctx).failedWith(e.Code)
		w.s.limited(e)
		return w.send(session.Placed{Message: errorResponse(w.sessionID, e)}, false)
	}
	return err
}

func (w *watchStream) hold(room *lease) { w.exchange.hold(room) }

func (w *watchStream) send(e session.Placed, more bool) error {
	w.exchange.more(more)
	w.view.apply(e.Message)
	return w.write(e)
}

// write bounds one write, and those that follow it at once. HTTP/2 resets a stream when its deadline passes, also when
// nothing is written.
func (w *watchStream) write(e session.Placed) error {
	if !w.bounded {
		w.exchange.bound(w.s.now().WriteTimeout)
	}
	err := w.put(e)
	if w.bounded = w.exchange.hasMore() && err == nil; !w.bounded {
		w.exchange.unbound()
	}
	return err
}

// forwarded puts off the next heartbeat.
func (w *watchStream) forwarded(n int) error {
	if n > 0 {
		w.heartbeats.Reset(w.s.now().HeartbeatEvery)
	}
	return nil
}

// onQuiet sends a heartbeat.
func (w *watchStream) onQuiet() error {
	beat := &agentdv1.RunResponse_HeartbeatResponse{SessionId: w.sessionID}
	return w.send(session.Placed{Message: &agentdv1.RunResponse{
		Response: &agentdv1.RunResponse_Heartbeat{Heartbeat: beat},
	}}, false)
}

// A client that only watches sends nothing, so it has no replies and no reason to stop.

func (*watchStream) replies() <-chan *agentdv1.RunResponse { return nil }
func (*watchStream) reply(*agentdv1.RunResponse) error     { return nil }
func (*watchStream) stops() <-chan *fault.Error            { return nil }

// leaves implements peer.
func (w *watchStream) leaves() <-chan struct{} {
	if w.feed.isHere() {
		return nil
	}
	return w.s.drain.Done()
}

func (w *watchStream) stopped(err error) *fault.Error {
	return w.s.internal("read "+w.sessionID, err)
}
