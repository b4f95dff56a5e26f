package client

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

const (
	// eventBuffer is how many events wait for the caller before the driver does.
	eventBuffer = 64
	// outboxSize is how many results wait for the sender before their handlers
	// do.
	outboxSize = 64
	// linger is how long a canceled run gives the server to hear of it. A run
	// returns within 100 ms of its cancellation, so it is less than that.
	linger = 50 * time.Millisecond
	// startLinger is the same for a run whose request is sent and has no reply:
	// a turn that is reset then would run on, and nobody would know its name.
	startLinger = 2 * time.Second
	// drainTimeout is how long the server may take to close the stream after
	// EndResponse.
	drainTimeout = 2 * time.Second
)

// How far the request for a turn has come.
const (
	startUnsent int32 = iota
	startSent
	startConfirmed
)

// run is one turn, on as many streams as it takes. Three parties share it: the
// caller's goroutine, which yields events and closes the run; the driver, which
// opens one stream after the other and alone receives; and the sender of the
// stream that is open, which alone sends. Tool handlers belong to the
// toolRunner and stay when a stream breaks. close ends them all.
type run struct {
	client *Client
	rc     *runConfig
	ctx    context.Context // the caller's, with the run's timeout
	first  *agentdv1.RunRequest
	tools  *toolRunner
	asks   *prompts

	// streamCtx is that of all streams. It does not end with the caller's ctx,
	// so that the run can still send a cancel.
	streamCtx context.Context
	sent      *sentToken              // of the run's requests
	abort     context.CancelCauseFunc // ends streamCtx

	events    chan *Event               // to the caller; never closed
	outbox    chan *agentdv1.RunRequest // to whichever sender there is; never closed
	wished    chan struct{}             // holds one signal: wish has changed
	halted    chan struct{}             // closed by halt: the sender finishes
	stopped   chan struct{}             // closed by close: nobody takes events
	done      chan struct{}             // closed when the driver has returned
	haltOnce  sync.Once
	closeOnce sync.Once
	cancelled bool // halt was for a turn that still ran; written by the first halt, readable after any
	unwatch   func() bool

	asked      atomic.Bool   // this side asked for the end of the turn
	ended      atomic.Bool   // EndResponse has come
	start      atomic.Int32  // how far the request for the turn has come: startUnsent and so on
	progress   atomic.Uint64 // messages received and events delivered
	delivering atomic.Bool   // the driver waits for the caller, not for the server
	session    atomic.Pointer[string]
	wish       atomic.Pointer[agentdv1.RunRequest] // the end that was asked for; nil: none

	// Owned by the driver until done is closed, by the caller's goroutine
	// afterwards.
	begun  bool   // ExecuteResponse has come
	queued bool   // TurnQueued has come, for this run's prompt
	turn   string // the turn whose end is the run's; "" until the server has said
	cursor int64  // position of the last message received
	ahead  ahead  // text that was received after it
	conn   connection
	// unserved are the calls whose ToolCallUnserved was yielded, with the
	// link on which that was last said.
	unserved map[string]*link
	held     *agentdv1.RunResponse // an ErrorResponse whose meaning is not known yet
	why      *agentdv1.RunResponse // the ErrorResponse that the turn ends with, if it was followed by another message
	failure  *Error                // why the run failed
	usage    *Usage                // what EndResponse said
}

// startRun starts the run's goroutines.
func (c *Client) startRun(ctx context.Context, req *agentdv1.RunRequest, rc *runConfig) *run {
	r := &run{
		client:  c,
		rc:      rc,
		ctx:     ctx,
		first:   req,
		events:  make(chan *Event, eventBuffer),
		outbox:  make(chan *agentdv1.RunRequest, outboxSize),
		wished:  make(chan struct{}, 1),
		halted:  make(chan struct{}),
		stopped: make(chan struct{}),
		done:    make(chan struct{}),

		unserved: make(map[string]*link),
	}
	if rc.after != nil {
		r.cursor = *rc.after
	}
	if rc.attach {
		r.turn = rc.turnID
	}
	id := rc.sessionID
	if rc.fork {
		id = "" // the server names the fork
	}
	r.session.Store(&id)
	r.tools = newToolRunner(ctx, r)
	r.asks = newPrompts(ctx, r)
	r.streamCtx, r.abort = context.WithCancelCause(context.WithoutCancel(ctx))
	r.streamCtx, r.sent = c.newSentToken(r.streamCtx)
	r.unwatch = context.AfterFunc(ctx, func() { r.halt(true) })
	rc.control.attach(r)
	go r.drive()
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
			// Of two that are ready at once either may be taken: an end of the context counts.
			if done != nil && r.ctx.Err() != nil {
				if r.halt(true); r.cancelled {
					return nil, false
				}
			}
			return event, true
		case <-r.done:
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
	var usage *Usage
	select {
	case <-r.done:
		failure, usage = r.failure, r.usage
	default:
		failure = errorf(ErrUnavailable, "the HTTP client did not end the stream after its context was canceled")
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

// close ends the run: it tells the server if the turn still runs there and is
// this run's own, ends the stream, and waits for the goroutines of the run. It
// is idempotent.
func (r *run) close() {
	r.closeOnce.Do(func() {
		r.rc.control.detach(r)
		close(r.stopped)
		r.tools.stop()
		r.asks.stop()
		r.halt(!r.ended.Load())
		limit := linger
		switch {
		case r.ended.Load():
			limit = drainTimeout
		case r.start.Load() == startSent:
			limit = startLinger
		}
		r.await(r.done, limit)
		r.abort(ErrRunEnded)
		r.unwatch()
		// It returns at once, unless a caller's own HTTP client ignores its
		// contexts: that must not hang the caller.
		r.await(r.done, r.client.cfg.grace+2*time.Second)
		r.tools.wait(r.client.cfg.grace)
		r.asks.wait(r.client.cfg.grace)
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

// halt makes the sender leave the stream; cancel says that the turn still runs.
// Only the first call counts; canceled tells which it was.
func (r *run) halt(cancel bool) {
	r.haltOnce.Do(func() {
		r.cancelled = cancel
		if cancel {
			r.asked.Store(true)
		}
		close(r.halted)
	})
}

func (r *run) isHalted() bool {
	select {
	case <-r.halted:
		return true
	default:
		return false
	}
}

// errNotSent is what is wrong with a message that comes after the run.
var errNotSent = fmt.Errorf("nothing was sent: %w", ErrRunEnded)

// enqueue hands a message to the sender, now or once there is a stream again.
// It waits for room, and gives up when the run no longer sends.
func (r *run) enqueue(msg *agentdv1.RunRequest) error {
	if r.isHalted() {
		return errNotSent
	}
	select {
	case r.outbox <- msg:
		return nil
	case <-r.halted:
	case <-r.done:
	}
	return errNotSent
}

// ask has the sender of this stream, and of each that follows, ask for the end
// of the turn. The last wish counts.
func (r *run) ask(msg *agentdv1.RunRequest) error {
	select {
	case <-r.halted:
		return errNotSent
	case <-r.done:
		return errNotSent
	default:
	}
	r.asked.Store(true)
	r.wish.Store(msg)
	select {
	case r.wished <- struct{}{}:
	default:
	}
	return nil
}

// emit hands an event to the caller, unless it no longer wants any.
func (r *run) emit(event *Event) {
	event.SessionID = *r.session.Load()
	select {
	case r.events <- event:
	case <-r.stopped:
	}
}

// offer is emit that does not wait, and reports whether there was room.
func (r *run) offer(event *Event) bool {
	event.SessionID = *r.session.Load()
	select {
	case r.events <- event:
		return true
	default:
		return false
	}
}

// deliver is emit for the driver, after what there is to say about the connection. While
// it waits, the silence of the stream is not the server's fault.
func (r *run) deliver(event *Event) {
	r.delivering.Store(true)
	r.reportConnection(true)
	r.emit(event)
	r.progress.Add(1)
	r.delivering.Store(false)
}
