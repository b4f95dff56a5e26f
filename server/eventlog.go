package server

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
)

// events reads the event log of the principal's tenant. *eventlog.Log implements it.
type events interface {
	Events(ctx context.Context, after int64, f *agentdv1.EventFilter, limit int) ([]*agentdv1.LoggedEvent, error)
	Last(ctx context.Context) (int64, error)
	Changed() <-chan struct{}
}

// eventService implements agentd.v1.EventService.
type eventService struct{ *Server }

const (
	// eventPage is how many events a watcher reads at once.
	eventPage = 256
	// eventLook is how long a watcher waits until it looks whether other servers have appended events.
	eventLook = 500 * time.Millisecond
	// eventPause is how long it waits at least.
	eventPause = 20 * time.Millisecond
)

// events returns what reads the event log.
func (s *eventService) events() (events, error) {
	if all := s.now().Events; all != nil {
		return all, nil
	}
	return nil, fault.Errorf(codePrecondition, "this server keeps no event log: it has to be started with --eventlog")
}

func (s *eventService) List(
	ctx context.Context, r *connect.Request[agentdv1.ListEventsRequest],
) (*connect.Response[agentdv1.ListEventsResponse], error) {
	all, err := s.events()
	if err != nil {
		return nil, err
	}
	found, err := all.Events(ctx, r.Msg.GetAfterSeq(), r.Msg.GetFilter(), pageSize(r.Msg.GetLimit()))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.ListEventsResponse{Events: found}), nil
}

func (s *eventService) Watch(
	ctx context.Context, r *connect.Request[agentdv1.WatchEventsRequest],
	stream *connect.ServerStream[agentdv1.WatchEventsResponse],
) error {
	w := &eventWatch{s: s.Server, exchange: arrived(ctx), stream: stream, filter: r.Msg.GetFilter()}
	accessOf(ctx).about(r.Msg)
	if e := s.acceptable(r.Msg); e != nil {
		return e
	}
	leave, refused := s.enter(ctx)
	defer leave()
	if refused != nil {
		return refused
	}
	var err error
	if w.all, err = s.events(); err != nil {
		return err
	}
	if w.after = r.Msg.GetAfterSeq(); r.Msg.AfterSeq == nil {
		if w.after, err = w.all.Last(ctx); err != nil {
			return err
		}
	}
	err = w.serve(ctx)
	if e, ok := errors.AsType[*fault.Error](err); ok {
		s.limited(e)
	}
	return err
}

// eventWatch is one stream of Watch. Only the handler goroutine uses it.
type eventWatch struct {
	s        *Server
	exchange *exchange
	stream   *connect.ServerStream[agentdv1.WatchEventsResponse]
	all      events
	filter   *agentdv1.EventFilter
	after    int64
}

// serve sends events until the client is gone, or the stream must end.
func (w *eventWatch) serve(ctx context.Context) error {
	if err := w.write(nil); err != nil { // the headers tell the client that it watches
		return err
	}
	defer w.exchange.bound(w.s.now().WriteTimeout)
	age, heartbeats := time.NewTimer(w.s.now().StreamTimeout), time.NewTicker(w.s.now().HeartbeatEvery)
	look, pause := time.NewTicker(eventLook), time.NewTicker(eventPause)
	proof := w.s.proofOf(ctx)
	defer func() {
		age.Stop()
		heartbeats.Stop()
		look.Stop()
		pause.Stop()
		proof.stop()
	}()
	for {
		changed := w.all.Changed()
		if err := w.forward(ctx); err != nil {
			return err
		}
		for waits := true; waits; {
			select {
			case <-changed:
				changed, waits = nil, false
				select {
				case <-pause.C:
				case <-ctx.Done():
				}
			case <-look.C:
				waits = false
			case <-heartbeats.C:
				if err := w.write(&agentdv1.WatchEventsResponse{}); err != nil {
					return err
				}
			case <-age.C:
				return fault.Errorf(codeTimeout,
					"the stream was open for %v, its limit; watch again behind the last seq", w.s.now().StreamTimeout)
			case <-proof.due():
				if e := proof.again(); e != nil {
					return e
				}
			case <-w.s.drain.Done():
				return errDraining
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// forward sends all that the log has behind what was sent.
func (w *eventWatch) forward(ctx context.Context) error {
	for {
		page, err := w.all.Events(ctx, w.after, w.filter, eventPage)
		if err != nil {
			return err
		}
		for _, e := range page {
			if err := w.write(&agentdv1.WatchEventsResponse{Event: e}); err != nil {
				return err
			}
			w.after = e.GetSeq()
		}
		if len(page) < eventPage {
			return nil
		}
	}
}

// write bounds one write, as watchStream.write does.
func (w *eventWatch) write(m *agentdv1.WatchEventsResponse) error {
	w.exchange.bound(w.s.now().WriteTimeout)
	defer w.exchange.unbound()
	return w.stream.Send(m)
}
