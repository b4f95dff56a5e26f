package cli

import (
	"context"
	"time"

	"github.com/apzuk3/agentd/internal/backoff"
)

const (
	// patience is how long the start of a turn is retried.
	patience = 2 * time.Minute
	// firstWait and lastWait bound the waits between tries.
	firstWait, lastWait = 100 * time.Millisecond, 5 * time.Second
)

// retry makes a request as Call does, and repeats it until ctx ends while the error may
// pass and more allows it. It notes the first repeat. The request must have the same effect
// when it is made twice. The errors are *Error.
func retry[T any](
	ctx context.Context, t *Turn, more func(*Error) bool, request func(context.Context) (T, error),
) (T, error) {
	for n := 0; ; n++ {
		out, err := Call(ctx, t.Conn, request)
		if err == nil || ctx.Err() != nil {
			return out, err
		}
		e := t.Conn.explain(err)
		if !e.mayPass() || !more(e) {
			return out, e
		}
		if n == 0 {
			t.Note("%v; trying again", e)
		}
		if backoff.Wait(ctx, max(backoff.Full(firstWait, lastWait, n), min(e.RetryAfter, patience))) != nil {
			return out, e
		}
	}
}
