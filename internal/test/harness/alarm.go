package harness

import (
	"context"
	"log/slog"
	"testing"
)

// Alarm is a log handler that fails the test when the daemon reports a fault of
// its own. Its lines stay out of the test's output otherwise.
type Alarm struct{ T testing.TB }

// Enabled takes warnings and errors.
func (Alarm) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// WithAttrs returns the handler: only an error counts.
func (a Alarm) WithAttrs([]slog.Attr) slog.Handler { return a }

// WithGroup returns the handler: only an error counts.
func (a Alarm) WithGroup(string) slog.Handler { return a }

// Handle fails the test if the record is an error.
func (a Alarm) Handle(_ context.Context, r slog.Record) error {
	if r.Level < slog.LevelError && r.Message != "history of a stopped turn is incomplete" {
		return nil
	}
	line := r.Message
	r.Attrs(func(at slog.Attr) bool { line += " " + at.String(); return true })
	a.T.Errorf("the daemon reports a fault: %s", line)
	return nil
}
