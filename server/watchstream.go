package server

import (
	"context"
	"errors"
	"io"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
)

// watchStream is one call of WatchTurn or WatchSession. It is used by the goroutine of
// its handler alone.
type watchStream struct {
	s         *Server
	exchange  *exchange
	sessionID string
	goOn      string // what a client does whose stream has come to its limit
	greets    bool   // the first message is a heartbeat
	see       projection
	ready     <-chan struct{}
	from      watcher                                         // what next gives comes from it
	next      func(context.Context) ([]session.Placed, error) // io.EOF ends the stream
	put       func(session.Placed) error                      // without a message: the headers
}

// serve sends what comes to the end of the stream.
func (w *watchStream) serve(ctx context.Context) error {
	// The headers tell a client that it is attached, also to what there is nothing to tell of for long.
	if err := w.write(session.Placed{}); err != nil {
		return err
	}
	defer w.exchange.bound(w.s.cfg.WriteTimeout) // the end of the stream
	if w.greets {
		if err := w.heartbeat(); err != nil {
			return err
		}
	}
	quiet := time.NewTicker(w.s.cfg.HeartbeatEvery)
	defer quiet.Stop()
	age := time.NewTimer(w.s.cfg.StreamTimeout)
	defer age.Stop()
	for {
		select {
		case <-w.ready:
		case <-quiet.C:
			if err := w.heartbeat(); err != nil {
				return err
			}
			continue
		case <-age.C:
			return w.fail(session.Errorf(codeTimeout, "the stream was open for %v, its limit; %s", w.s.cfg.StreamTimeout, w.goOn))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		room, err := w.s.outbox.enter(ctx, w.from, w.s.cfg.WriteTimeout)
		w.exchange.hold(room)
		var events []session.Placed
		if err == nil {
			events, err = w.next(ctx)
		}
		sent, sendErr := w.sendAll(room, events)
		w.exchange.hold(nil)
		if sendErr != nil {
			return sendErr
		}
		if sent {
			quiet.Reset(w.s.cfg.HeartbeatEvery)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil: // what is watched was put aside or is gone, or the log cannot be read
			return w.fail(w.s.internal("read "+w.sessionID, err))
		}
	}
}

// sendAll sends what the client sees of events, in pieces of bounded size. Only the
// last piece of an event has its place, so that a client which has it has them all.
func (w *watchStream) sendAll(room *lease, events []session.Placed) (sent bool, err error) {
	var all []session.Placed
	weight := int64(0)
	for _, e := range events {
		if room != nil {
			weight += weigh(e.Message)
		}
		if !w.see.keep(e.Message) {
			continue
		}
		for _, piece := range pieces(e.Message) {
			all = append(all, session.Placed{Message: piece})
		}
		all[len(all)-1].Cursor = e.Cursor
	}
	room.shrink(sendFactor * weight)
	for i, e := range all {
		w.exchange.more(i < len(all)-1)
		if err := w.send(e.Message, e.Cursor); err != nil {
			return true, err
		}
	}
	return len(all) > 0, nil
}

func (w *watchStream) heartbeat() error {
	beat := &agentdv1.RunResponse_HeartbeatResponse{SessionId: w.sessionID}
	return w.send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_Heartbeat{Heartbeat: beat}}, "")
}

// fail says why the stream ends.
func (w *watchStream) fail(e *session.Error) error {
	return w.send(errorResponse(w.sessionID, e), "")
}

func (w *watchStream) send(event *agentdv1.RunResponse, cursor string) error {
	w.see.apply(event)
	return w.write(session.Placed{Message: event, Cursor: cursor})
}

// write bounds one write. HTTP/2 resets a stream when its deadline passes, also when
// nothing is written.
func (w *watchStream) write(e session.Placed) error {
	w.exchange.bound(w.s.cfg.WriteTimeout)
	defer w.exchange.unbound()
	return w.put(e)
}
