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
	// silent after an unanswered heartbeat.
	silentIntervals = 2
	// minSendTimeout is the least time that one message may take to send.
	minSendTimeout = 10 * time.Second
)

// send is the sender: it sends first, then what is enqueued, and heartbeats,
// until the run is halted or the stream breaks. It half-closes the stream.
func (r *run) send(first *agentdv1.RunRequest) {
	defer close(r.sent)
	defer func() { _ = r.stream.CloseRequest() }()
	if !r.sendOne(first) {
		return
	}
	beat := newHeartbeat(r.client.cfg.heartbeat)
	defer beat.stop()
	for {
		select {
		case <-r.halted: // before anything that waits
			r.farewell()
			return
		default:
		}
		select {
		case <-r.halted:
			r.farewell()
			return
		case <-r.streamCtx.Done():
			return
		case msg := <-r.outbox:
			if !r.sendOne(msg) {
				return
			}
		case <-beat.ticks:
			if beat.missed(r) {
				r.abort(errorf(ErrUnavailable, "the server has not answered heartbeats for %s; the connection counts as lost", silentIntervals*r.client.cfg.heartbeat))
				return
			}
			if !r.sendOne(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Heartbeat{
				Heartbeat: &agentdv1.RunRequest_HeartbeatRequest{SessionId: *r.session.Load()},
			}}) {
				return
			}
		}
	}
}

// farewell tells the server that the turn is not wanted any more, if so.
func (r *run) farewell() {
	if r.cancelled && !r.ended.Load() {
		r.sendOne(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Cancel{
			Cancel: &agentdv1.RunRequest_CancelRequest{SessionId: *r.session.Load()},
		}})
	}
}

// sendOne sends one message and tells whether the stream still takes more. A
// server that takes nothing any more counts as gone.
func (r *run) sendOne(msg *agentdv1.RunRequest) bool {
	if interval := r.client.cfg.heartbeat; interval > 0 {
		limit := max(silentIntervals*interval, minSendTimeout)
		timer := time.AfterFunc(limit, func() {
			r.abort(errorf(ErrUnavailable, "the server took no message for %s; the connection counts as lost", limit))
		})
		defer timer.Stop()
	}
	err := r.stream.Send(msg)
	if err != nil && !errors.Is(err, io.EOF) {
		r.abort(fmt.Errorf("sending failed: %w", err))
	}
	return err == nil // after io.EOF the receiver learns why
}

// heartbeat counts the heartbeats after which nothing came; owned by the
// sender.
type heartbeat struct {
	ticks      <-chan time.Time // nil: there are none
	ticker     *time.Ticker
	unanswered int
	progress   uint64 // of the run at the last tick
}

func newHeartbeat(interval time.Duration) *heartbeat {
	if interval <= 0 {
		return &heartbeat{}
	}
	ticker := time.NewTicker(interval)
	return &heartbeat{ticks: ticker.C, ticker: ticker}
}

// missed tells whether the server counts as gone, and otherwise counts the
// heartbeat that is sent next.
func (h *heartbeat) missed(r *run) bool {
	if progress := r.progress.Load(); progress != h.progress || r.delivering.Load() {
		h.progress, h.unanswered = progress, 0
	}
	if h.unanswered >= silentIntervals {
		return true
	}
	h.unanswered++
	return false
}

func (h *heartbeat) stop() {
	if h.ticker != nil {
		h.ticker.Stop()
	}
}
