package cli

import (
	"context"
	"iter"
	"math"

	"github.com/apzuk3/agentd/client"
)

// Following says what to follow.
type Following struct {
	// Session is required; an empty Turn is its last one.
	Session, Turn string
	// After is the seq of the last event that is known; nil: from the turn's beginning.
	// Cursor is its counterpart for FollowSession.
	After  *int64
	Cursor string
	// Patient retries the first connection too.
	Patient bool
	// Lost is called when the connection is lost and retried; may be nil. The goroutine
	// that ranges calls it.
	Lost func(error)
	// Restored is called when it is there again; may be nil.
	Restored func()
}

// Follow yields the events of a turn up to its end, with those of package client that are
// not about the connection. It reconnects by itself. The last pair has an *Error
// if the end did not come.
func (c *Conn) Follow(
	ctx context.Context, f Following, opts ...client.AttachOption,
) iter.Seq2[*client.Event, error] {
	opts = append(opts, client.WithFailureEvents())
	if f.Turn != "" {
		opts = append(opts, client.WithTurnID(f.Turn))
	}
	if f.After != nil {
		opts = append(opts, client.WithAfterSeq(*f.After))
	}
	return func(yield func(*client.Event, error) bool) {
		session := c.Session(f.Session)
		c.follow(ctx, f, session, session.Attach(ctx, opts...), func(event *client.Event, err error) bool {
			return yield(event, err) && (err != nil || event.End == nil) // the error that follows repeats the end
		})
	}
}

// FollowSession yields the events of a session, of all of its turns, behind f.Cursor,
// until ctx ends. It reconnects by itself. The last pair has an *Error that says
// why it ended. Of f it takes Session, Cursor, Patient and Lost.
func (c *Conn) FollowSession(ctx context.Context, f Following) iter.Seq2[*client.Event, error] {
	return func(yield func(*client.Event, error) bool) {
		session := c.Session(f.Session)
		c.follow(ctx, f, session, session.Watch(ctx, client.WithCursor(f.Cursor)), yield)
	}
}

// follow yields events but for those about the connection, and explains the error.
func (c *Conn) follow(
	ctx context.Context, f Following, session *client.Session,
	events iter.Seq2[*client.Event, error], yield func(*client.Event, error) bool,
) {
	if !f.Patient { // package client retries the first connection
		_, err := Call(ctx, c, func(ctx context.Context) (*client.SessionInfo, error) { return session.Info(ctx) })
		if err != nil {
			yield(nil, err)
			return
		}
	}
	for event, err := range events {
		switch {
		case err != nil && ctx.Err() != nil:
			yield(nil, &Error{Message: "interrupted", Err: context.Cause(ctx)})
			return
		case err != nil:
			yield(nil, c.explain(err))
			return
		}
		switch d := event.Data.(type) {
		case *client.ConnectionLost:
			if f.Lost != nil {
				f.Lost(c.lost(d.Err))
			}
		case *client.ConnectionRestored:
			if f.Restored != nil {
				f.Restored()
			}
		case *client.ConnectionAbandoned:
		default:
			if !yield(event, nil) {
				return
			}
		}
	}
}

// SessionEvents calls show for what has happened in a session so far, behind a cursor. Its
// errors are *Error, or those of show.
func (c *Conn) SessionEvents(ctx context.Context, session, cursor string, show func(*client.Event) error) error {
	return each(ctx, c, math.MaxInt, func(ctx context.Context) iter.Seq2[*client.Event, error] {
		return c.Session(session).Events(ctx, client.WithCursor(cursor))
	}, show)
}

// TurnEvents calls show for what has happened in a turn so far, after a position; nil:
// from its beginning. Its errors are *Error, or those of show.
func (c *Conn) TurnEvents(
	ctx context.Context, session, turn string, after *int64, show func(*client.Event) error,
) error {
	return each(ctx, c, math.MaxInt, func(ctx context.Context) iter.Seq2[*client.Event, error] {
		return c.Session(session).TurnEvents(ctx, turn, after)
	}, show)
}
