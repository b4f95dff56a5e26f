package client

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

const (
	// eventBuffer is how many events wait for the caller before the receiver
	// does.
	eventBuffer = 64
	// outboxSize is how many answers wait for the sender before their handlers
	// do.
	outboxSize = 64
	// linger is how long a cancelled run gives the server to hear of it. A run
	// returns within 100 ms of its cancellation, so it is less than that.
	linger = 50 * time.Millisecond
	// drainTimeout is how long the server may take to close the stream after
	// EndResponse.
	drainTimeout = 2 * time.Second
)

// run is one turn on one stream. Three parties share it: the caller's
// goroutine, which yields events and closes the run; the receiver, which alone
// calls Receive; and the sender, which alone calls Send. Tool handlers belong
// to the toolRunner. close ends them all.
type run struct {
	client *Client
	rc     *runConfig
	ctx    context.Context // the caller's, with the run's timeout
	stream *connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse]
	tools  *toolRunner

	// streamCtx is the stream's. It does not end with the caller's ctx, so that
	// the server can still be told.
	streamCtx context.Context
	abort     context.CancelCauseFunc // ends streamCtx; the cause becomes the run's error

	events    chan *Event               // to the caller; never closed
	outbox    chan *agentdv1.RunRequest // to the sender; never closed
	halted    chan struct{}             // closed by halt: the sender finishes
	stopped   chan struct{}             // closed by close: nobody takes events
	received  chan struct{}             // closed when the receiver has returned
	sent      chan struct{}             // closed when the sender has returned
	haltOnce  sync.Once
	closeOnce sync.Once
	cancelled bool // halt was for a turn that still ran; written by the first halt, readable after any
	unwatch   func() bool

	asked      atomic.Bool   // this side asked for the end of the turn
	ended      atomic.Bool   // EndResponse has come
	progress   atomic.Uint64 // messages received and events delivered
	delivering atomic.Bool   // the receiver waits for the caller, not for the server
	session    atomic.Pointer[string]

	// Owned by the receiver until received is closed, by the caller's goroutine
	// afterwards.
	started bool                   // ExecuteResponse has come
	failure *Error                 // why the run failed
	usage   *agentdv1.UsageSummary // what EndResponse said
}

// startRun opens the stream and starts the run's goroutines.
func (c *Client) startRun(ctx context.Context, req *agentdv1.RunRequest, rc *runConfig) *run {
	r := &run{
		client:   c,
		rc:       rc,
		ctx:      ctx,
		events:   make(chan *Event, eventBuffer),
		outbox:   make(chan *agentdv1.RunRequest, outboxSize),
		halted:   make(chan struct{}),
		stopped:  make(chan struct{}),
		received: make(chan struct{}),
		sent:     make(chan struct{}),
	}
	r.session.Store(&rc.sessionID)
	r.tools = newToolRunner(ctx, r)
	r.streamCtx, r.abort = context.WithCancelCause(context.WithoutCancel(ctx))
	r.stream = c.stub.Run(r.streamCtx)
	maps.Copy(r.stream.RequestHeader(), rc.header)
	// A stream whose context ends stays blocked in Receive until its request
	// body ends too, and, if the server takes nothing of that, until the
	// response body is closed.
	context.AfterFunc(r.streamCtx, func() {
		_ = r.stream.CloseRequest()
		_ = r.stream.CloseResponse()
	})
	r.unwatch = context.AfterFunc(ctx, func() { r.halt(true) })
	rc.control.attach(r)
	go r.send(req)
	go r.receive()
	return r
}

// next returns the next event; false when there is none any more. It is called
// by the caller's goroutine alone.
func (r *run) next() (*Event, bool) {
	done := r.ctx.Done()
	for {
		if r.ctx.Err() != nil {
			r.halt(true)
			if r.cancelled {
				return nil, false
			}
			done = nil // the turn ended first: what is left of it is local
		}
		select {
		case event := <-r.events:
			return event, true
		case <-r.received:
			select {
			case event := <-r.events:
				return event, true
			default:
				return nil, false
			}
		case <-done:
		}
	}
}

// outcome returns why the run failed, nil if it did not. close must have been
// called.
func (r *run) outcome() error {
	var failure *Error
	var usage *agentdv1.UsageSummary
	select {
	case <-r.received:
		failure, usage = r.failure, r.usage
	default:
		failure = errorf(ErrUnavailable, "the HTTP client did not end the stream when it was told to")
	}
	if r.cancelled && r.ctx.Err() != nil {
		failure = fromContext(r.ctx)
	}
	if failure == nil {
		return nil
	}
	if failure.SessionID == "" {
		failure.SessionID = *r.session.Load()
	}
	failure.Usage = usage
	return failure
}

// close ends the run: it tells the server if the turn still runs there, ends
// the stream, and waits for the goroutines of the run. It is idempotent.
func (r *run) close() {
	r.closeOnce.Do(func() {
		r.rc.control.detach(r)
		close(r.stopped)
		r.tools.stop()
		r.halt(!r.ended.Load())
		limit := linger
		if r.ended.Load() {
			limit = drainTimeout
		}
		r.await(r.received, limit)
		r.abort(ErrRunEnded)
		r.unwatch()
		// Both return at once, unless a caller's own HTTP client ignores its
		// contexts: that must not hang the caller.
		r.await(r.received, r.client.cfg.grace+time.Second)
		r.await(r.sent, time.Second)
		r.tools.wait(r.client.cfg.grace)
	})
}

func (r *run) await(done <-chan struct{}, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// halt makes the sender half-close the stream, after a CancelRequest if cancel
// is set. Only the first call counts; cancelled tells which it was.
func (r *run) halt(cancel bool) {
	r.haltOnce.Do(func() {
		r.cancelled = cancel
		if cancel {
			r.asked.Store(true)
		}
		close(r.halted)
	})
}

// enqueue hands a message to the sender. It waits for room, and gives up when
// the run no longer sends.
func (r *run) enqueue(msg *agentdv1.RunRequest) error {
	over := fmt.Errorf("nothing was sent: %w", ErrRunEnded)
	select {
	case <-r.halted:
		return over
	default:
	}
	select {
	case r.outbox <- msg:
		return nil
	case <-r.halted:
	case <-r.sent:
	}
	return over
}

// emit hands an event to the caller, unless it no longer wants any.
func (r *run) emit(event *Event) {
	select {
	case r.events <- event:
	case <-r.stopped:
	}
}

// deliver is emit for the receiver. While it waits, the silence of the stream
// is not the server's fault.
func (r *run) deliver(event *Event) {
	r.delivering.Store(true)
	r.emit(event)
	r.progress.Add(1)
	r.delivering.Store(false)
}
