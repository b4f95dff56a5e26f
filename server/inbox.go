package server

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/session/fault"
)

const (
	// freeRequest is the size of requests that need no room.
	freeRequest = 64 << 10
	// servedWeight and heldWeight are how many copies of a request's bytes are in memory
	// while it is served, and while it waits.
	servedWeight, heldWeight = 8, 3
	// maxInboxWait is how long a request waits for room at most.
	maxInboxWait = 10 * time.Second
)

// inbox bounds the memory of large requests, of those that are served at the same time
// and of those that wait.
type inbox struct {
	served, held *semaphore.Weighted
	room         int64 // of each
}

func newInbox(bytes int) *inbox {
	room := int64(bytes)
	return &inbox{semaphore.NewWeighted(room), semaphore.NewWeighted(room), room}
}

// enter waits, within bounds, until there is room to serve a request. The caller calls
// leave after serving it.
func (i *inbox) enter(ctx context.Context, request proto.Message) (leave func(), err error) {
	size := int64(proto.Size(request))
	if size <= freeRequest {
		return func() {}, nil
	}
	served, held := min(servedWeight*size, i.room), min(heldWeight*size, i.room)
	leave = func() { i.served.Release(served) }
	if i.served.TryAcquire(served) {
		return leave, nil
	}
	if !i.held.TryAcquire(held) {
		return nil, errManyRequests
	}
	defer i.held.Release(held)
	wait, cancel := context.WithTimeout(ctx, maxInboxWait)
	defer cancel()
	if err := i.served.Acquire(wait, served); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, errManyRequests
	}
	return leave, nil
}

var errManyRequests = fault.Errorf(codeUnavailable,
	"too many large requests are being served at the same time; try again later").After(retryLater)
