package server

import (
	"context"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
)

const (
	// freeReply is the weight of replies that need no room.
	freeReply = 64 << 10
	// smallReply is the most weight of a small reply.
	smallReply = 4 << 20
	// replyWeight is how many copies of a message's bytes are in memory while it is sent.
	replyWeight = 4
	// sendFactor is how much more the messages of a stream may take: messages of many small
	// values have few bytes.
	sendFactor = 2
	// leastRate is how many bytes a second a client must read while it holds room that
	// others want.
	leastRate = 64 << 10
	// maxOutboxWait is how long a stream waits for room at most.
	maxOutboxWait = 30 * time.Second
	// wantedPeriod is how long room counts as wanted after a reply was refused for lack of
	// it.
	wantedPeriod = 2 * time.Second
	// maxReaders is how many reads produce replies at the same time.
	maxReaders = 8
)

// outbox bounds the memory of replies that are sent at the same time. A small request
// may ask for megabytes, and a client that reads slowly, or not at all, keeps them.
// Large replies have three quarters of the room and wait for each other in it, so no
// small reply waits for a large one.
type outbox struct {
	small, large *room
	readers      *semaphore.Weighted
	weighing     *semaphore.Weighted
}

type room struct {
	*semaphore.Weighted
	size      int64
	waiting   atomic.Int32
	refusedAt atomic.Int64 // when room was last refused, in nanoseconds after started
	started   time.Time
}

func newOutbox(bytes int) *outbox {
	large := max(int64(bytes)/4*3, 1)
	return &outbox{small: newRoom(max(int64(bytes)-large, 1)), large: newRoom(large),
		readers: semaphore.NewWeighted(maxReaders), weighing: semaphore.NewWeighted(maxReaders)}
}

func newRoom(size int64) *room {
	r := &room{Weighted: semaphore.NewWeighted(size), size: size, started: time.Now()}
	r.refusedAt.Store(-int64(wantedPeriod))
	return r
}

// wanted reports whether another reply needs room.
func (r *room) wanted() bool {
	return r.waiting.Load() > 0 || time.Since(r.started)-time.Duration(r.refusedAt.Load()) < wantedPeriod
}

// lease is the room that a reply holds; a nil lease holds none. The goroutine that
// sends calls its methods.
type lease struct {
	room     *room
	size     int64
	deadline time.Time // when it has to be free if others want the room
}

func (o *outbox) roomFor(weight int64) (*room, int64) {
	r := o.small
	if weight > smallReply {
		r = o.large
	}
	return r, min(weight, r.size)
}

// watcher is the source of a stream's events.
type watcher interface {
	Lags() bool
	Weight(ctx context.Context) int64
}

// enter waits, within bounds, for room for the watcher's next events. The caller closes
// the lease when they are sent. patience is the time for each piece.
func (o *outbox) enter(ctx context.Context, w watcher, patience time.Duration) (*lease, error) {
	weight, err := o.weigh(ctx, w)
	if err != nil {
		return nil, err
	}
	if weight <= freeReply {
		return nil, nil
	}
	r, size := o.roomFor(weight)
	if !r.TryAcquire(size) {
		r.waiting.Add(1)
		defer r.waiting.Add(-1)
		wait, cancel := context.WithTimeout(ctx, maxOutboxWait)
		defer cancel()
		if err := r.Acquire(wait, size); err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, errManyReplies()
		}
	}
	return newLease(r, size, patience), nil
}

// weigh limits how many watchers read their logs at the same time to weigh their
// events.
func (o *outbox) weigh(ctx context.Context, w watcher) (int64, error) {
	if w.Lags() {
		if err := o.weighing.Acquire(ctx, 1); err != nil {
			return 0, context.Cause(ctx)
		}
		defer o.weighing.Release(1)
	}
	return w.Weight(ctx), nil
}

// tryEnter is enter for a reply that exists already and must not wait.
func (o *outbox) tryEnter(weight int64, patience time.Duration) (*lease, error) {
	if weight <= freeReply {
		return nil, nil
	}
	r, size := o.roomFor(weight)
	if !r.TryAcquire(size) {
		r.refusedAt.Store(int64(time.Since(r.started)))
		return nil, errManyReplies()
	}
	return newLease(r, size, patience), nil
}

func errManyReplies() *fault.Error {
	return fault.Errorf(codeUnavailable, "too many large replies are being read at the same time; try again later").
		After(retryLater)
}

func newLease(r *room, size int64, patience time.Duration) *lease {
	return &lease{r, size, time.Now().Add(patience + time.Duration(size/replyWeight)*time.Second/leastRate)}
}

// shrink frees what messages do not need.
func (l *lease) shrink(weight int64) {
	if l != nil && weight < l.size {
		l.room.Release(l.size - weight)
		l.size = weight
	}
}

// isLate reports whether the client must be cut off so that others get room.
func (l *lease) isLate() bool { return l != nil && time.Now().After(l.deadline) && l.room.wanted() }

// close frees the room; it may be called again.
func (l *lease) close() { l.shrink(0) }

// weigh returns about how much memory messages take while they are sent.
func weigh[M proto.Message](msgs ...M) int64 {
	n := 0
	for _, m := range msgs {
		n += proto.Size(m)
	}
	return replyWeight * int64(n)
}

// weighPlaced is weigh for an event, whose size may be known.
func weighPlaced(e session.Placed) int64 {
	if e.Shared.IsKept() {
		return replyWeight * int64(e.Shared.Size()+len(replayedField))
	}
	return weigh(e.Message)
}

// serve calls next for a request and finds room for the reply, which the exchange holds
// until the reply is sent. Without room it refuses a read, and a request that may be
// repeated. It never refuses CreateTurn, whose turn has begun and whose reply is no
// larger than its request.
func (o *outbox) serve(
	ctx context.Context, e *exchange, req connect.AnyRequest, next connect.UnaryFunc, patience time.Duration,
) (connect.AnyResponse, error) {
	spec := req.Spec()
	// ListModelCalls runs one request at a time; others wait for it.
	if spec.IdempotencyLevel == connect.IdempotencyNoSideEffects &&
		spec.Procedure != agentdv1connect.SessionServiceListModelCallsProcedure {
		if err := o.readers.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		defer o.readers.Release(1)
	}
	resp, err := next(ctx, req)
	if err != nil || e == nil || spec.Procedure == agentdv1connect.SessionServiceCreateTurnProcedure {
		return resp, err
	}
	msg, ok := resp.Any().(proto.Message)
	if !ok {
		return resp, nil
	}
	room, err := o.tryEnter(weigh(msg), patience)
	if err != nil {
		return nil, err
	}
	e.hold(room)
	return resp, nil
}
