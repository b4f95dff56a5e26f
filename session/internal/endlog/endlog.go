// Package endlog writes the line of the log that says how a turn has ended. It knows no session.
package endlog

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// Turn is what the line says of the turn besides its end.
type Turn struct {
	Session, ID, Agent string
	Usage              record.Usage
	Took               time.Duration
	Trace              string // "" for none
}

// Log logs the end of a turn; err is why, nil for an end that needs no explanation.
func Log(log *slog.Logger, t Turn, end *record.TurnEnded, err error) {
	u := t.Usage
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs,
		slog.String("session", t.Session),
		slog.String("turn", t.ID),
		slog.String("agent", t.Agent),
		slog.Bool("completed", end.Completed),
		slog.Int64("model_calls", u.Calls),
		slog.Int64("tokens", u.Total),
		slog.Float64("cost_usd", u.Cost.Dollars()),
		slog.Duration("took", t.Took),
	)
	if t.Trace != "" {
		attrs = append(attrs, slog.String("trace_id", t.Trace))
	}
	if u.Unpriced > 0 {
		attrs = append(attrs, slog.Int64("unpriced_calls", u.Unpriced))
	}
	level := slog.LevelInfo
	if end.Code != 0 {
		attrs = append(attrs, slog.String("code", end.Code.String()))
	} else if !end.Completed {
		attrs = append(attrs, slog.String("reason", "stopped by the client"))
	}
	if err != nil {
		level = slog.LevelWarn
		cause := err
		if e, ok := errors.AsType[*fault.Error](err); ok && e.Err != nil {
			cause = e.Err
		}
		if end.Code == fault.Internal || end.Code == 0 {
			level = slog.LevelError
		}
		attrs = append(attrs, slog.Attr{Key: "error", Value: logValue(cause)})
	}
	log.LogAttrs(context.Background(), level, "turn ended", attrs...)
}

// logValue returns an error as the server logs it. An error of the chain that is a slog.LogValuer leaves
// out what only the client may read.
func logValue(err error) slog.Value {
	type valuer interface {
		error
		slog.LogValuer
	}
	if v, ok := errors.AsType[valuer](err); ok {
		return v.LogValue()
	}
	return slog.StringValue(err.Error())
}
