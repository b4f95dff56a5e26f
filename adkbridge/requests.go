package adkbridge

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// smallRequest is how large a request of a model may be to count as a small one.
const smallRequest = 1 << 20

// requests bounds what the turns of a Runner send to models at the same time. Large
// requests have a quarter of the room and wait for each other in it, so no small
// request waits for a large one. A call that holds room takes no more of it until it is
// over.
type requests struct {
	small, large         *semaphore.Weighted
	smallRoom, largeRoom int64
}

func newRequests(bytes int) *requests {
	r := &requests{largeRoom: max(int64(bytes)/4, 1)}
	r.smallRoom = max(int64(bytes)-r.largeRoom, 1)
	r.small, r.large = semaphore.NewWeighted(r.smallRoom), semaphore.NewWeighted(r.largeRoom)
	return r
}

// enter waits until there is room for a request. One that is larger than all of the
// room takes all of it. The caller calls leave when the call is over.
func (r *requests) enter(ctx context.Context, size int64) (leave func(), err error) {
	room, most := r.small, r.smallRoom
	if size > smallRequest {
		room, most = r.large, r.largeRoom
	}
	size = min(size, most)
	if err := room.Acquire(ctx, size); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { room.Release(size) }, nil
}
