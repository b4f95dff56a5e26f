package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
)

const (
	// roamFirst is the wait before the owner of a session is looked for again, at first. It doubles with each look, to
	// roamEvery. roamFor is for how long it is looked for.
	roamEvery = 100 * time.Millisecond
	roamFirst = 5 * time.Millisecond
	roamFor   = time.Minute
	// heldFor is how long a stream has stood that the owner has begun, even if it said nothing. It exceeds the time in
	// which a server that is not reached is given up.
	heldFor = 10 * time.Second
	// wantAfter is when an owner that is not reached is asked to let go of the session, and how often.
	wantAfter = time.Second
	// aheadOf is how many messages of another server wait for a client; what follows waits in flow control.
	aheadOf = 16
)

// roamer is a feed that follows its session from server to server: when the owner is lost it is attached again, here or
// by another server, behind the last event. Only the goroutine of the handler uses it.
type roamer struct {
	// attach returns a feed behind the last event, and what ends it.
	attach func(ctx context.Context) (feed, func(), error)
	// note remembers where an event stands.
	note func(session.Placed)
	// stays reports whether the client is to stay when its session goes. Otherwise it is told, and goes elsewhere.
	stays func() bool
	// want, if not nil, asks the owner, which is not reached, to let go of the session.
	want func(ctx context.Context)
	// moved, if not nil, has a function called when the session has a new owner, until end is called.
	moved func(func()) (end func())

	now   feed          // nil while nobody is attached
	leave func()        // of now
	begun time.Time     // of now
	since time.Time     // the owner is looked for; zero: it is found
	wait  time.Duration // before the next try
	asked time.Time     // when want was called last
	again chan struct{} // receives when it is time for the next try
	timer *time.Timer   // fills again
	still func()        // ends what moved has begun; nil while somebody is attached
}

// newRoamer returns a feed that attach begins; without now, its first Next does.
func newRoamer(now feed, leave func(), note func(session.Placed)) *roamer {
	r := &roamer{now: now, leave: leave, note: note, begun: time.Now(), again: make(chan struct{}, 1)}
	if now == nil {
		r.again <- struct{}{}
	}
	return r
}

// close ends the feed.
func (r *roamer) close() {
	r.found()
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.now != nil {
		r.leave()
		r.now = nil
	}
}

// Ready implements feed.
func (r *roamer) Ready() <-chan struct{} {
	if r.now == nil {
		return r.again
	}
	return r.now.Ready()
}

// Lags and Weight implement feed.
func (r *roamer) Lags() bool { return r.now != nil && r.now.Lags() }

// Weight is described at Lags.
func (r *roamer) Weight(ctx context.Context) int64 {
	if r.now == nil {
		return 0
	}
	return r.now.Weight(ctx)
}

// Next implements feed.
func (r *roamer) Next(ctx context.Context) ([]session.Placed, error) {
	if r.now == nil {
		var err error
		if r.now, r.leave, err = r.attach(ctx); err != nil {
			r.now = nil
			return nil, r.later(ctx, err)
		}
		r.found()
		r.begun = time.Now()
	}
	events, err := r.now.Next(ctx)
	for _, e := range events {
		r.note(e)
	}
	if len(events) > 0 || time.Since(r.begun) > heldFor {
		r.since, r.wait = time.Time{}, 0
	}
	if err != nil && roams(err) {
		if !r.stays() {
			return events, errElsewhere
		}
		r.leave()
		r.now = nil
		err = r.later(ctx, err)
	}
	return events, err
}

// later has Next try again, unless that has gone on for too long.
func (r *roamer) later(ctx context.Context, err error) error {
	switch {
	case !roams(err):
		return err
	case !r.stays():
		return errElsewhere
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if r.since.IsZero() {
		r.since = time.Now()
	}
	if time.Since(r.since) > roamFor {
		return err
	}
	away := r.want != nil && errors.Is(err, errAway)
	if away && time.Since(r.since) >= wantAfter && time.Since(r.asked) >= wantAfter {
		r.asked = time.Now()
		r.want(ctx)
	}
	if r.still == nil && r.moved != nil {
		r.still = r.moved(r.next)
	}
	r.wait = min(max(2*r.wait, roamFirst), roamEvery)
	r.timer = time.AfterFunc(r.wait, r.next)
	return nil
}

// next has Next be called.
func (r *roamer) next() {
	select {
	case r.again <- struct{}{}:
	default:
	}
}

// found says that somebody is attached.
func (r *roamer) found() {
	if r.still != nil {
		r.still()
		r.still = nil
	}
}

// movers know when sessions move from server to server.
type movers interface {
	WhenMoved(ctx context.Context, id string, f func()) (end func())
}

// movedOf is what roamer.moved is for a session, nil if nobody would say so.
func (s *Server) movedOf(ctx context.Context, id string) func(func()) (end func()) {
	m, is := s.now().Sessions.(movers)
	if !is {
		return nil
	}
	return func(f func()) func() { return m.WhenMoved(ctx, id, f) }
}

// wantOf is what roamer.want is for a session.
func (s *Server) wantOf(id string) func(context.Context) {
	known, is := s.now().Sessions.(owners)
	if !is {
		return nil
	}
	return func(ctx context.Context) {
		if err := known.Want(ctx, id); err != nil {
			s.log.LogAttrs(ctx, slog.LevelDebug, "the owner of a session is not asked to let go of it",
				slog.String("session", id), slog.String("error", err.Error()))
		}
	}
}

// wantFor is wantOf for the session of a call, at most once each wantAfter. A call that only reads wants nothing.
func (s *Server) wantFor(req connect.AnyRequest) func(context.Context) {
	name := path.Base(req.Spec().Procedure)
	msg, is := req.Any().(interface{ GetSessionId() string })
	if !is || strings.HasPrefix(name, "Get") || strings.HasPrefix(name, "List") {
		return func(context.Context) {}
	}
	want, last := s.wantOf(msg.GetSessionId()), time.Time{}
	return func(ctx context.Context) {
		if want != nil && time.Since(last) >= wantAfter {
			last = time.Now()
			want(ctx)
		}
	}
}

// roams reports whether an error says that the owner of a session is another one, or may be soon.
func roams(err error) bool {
	return session.IsMoved(err) || session.IsOwnerless(err) || ownerIn(err) != "" || errors.Is(err, errAway)
}

// isHere reports whether this server has the session.
func (r *roamer) isHere() bool {
	switch r.now.(type) {
	case nil, *remote:
		return false
	}
	return true
}

// errAway is why a stream of another server has ended before its end.
var errAway = fault.Errorf(codeUnavailable, "the server that runs the session does not respond; %s", resumeHint).
	After(retryLater)

// errElsewhere is what a client reads whose session another server has, when this one stops.
var errElsewhere = fault.Errorf(codeUnavailable,
	"the server is stopping, and another one has the session; %s", resumeHint).After(time.Millisecond)

// receiver is the client's side of a stream of events of another server. Err is nil if that server has ended it.
type receiver interface {
	Receive() bool
	Err() error
	// HasMoved reads the rest of the stream, and reports whether the server has ended it because it does not have the
	// session any more, or has died before its end.
	HasMoved() bool
	Close() error
}

// remote is a feed from another server. Its goroutine ends with the stream, which leave ends.
type remote struct {
	ready  chan struct{}
	events chan session.Placed
	err    error // set before events is closed
	done   chan struct{}
}

// follow reads a stream of another server; read returns its last message.
func follow(in receiver, read func() session.Placed, cancel context.CancelFunc) (feed, func()) {
	r := &remote{ready: make(chan struct{}, 1), events: make(chan session.Placed, aheadOf), done: make(chan struct{})}
	over := make(chan struct{})
	go func() {
		defer close(r.done)
		defer r.rouse()
		defer close(r.events)
		r.err = r.receive(in, read, over)
		_ = in.Close()
	}()
	r.rouse()
	return r, func() {
		close(over)
		cancel()
		<-r.done
	}
}

// receive passes events on until the stream ends, and returns why it has.
func (r *remote) receive(in receiver, read func() session.Placed, over chan struct{}) error {
	ended := false
	for in.Receive() {
		e := read()
		switch said := e.Message.GetResponse().(type) {
		case nil, *agentdv1.RunResponse_Heartbeat:
			continue
		case *agentdv1.RunResponse_Error:
			if e.Message.GetSeq() == 0 && e.Message.GetTime() == nil {
				if in.HasMoved() {
					return errAway
				}
				return faultSaid(said.Error)
			}
		case *agentdv1.RunResponse_End:
			ended = true
		}
		select {
		case r.events <- e:
			r.rouse()
		case <-over:
			return errAway
		}
	}
	err := in.Err()
	if ended || err == nil { // there may have been nothing behind the position
		return io.EOF
	}
	if e := faultFrom(err); e.Code != codeUnavailable {
		return e
	}
	return errAway
}

// await waits until the stream has ended, at most that long, and returns why it has: nil after an end that the other
// server has made.
func (r *remote) await(ctx context.Context, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		select {
		case _, more := <-r.events:
			if more {
				continue
			}
			if errors.Is(r.err, errAway) {
				return r.err
			}
			return nil
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *remote) rouse() {
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// Ready implements feed.
func (r *remote) Ready() <-chan struct{} { return r.ready }

// Lags implements feed.
func (*remote) Lags() bool { return false }

// Weight implements feed.
func (*remote) Weight(context.Context) int64 { return aheadOf * 64 << 10 }

// Next implements feed.
func (r *remote) Next(context.Context) (out []session.Placed, err error) {
	for len(out) < aheadOf {
		select {
		case e, more := <-r.events:
			if !more {
				return out, r.err
			}
			out = append(out, e)
		default:
			return out, nil
		}
	}
	r.rouse()
	return out, nil
}

// sessionsAt returns a client of another server.
func (s *Server) sessionsAt(address string) agentdv1connect.SessionServiceClient {
	return agentdv1connect.NewSessionServiceClient(s.now().ReplicaClient, replicaURL(address))
}

// watchTurn returns the events of a turn behind the position that the request names, wherever its session is.
func (s *sessionService) watchTurn(
	ctx context.Context, r *connect.Request[agentdv1.WatchTurnRequest],
) (feed, func(), *session.Turn, error) {
	turn, watch, err := s.attach(ctx, r)
	if err == nil {
		watch.ForwardedBy(forwardedBy(ctx))
		return &turnFeed{Watcher: watch}, watch.Close, turn, nil
	}
	address := s.elsewhere(err)
	if address == "" || !s.forwards(ctx) {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	msg := &agentdv1.WatchTurnRequest{
		SessionId: r.Msg.GetSessionId(), TurnId: r.Msg.GetTurnId(), AfterSeq: r.Msg.AfterSeq,
		ToolNames: r.Msg.GetToolNames(), Observe: r.Msg.GetObserve(),
	}
	out := connect.NewRequest(msg)
	if err := s.carry(ctx, r.Header(), out.Header()); err != nil {
		cancel()
		return nil, nil, nil, err
	}
	in, err := s.sessionsAt(address).WatchTurn(ctx, out)
	if err != nil {
		cancel()
		return nil, nil, nil, errAway
	}
	read := func() session.Placed { return session.Placed{Message: in.Msg().GetEvent()} }
	from, leave := follow(watched{in, in}, read, cancel)
	return from, leave, nil, nil
}

// roamTurn returns a feed of a turn that follows its session.
func (s *sessionService) roamTurn(
	ctx context.Context, r *connect.Request[agentdv1.WatchTurnRequest],
) (*roamer, *session.Turn, error) {
	first, leave, turn, err := s.watchTurn(ctx, r)
	if err != nil && !errors.Is(err, errAway) {
		return nil, nil, err
	}
	out := newRoamer(first, leave, func(e session.Placed) {
		if seq := e.Message.GetSeq(); seq > 0 {
			r.Msg.AfterSeq = &seq
		}
		if r.Msg.GetTurnId() == "" {
			r.Msg.TurnId = e.Message.GetTurnId()
		}
	})
	out.stays = s.staysUntilDrain
	out.attach = func(ctx context.Context) (feed, func(), error) {
		next, leave, _, err := s.watchTurn(ctx, r)
		return next, leave, err
	}
	out.moved = s.movedOf(ctx, r.Msg.GetSessionId())
	if !r.Msg.GetObserve() {
		out.want = s.wantOf(r.Msg.GetSessionId())
	}
	return out, turn, nil
}

// watchSession returns the events of a session behind the cursor that the request names, wherever it is.
func (s *sessionService) watchSession(
	ctx context.Context, r *connect.Request[agentdv1.WatchSessionRequest],
) (feed, func(), error) {
	watch, err := s.now().Sessions.WatchSession(ctx, r.Msg.GetSessionId(), r.Msg.GetCursor())
	if err == nil {
		return watch, watch.Close, nil
	}
	address := s.elsewhere(err)
	if address == "" || !s.forwards(ctx) {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	msg := &agentdv1.WatchSessionRequest{SessionId: r.Msg.GetSessionId(), Cursor: r.Msg.GetCursor()}
	out := connect.NewRequest(msg)
	if err := s.carry(ctx, r.Header(), out.Header()); err != nil {
		cancel()
		return nil, nil, err
	}
	in, err := s.sessionsAt(address).WatchSession(ctx, out)
	if err != nil {
		cancel()
		return nil, nil, errAway
	}
	read := func() session.Placed {
		return session.Placed{Message: in.Msg().GetEvent(), Cursor: in.Msg().GetCursor()}
	}
	from, leave := follow(watched{in, in}, read, cancel)
	return from, leave, nil
}

// watched receives what the owner sends to a client that watches.
type watched struct {
	receiving
	trailing interface{ ResponseTrailer() http.Header }
}

// receiving is what streams of the two methods have in common.
type receiving interface {
	Receive() bool
	Err() error
	Close() error
}

// HasMoved implements receiver.
func (w watched) HasMoved() bool {
	for w.Receive() {
	}
	return w.Err() != nil || hasMoved(w.trailing.ResponseTrailer())
}

// roamSession returns a feed of a session that follows it.
func (s *sessionService) roamSession(
	ctx context.Context, r *connect.Request[agentdv1.WatchSessionRequest],
) (*roamer, error) {
	first, leave, err := s.watchSession(ctx, r)
	if err != nil && !errors.Is(err, errAway) {
		return nil, err
	}
	out := newRoamer(first, leave, func(e session.Placed) {
		if e.Cursor != "" {
			r.Msg.Cursor = e.Cursor
		}
	})
	out.stays = s.staysUntilDrain
	out.attach = func(ctx context.Context) (feed, func(), error) { return s.watchSession(ctx, r) }
	out.moved = s.movedOf(ctx, r.Msg.GetSessionId())
	return out, nil
}

// forwarded is a call that another server makes for a client, after the first try found that server.
func (s *Server) forwarded(
	ctx context.Context, req connect.AnyRequest, first error,
	serve func() (connect.AnyResponse, error),
) (resp connect.AnyResponse, err error) {
	err = first
	want := s.wantFor(req)
	for begun := time.Now(); roams(err) && s.forwards(ctx) && time.Since(begun) < roamFor/4; {
		address := s.elsewhere(err)
		if address == "" && session.IsUnsure(err) {
			return nil, err
		}
		if address != "" {
			if resp, err = s.forwardUnary(ctx, req, address); err == nil || !errors.Is(err, errAway) {
				return resp, err
			}
			if time.Since(begun) >= wantAfter {
				want(ctx)
			}
		}
		select {
		case <-time.After(roamEvery):
		case <-s.ended.Done():
			return nil, errDraining
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		resp, err = serve()
	}
	if errors.Is(err, errAway) {
		err = errUnreached
	}
	return resp, err
}

// owners knows which server owns a session, and which servers take sessions that nobody owns.
type owners interface {
	OwnerOf(ctx context.Context, id string) (address string, err error)
	Another() (address string)
	Takes() bool // this one does
	// Want asks the owner of a session, which this server does not reach, to let go of it.
	Want(ctx context.Context, id string) error
}

// elsewhere returns the address of the server that is to do what this one does not, for a reason; "" for none.
func (s *Server) elsewhere(err error) string {
	if known, is := s.now().Sessions.(owners); is && session.IsOwnerless(err) {
		return known.Another()
	}
	return ownerIn(err)
}

// atOwner serves a call, unless it asks how a session or a turn is and another server owns the session, which knows
// best: then the error names that server.
func (s *Server) atOwner(
	ctx context.Context, req connect.AnyRequest, serve func() (connect.AnyResponse, error),
) (connect.AnyResponse, error) {
	known, is := s.now().Sessions.(owners)
	if !is || !s.forwards(ctx) {
		return serve()
	}
	id := ""
	switch r := req.Any().(type) {
	case *agentdv1.GetSessionRequest:
		id = r.GetSessionId()
	case *agentdv1.GetTurnRequest:
		id = r.GetSessionId()
	case *agentdv1.GetGoalRequest:
		id = r.GetSessionId()
	}
	if address, err := known.OwnerOf(ctx, id); err == nil && address != "" {
		return nil, &session.Elsewhere{Address: address}
	}
	return serve()
}

// staysUntilDrain reports whether a client that watches is to stay when its session goes to another server.
func (s *Server) staysUntilDrain() bool { return s.drain.Err() == nil }
