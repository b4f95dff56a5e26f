package cli

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

const (
	// silence is how long a stream may say nothing; daemons send a heartbeat every
	// 15 s.
	silence = time.Minute
	// patience is how long a daemon is looked for without any progress: an event, or
	// a stream that held for as long as settled.
	patience = 2 * time.Minute
	settled  = 5 * time.Second
	// firstWait and lastWait bound the waits between tries.
	firstWait, lastWait = 100 * time.Millisecond, 5 * time.Second
)

// Following says what to follow.
type Following struct {
	// Session is required; an empty Turn is its last one.
	Session, Turn string
	// After is the seq of the last event that is known; nil: from the turn's
	// beginning. Cursor is its counterpart for FollowSession.
	After  *int64
	Cursor string
	// Tools can be asked for.
	Tools []string
	// Patient has also the first connection tried again.
	Patient bool
	// Lost is told that the connection is gone and tried again; may be nil. It is
	// called by the goroutine that ranges.
	Lost func(error)
}

// Follow yields the events of a turn up to its end. A connection that is lost is
// set up again, and goes on where it was. The last pair has an *Error if the end
// was not seen.
func (c *Conn) Follow(ctx context.Context, f Following) iter.Seq2[*agentdv1.RunResponse, error] {
	return func(yield func(*agentdv1.RunResponse, error) bool) {
		w := &watcher{conn: c, req: &agentdv1.WatchTurnRequest{SessionId: f.Session, TurnId: f.Turn, AfterSeq: f.After, ToolNames: f.Tools}}
		err := c.insist(ctx, f, func() (streamed, error) { return w.watch(ctx, yield) })
		if err != nil {
			yield(nil, err)
		}
	}
}

// streamed is what has become of a stream.
type streamed struct {
	heard bool // something has come, be it a heartbeat
	news  bool // an event has come
	done  bool // there is nothing more to do: what is followed is over, or nobody listens
}

// insist opens one stream after the other, and returns why there is none any more; nil
// when there is nothing more to do.
func (c *Conn) insist(ctx context.Context, f Following, stream func() (streamed, error)) *Error {
	progress, heard := time.Now(), false
	for tries := 0; ; tries++ {
		opened := time.Now()
		is, err := stream()
		if is.done {
			return nil
		}
		heard = heard || is.heard
		// What is followed may be quiet for hours: then heartbeats alone say that all is well. A
		// stream that is cut as soon as it is open is none that held.
		if is.news || is.heard && time.Since(opened) >= settled {
			progress, tries = time.Now(), 0
		}
		switch e := c.explain(err); {
		case ctx.Err() != nil:
			return &Error{Message: "interrupted", Err: context.Cause(ctx)}
		case !mayPass(e), !heard && !f.Patient, time.Since(progress) > patience:
			return e
		case f.Lost != nil && tries == 0:
			f.Lost(e)
		}
		pause(ctx, rand.N(min(firstWait<<min(tries, 10), lastWait))+time.Millisecond)
	}
}

// watcher is one following; owned by the goroutine that ranges.
type watcher struct {
	conn *Conn
	req  *agentdv1.WatchTurnRequest // after_seq moves on
}

// watch follows one stream to its end.
func (w *watcher) watch(ctx context.Context, yield func(*agentdv1.RunResponse, error) bool) (is streamed, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer quiet.Stop()
	stream, err := w.conn.WatchTurn(ctx, connect.NewRequest(w.req))
	if err != nil {
		return is, err
	}
	defer func() { _ = stream.Close() }()
	var held *agentdv1.RunResponse // an error that may be about the stream alone
	for stream.Receive() {
		quiet.Reset(silence)
		is.heard = true
		event := stream.Msg().GetEvent()
		if event.GetHeartbeat() != nil {
			continue
		}
		if held != nil && !yield(held, nil) {
			is.done = true
			return is, nil
		}
		held = nil
		event = proto.CloneOf(event)
		if seq := event.GetSeq(); seq > w.req.GetAfterSeq() || seq > 0 && w.req.AfterSeq == nil {
			w.req.AfterSeq, is.news = &seq, true
		}
		if event.GetError() != nil && event.GetSeq() == 0 {
			held = event
			continue
		}
		if !yield(event, nil) || event.GetEnd() != nil {
			is.done = true
			return is, nil
		}
	}
	if e := held.GetError(); e != nil {
		return is, refusal(e, nil)
	}
	if err = stream.Err(); err == nil {
		err = errCut
	}
	return is, err
}

var (
	errSilent = errors.New("nothing has come for a minute")
	errCut    = errors.New("the stream has ended too early")
)
