package server

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
)

// follower sends a client the events of a turn or of a session. Run, WatchTurn and
// WatchSession share its loop. Only the handler goroutine uses it.
type follower struct {
	srv  *Server
	feed feed
	view view
	hint string // what a client does after its stream reaches the age limit

	peer  peer
	quiet <-chan time.Time // fires when peer.onQuiet is due

	batch []session.Placed // reused
}

// feed yields the events that a client follows.
type feed interface {
	watcher
	// Ready receives a value when Next has something to return.
	Ready() <-chan struct{}
	// Next returns the next events. io.EOF ends the stream.
	Next(ctx context.Context) ([]session.Placed, error)
}

// peer is the client's side of a stream.
type peer interface {
	// send sends one message of the feed. more says whether another one follows at
	// once. An error ends the stream.
	send(e session.Placed, more bool) error
	// hold keeps the room that the next messages take, and frees the room before; nil
	// only frees.
	hold(room *lease)
	// forwarded is called after the feed's events are sent; n counts the messages.
	forwarded(n int) error
	// onQuiet is called when follower.quiet fires.
	onQuiet() error
	// replies returns the replies to the client's own messages; nil while none may be
	// sent.
	replies() <-chan *agentdv1.RunResponse
	// reply sends a reply.
	reply(msg *agentdv1.RunResponse) error
	// stops receives why the stream must end; nil if only its feed and limits end it.
	stops() <-chan *fault.Error
	// leaves is closed when the client is to go to another server, which has its session. It is nil while this server
	// has the session.
	leaves() <-chan struct{}
	// stopped returns the error to end with, after the stream was asked to stop or its
	// feed failed with err.
	stopped(err error) *fault.Error
}

// follow sends what the feed yields until the feed ends, which is no error. It returns
// a *fault.Error for the client if the stream must end before, the context's cause if
// the context ends, and otherwise why the client cannot be reached.
func (f *follower) follow(ctx context.Context) error {
	age := time.NewTimer(f.srv.now().StreamTimeout)
	defer age.Stop()
	proof := f.srv.proofOf(ctx)
	defer proof.stop()
	for {
		var err error
		select {
		case <-f.feed.Ready():
			err = f.forward(ctx)
		case msg := <-f.peer.replies():
			err = f.peer.reply(msg)
		case <-f.quiet:
			err = f.peer.onQuiet()
		case e := <-f.peer.stops():
			err = f.peer.stopped(e)
		case <-f.peer.leaves():
			err = f.peer.stopped(errElsewhere)
		case <-age.C:
			err = f.tooOld()
		case <-proof.due():
			if e := proof.again(); e != nil {
				err = e
			}
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// tooOld ends a stream that was open for as long as one may be.
func (f *follower) tooOld() error {
	return fault.Errorf(codeTimeout, "the stream was open for %v, its limit; %s", f.srv.now().StreamTimeout, f.hint)
}

// forward sends what the feed has. It returns io.EOF at the feed's end.
func (f *follower) forward(ctx context.Context) error {
	room, err := f.srv.outbox.enter(ctx, f.feed, f.srv.now().WriteTimeout)
	f.peer.hold(room)
	defer f.peer.hold(nil)
	var events []session.Placed
	if err == nil {
		events, err = f.feed.Next(ctx)
	}
	if failed := f.sendAll(room, events); failed != nil {
		return failed
	}
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default: // the turn is suspended, the session is gone, or the log cannot be read
		return f.peer.stopped(err)
	}
}

// sendAll sends what the client sees of events, in pieces of bounded size. Only the
// last piece of an event has its cursor, so a client that has the cursor has all pieces.
func (f *follower) sendAll(room *lease, events []session.Placed) error {
	defer func() {
		clear(f.batch)
		f.batch = f.batch[:0]
	}()
	weight := int64(0)
	for _, e := range events {
		kept := e.Shared.IsKept()
		if room != nil {
			weight += weighPlaced(e)
		}
		if !f.view.keep(e.Message) {
			continue
		}
		if kept && f.view == (view{}) { // its form is clean, and as one piece it was always sent
			f.batch = append(f.batch, e)
			continue
		}
		if kept {
			e.Message = proto.CloneOf(e.Message)
		}
		sent := pieces(e.Message)
		for _, piece := range sent {
			f.batch = append(f.batch, session.Placed{Message: piece})
		}
		last := &f.batch[len(f.batch)-1]
		last.Cursor = e.Cursor
		if len(sent) == 1 && f.view == (view{}) {
			last.Shared = e.Shared
		}
	}
	room.shrink(sendFactor * weight)
	for i, e := range f.batch {
		if err := f.peer.send(e, i < len(f.batch)-1); err != nil {
			return err
		}
	}
	return f.peer.forwarded(len(f.batch))
}

// turnFeed is the feed of a turn, whose events have positions and no cursors.
type turnFeed struct {
	*session.Watcher

	events []session.Placed // reused by Next
}

// Next implements feed. The result is valid until the next call.
func (f *turnFeed) Next(ctx context.Context) ([]session.Placed, error) {
	msgs, err := f.Watcher.Next(ctx)
	clear(f.events)
	f.events = f.events[:0]
	for i, msg := range msgs {
		f.events = append(f.events, session.Placed{Message: msg, Shared: f.Shared(i)})
	}
	return f.events, err
}
