package daemon

import (
	"io"
	"log/slog"
	"slices"
	"strings"
)

// hidden stands for what must not be logged.
const hidden = "***"

// secretNames end the names of attributes that are hidden whatever they hold.
var secretNames = []string{"api_key", "api-key", "apikey", "authorization", "password", "secret", "token"}

// LogConfig is how a daemon's log looks.
type LogConfig struct {
	// Level is the least level that is written.
	Level slog.Level
	// JSON writes one JSON object a line in place of text.
	JSON bool
	// Secrets are hidden wherever they turn up.
	Secrets []string
}

// NewLogger returns a logger that writes to w. It is a last line of defence:
// nothing logs a key on purpose.
func NewLogger(w io.Writer, cfg LogConfig) *slog.Logger {
	opts := &slog.HandlerOptions{Level: cfg.Level, ReplaceAttr: guard(cfg.Secrets)}
	if cfg.JSON {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// guard hides attributes by name, and known secrets in any text.
func guard(secrets []string) func([]string, slog.Attr) slog.Attr {
	pairs := make([]string, 0, 2*len(secrets))
	for _, s := range secrets {
		pairs = append(pairs, s, hidden)
	}
	redact := strings.NewReplacer(pairs...)
	return func(_ []string, a slog.Attr) slog.Attr {
		name := strings.ToLower(a.Key)
		if slices.ContainsFunc(secretNames, func(s string) bool { return strings.HasSuffix(name, s) }) {
			return slog.String(a.Key, hidden)
		}
		switch v := a.Value.Any().(type) {
		case string:
			a.Value = slog.StringValue(redact.Replace(v))
		case error:
			a.Value = slog.StringValue(redact.Replace(v.Error()))
		case []string:
			a.Value = slog.StringValue(redact.Replace(strings.Join(v, ",")))
		}
		return a
	}
}
