// Package halt says why the run of a turn ends before its work is done, and what the log and the clients learn of it.
//
// It knows neither turns nor sessions.
package halt

import (
	"context"
	"errors"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/record"
)

// ErrSuspended is the cause with which the context of a run ends when its turn is suspended. The runner
// must leave the history as it is: the turn is resumed later, here or on another server.
var ErrSuspended = errors.New("session: the turn is suspended")

// ErrResumedLater is the error that watchers of a suspended turn receive.
var ErrResumedLater = fault.Errorf(fault.Unavailable,
	"the turn goes on later: attach again with session_id and after_seq")

var (
	errMoved  = errors.New("session: another server owns the session")
	errUnsure = errors.New("session: whether it was written is not known")
)

// ErrMoved is the error of a session in memory whose owner is, or may be, another server. Watchers receive it, and so
// does what was to be written and was not. ErrUnsure is that of what may have been written before.
var (
	ErrMoved = &fault.Error{
		Code: fault.Unavailable, RetryAfter: refusal.Soon, Err: errMoved,
		Message: "the session has moved to another server: attach again with session_id and after_seq",
	}
	ErrUnsure = &fault.Error{
		Code: fault.Unavailable, RetryAfter: refusal.Soon, Err: errors.Join(errMoved, errUnsure),
		Message: "the session has moved to another server, and this request may have been taken before: try again",
	}
)

// IsMoved reports whether an error is ErrMoved or ErrUnsure, and IsUnsure whether it is the second.
func IsMoved(err error) bool { return errors.Is(err, errMoved) }

// IsUnsure is described at IsMoved.
func IsUnsure(err error) bool { return errors.Is(err, errUnsure) }

// Canceled is the cause with which the context of a canceled turn ends.
type Canceled struct { //nolint:errname // a cause
	Reason  string
	At      time.Time
	Receipt record.Receipt
}

func (c *Canceled) Error() string { return c.Reason }

// End returns the end of the canceled turn, as of now.
func (c *Canceled) End() *record.TurnEnded {
	receipt := c.Receipt
	receipt.Took = time.Since(c.At)
	return &record.TurnEnded{Reason: c.Reason, Receipt: &receipt}
}

// EndOf returns the end of a turn whose run has returned err, and what is to be logged of err: nothing of a
// turn that was canceled.
func EndOf(ctx context.Context, err error) (*record.TurnEnded, error) {
	if err == nil {
		return &record.TurnEnded{Completed: true}, nil
	}
	// The cause of the context says more than the runner's error.
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if stop, ok := errors.AsType[*Canceled](err); ok {
		return stop.End(), nil
	}
	return new(record.TurnEnded).Fail(fault.As(err)), err
}
