package client

import (
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/backoff"
)

// Defaults of [ReconnectPolicy].
const (
	DefaultReconnectMaxElapsed = 2 * time.Minute
	DefaultReconnectBase       = 50 * time.Millisecond
	DefaultReconnectCap        = 5 * time.Second
)

// ReconnectPolicy says how long a lost connection is tried again. Before the
// n-th attempt in a row without progress the client waits for a random time of
// at most Base·2ⁿ⁻¹ and at most Cap, after the time that the server has asked for,
// if it has ([Error].RetryAfter). An attempt makes progress when something
// new comes, or when the server responds and the stream then holds for longer
// than Cap.
type ReconnectPolicy struct {
	// MaxElapsed is the time without progress after which no more attempt
	// begins; 0 is [DefaultReconnectMaxElapsed].
	MaxElapsed time.Duration
	// Base bounds the first wait; 0 is [DefaultReconnectBase].
	Base time.Duration
	// Cap bounds all waits; 0 is [DefaultReconnectCap].
	Cap time.Duration
	// Off never reconnects: a lost connection fails the run.
	Off bool
	// Dial also repeats the first request of a Run when the server cannot be
	// reached, or refuses it for the time being: it is full, or stopping. Without
	// it either fails the run at once.
	Dial bool
}

func (p ReconnectPolicy) withDefaults() ReconnectPolicy {
	if p.MaxElapsed == 0 {
		p.MaxElapsed = DefaultReconnectMaxElapsed
	}
	if p.Base == 0 {
		p.Base = DefaultReconnectBase
	}
	if p.Cap == 0 {
		p.Cap = DefaultReconnectCap
	}
	return p
}

// outage is the time since a run last made progress; owned by the driver. The
// zero value but for the policy is no outage.
type outage struct {
	policy ReconnectPolicy
	since  time.Time // zero: the connection has just been lost
	tries  int
}

// over says that the run has made progress.
func (o *outage) over() { o.since, o.tries = time.Time{}, 0 }

// next returns how long to wait before the next attempt, at least the time that the
// server has asked for; false when there is none.
func (o *outage) next(now time.Time, asked time.Duration) (time.Duration, bool) {
	if o.since.IsZero() {
		o.since = now
	}
	left := o.policy.MaxElapsed - now.Sub(o.since)
	if left <= asked {
		return 0, false
	}
	wait := backoff.Full(o.policy.Base, o.policy.Cap, o.tries)
	o.tries++
	// An attempt at the very end of the time, rather than none.
	return min(asked+wait+1, left), true
}

// lostStream reports whether a stream failed, rather than what it was used for.
func lostStream(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied,
		connect.CodeResourceExhausted, connect.CodeUnimplemented:
		return false
	case connect.CodeInvalidArgument, connect.CodeFailedPrecondition, connect.CodeOutOfRange, connect.CodeNotFound:
		return !connect.IsWireError(err) // otherwise it is a torn message
	default:
		return true
	}
}

// lostCode reports whether an ErrorResponse without EndResponse ends the stream
// and not the turn.
func lostCode(code Code) bool {
	switch code {
	case ErrUnavailable, ErrTimeout, ErrRateLimited:
		return true
	default:
		return false
	}
}

// drive is the body of the run's driver: it opens streams one after the other
// until the turn is over, the run is halted, or no stream can be had.
func (r *run) drive() {
	defer close(r.done)
	defer r.tools.stop()
	defer r.asks.stop()
	out := outage{policy: r.client.cfg.reconnect}
	first := r.first
	for {
		farewell := r.isHalted() // one stream that says so is enough
		l := r.open(first)
		failure, lost := l.receive()
		if !l.end() {
			lost = false
			failure = errorf(ErrUnavailable, "the HTTP client did not end the stream after its context was canceled")
		}
		r.fail(failure)
		renewed := !lost && !out.policy.Off && r.sent.renewed(r.streamCtx, failure)
		if l.left || farewell || !renewed && !(lost && r.resumable(l, failure)) {
			return
		}
		if l.news || (l.received && time.Since(l.opened) > out.policy.Cap) {
			out.over()
		}
		r.lost(failure)
		if !r.pause(&out, failure) {
			return
		}
		if r.recorded() || r.rc.attach {
			first = r.attachRequest()
		}
	}
}

// fail records why the run failed. What the server said about the turn, before
// the stream broke, counts more than the stream.
func (r *run) fail(failure *Error) {
	r.failure = failure
	why := r.held
	if r.why != nil {
		why = r.why
	}
	if failure != nil && why.GetSeq() > 0 {
		r.failure = fromResponse(why.GetError())
		r.failure.Err = failure
	}
}

// resumable reports whether the run can continue with another stream after l.
func (r *run) resumable(l *link, failure *Error) bool {
	policy := r.client.cfg.reconnect
	switch {
	case policy.Off:
		return false
	case r.rc.attach:
		return true // attaching twice is attaching
	case r.recorded():
		return r.cursor > 0 // a server that counts its messages
	default:
		// The key of the request keeps a repeat from starting another turn.
		refused := l.refused || connect.IsWireError(failure)
		return policy.Dial || !refused && !l.unsent()
	}
}

// pause waits before the next stream, and reports false when there is to be
// none. When the run is halted meanwhile, one more stream tells the server.
func (r *run) pause(out *outage, failure *Error) bool {
	var asked time.Duration
	if failure != nil {
		asked = failure.RetryAfter
	}
	delay, ok := out.next(time.Now(), asked)
	if !ok {
		r.abandoned(failure)
		gaveUp := errorf(ErrUnavailable, "the connection was lost and %d attempts in %s did not bring it back; "+
			"the turn may continue without this client (client.Attach): %w",
			out.tries, out.policy.MaxElapsed, failure)
		gaveUp.RetryAfter = asked
		r.fail(gaveUp)
		return false
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.halted:
		return r.recorded() && r.rc.cancelsOnLeave()
	case <-r.streamCtx.Done():
		return false
	}
}

// attachRequest returns the first message of a stream on which the run continues.
func (r *run) attachRequest() *agentdv1.RunRequest {
	attach := &agentdv1.AttachRequest{
		SessionId: *r.session.Load(),
		TurnId:    r.turn,
		ToolNames: r.rc.offered,
		Observe:   r.rc.observe,
	}
	if r.cursor > 0 || r.rc.after != nil {
		cursor := r.cursor
		attach.AfterSeq = &cursor
	}
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{Attach: attach}}
}
