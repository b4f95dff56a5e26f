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
	// patience is how long a daemon is looked for without anything new.
	patience = 2 * time.Minute
	// firstWait and lastWait bound the waits between tries.
	firstWait, lastWait = 100 * time.Millisecond, 5 * time.Second
)

// Following says what to follow.
type Following struct {
	// Session is required; an empty Turn is its last one.
	Session, Turn string
	// After is the seq of the last event that is known; nil: from the turn's
	// beginning.
	After *int64
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
		last := time.Now()
		for tries := 0; ; tries++ {
			news, done, err := w.watch(ctx, yield)
			if done {
				return
			}
			if news {
				last, tries = time.Now(), 0
			}
			switch e := c.explain(err); {
			case ctx.Err() != nil:
				yield(nil, &Error{Message: "interrupted", Err: context.Cause(ctx)})
				return
			case !mayPass(e), !w.begun && !f.Patient, time.Since(last) > patience:
				yield(nil, e)
				return
			case f.Lost != nil && tries == 0:
				f.Lost(e)
			}
			wait := time.NewTimer(rand.N(min(firstWait<<min(tries, 10), lastWait)) + time.Millisecond)
			select {
			case <-wait.C:
			case <-ctx.Done():
				wait.Stop()
			}
		}
	}
}

// watcher is one following; owned by the goroutine that ranges.
type watcher struct {
	conn  *Conn
	req   *agentdv1.WatchTurnRequest // after_seq moves on
	begun bool                       // something has come
}

// watch follows one stream to its end. done says that there is nothing more to
// do: the turn is over or nobody listens.
func (w *watcher) watch(ctx context.Context, yield func(*agentdv1.RunResponse, error) bool) (news, done bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer quiet.Stop()
	stream, err := w.conn.WatchTurn(ctx, connect.NewRequest(w.req))
	if err != nil {
		return false, false, err
	}
	defer func() { _ = stream.Close() }()
	var held *agentdv1.RunResponse // an error that may be about the stream alone
	for stream.Receive() {
		quiet.Reset(silence)
		w.begun = true
		event := stream.Msg().GetEvent()
		if event.GetHeartbeat() != nil {
			continue
		}
		if held != nil && !yield(held, nil) {
			return news, true, nil
		}
		held = nil
		event = proto.CloneOf(event)
		if seq := event.GetSeq(); seq > w.req.GetAfterSeq() || seq > 0 && w.req.AfterSeq == nil {
			w.req.AfterSeq, news = &seq, true
		}
		if event.GetError() != nil && event.GetSeq() == 0 {
			held = event
			continue
		}
		if !yield(event, nil) || event.GetEnd() != nil {
			return news, true, nil
		}
	}
	if e := held.GetError(); e != nil {
		return news, false, &Error{Code: e.GetCode(), Message: Clean(e.GetMessage())}
	}
	if err = stream.Err(); err == nil {
		err = errCut
	}
	return news, false, err
}

var (
	errSilent = errors.New("nothing has come for a minute")
	errCut    = errors.New("the stream has ended before the turn")
)
