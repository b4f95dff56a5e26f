package client

import (
	"errors"
	"fmt"
	"io"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

const (
	// silentIntervals is how many heartbeat intervals the server may stay
	// silent after a heartbeat.
	silentIntervals = 2
	// minSendTimeout is the least time that one message may take to send.
	minSendTimeout = 10 * time.Second
)

// send is the sender: it sends first, then what is enqueued, and heartbeats,
// until the run is halted or the stream breaks.
func (l *link) send(first *agentdv1.RunRequest) {
	defer close(l.sent)
	if !l.sendOne(first) {
		return
	}
	r := l.run
	if !l.attaches {
		r.start.CompareAndSwap(startUnsent, startSent)
	}
	interval := r.client.cfg.heartbeat
	if r.client.cfg.http1 {
		interval *= 2 // the server sends heartbeats by its own clock
	}
	beat := newHeartbeat(interval)
	defer beat.stop()
	if l.attaches && !l.sendBeat() { // the reply shows that the stream is up
		return
	}
	for {
		select { // before anything that waits
		case <-r.halted:
			l.leave()
			return
		case <-l.parted:
			_ = l.stream.CloseRequest()
			return
		default:
		}
		if wish := r.wish.Load(); wish != l.wished {
			l.wished = wish
			if !l.sendOne(wish) {
				return
			}
			continue
		}
		select {
		case <-r.halted:
			l.leave()
			return
		case <-l.ctx.Done():
			return
		case <-l.parted: // what is to be sent waits for the next stream
		case <-r.wished:
		case msg := <-r.outbox:
			if !l.sendOne(msg) {
				return
			}
		case <-beat.ticks:
			if beat.missed(r) {
				l.abort(errorf(ErrUnavailable,
					"the server sent nothing for %s, although heartbeats were sent; the connection counts as lost",
					silentIntervals*interval))
				return
			}
			if !l.sendBeat() {
				return
			}
		}
	}
}

// leave ends the stream because the run is over for this side: it half-closes,
// after a CancelRequest if the turn is not wanted any more. A client that only
// detaches resets the stream, because the turn may still want its tools later; so
// does one that has named no turn, because the stream may continue with the next.
func (l *link) leave() {
	l.left = true
	r := l.run
	switch {
	case r.cancelled && !r.rc.cancelsOnLeave():
		if !l.attaches {
			l.awaitFirst() // or nobody would know whether there is a turn
		}
		l.abort(ErrRunEnded)
		return
	case r.rc.attach && !r.cancelled && !l.named:
		l.abort(ErrRunEnded)
		return
	}
	if r.cancelled && !r.ended.Load() {
		l.sendOne(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Cancel{
			Cancel: &agentdv1.RunRequest_CancelRequest{SessionId: *r.session.Load()},
		}})
	}
	_ = l.stream.CloseRequest()
}

// awaitFirst waits for the first message of the server, for at most startLinger.
func (l *link) awaitFirst() {
	timer := time.NewTimer(startLinger)
	defer timer.Stop()
	select {
	case <-l.heard:
	case <-l.ctx.Done():
	case <-timer.C:
	}
}

func (l *link) sendBeat() bool {
	return l.sendOne(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Heartbeat{
		Heartbeat: &agentdv1.RunRequest_HeartbeatRequest{SessionId: *l.run.session.Load()},
	}})
}

// sendOne sends one message and reports whether the stream still takes more. A
// server that takes nothing any more counts as gone.
func (l *link) sendOne(msg *agentdv1.RunRequest) bool {
	if interval := l.run.client.cfg.heartbeat; interval > 0 {
		limit := max(silentIntervals*interval, minSendTimeout)
		timer := time.AfterFunc(limit, func() {
			l.abort(errorf(ErrUnavailable, "the server took no message for %s; the connection counts as lost", limit))
		})
		defer timer.Stop()
	}
	err := l.stream.Send(msg)
	if err != nil && !errors.Is(err, io.EOF) {
		l.abort(fmt.Errorf("sending failed: %w", err))
	}
	return err == nil // after io.EOF the driver learns why
}

// heartbeat counts the heartbeats after which nothing came; owned by the
// sender.
type heartbeat struct {
	ticks    <-chan time.Time // nil: there are none
	ticker   *time.Ticker
	pending  int
	progress uint64 // of the run at the last tick
}

func newHeartbeat(interval time.Duration) *heartbeat {
	if interval <= 0 {
		return &heartbeat{}
	}
	ticker := time.NewTicker(interval)
	return &heartbeat{ticks: ticker.C, ticker: ticker}
}

// missed reports whether the server counts as gone, and otherwise counts the
// heartbeat that is sent next.
func (h *heartbeat) missed(r *run) bool {
	if progress := r.progress.Load(); progress != h.progress || r.delivering.Load() {
		h.progress, h.pending = progress, 0
	}
	if h.pending >= silentIntervals {
		return true
	}
	h.pending++
	return false
}

func (h *heartbeat) stop() {
	if h.ticker != nil {
		h.ticker.Stop()
	}
}
