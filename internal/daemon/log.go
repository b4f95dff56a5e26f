package daemon

import (
	"cmp"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/apzuk3/agentd/internal/keytext"
)

// hidden stands for what must not be logged.
const hidden = "***"

// secretNames end the names of attributes that are hidden whatever they hold.
var secretNames = []string{"api_key", "api-key", "apikey", "authorization", "password", "secret", "token"}

// LogConfig is how a daemon's log looks.
type LogConfig struct {
	// Level is the least level that is written; a slog.LevelVar may change it later. Default info.
	Level slog.Leveler
	// JSON writes one JSON object a line in place of text.
	JSON bool
	// Secrets are hidden wherever they turn up, and so are API keys of agentd, and what Redactor hides, which may be
	// nil.
	Secrets  []string
	Redactor *Redactor
}

// NewLogger returns a logger that writes to w. It is a last line of defence:
// nothing logs a key on purpose.
func NewLogger(w io.Writer, cfg LogConfig) *slog.Logger {
	redact := cmp.Or(cfg.Redactor, &Redactor{}).Hide(cfg.Secrets...)
	opts := &slog.HandlerOptions{Level: cfg.Level, ReplaceAttr: guard(redact)}
	if cfg.JSON {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// maxSecrets bounds the secrets of a Redactor; beyond it the oldest are forgotten.
const maxSecrets = 10_000

// Redactor hides secrets in texts. The zero value hides none. Its methods may be called from any goroutine.
type Redactor struct {
	mu       sync.Mutex // protects secrets
	secrets  []string
	replacer atomic.Pointer[strings.Replacer]
}

// Hide hides further secrets; empty ones are none. It returns the redactor.
func (r *Redactor) Hide(secrets ...string) *Redactor {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := map[string]bool{"": true}
	for _, s := range r.secrets {
		known[s] = true
	}
	for _, s := range secrets {
		if !known[s] {
			known[s], r.secrets = true, append(r.secrets, s)
		}
	}
	r.secrets = r.secrets[max(len(r.secrets)-maxSecrets, 0):]
	pairs := make([]string, 0, 2*len(r.secrets))
	for _, s := range r.secrets {
		pairs = append(pairs, s, hidden)
	}
	r.replacer.Store(strings.NewReplacer(pairs...))
	return r
}

// Replace returns a text without the secrets, and without API keys and tokens of agentd.
func (r *Redactor) Replace(text string) string {
	text = keytext.Hide(text)
	if now := r.replacer.Load(); now != nil {
		return now.Replace(text)
	}
	return text
}

// guard hides attributes by name, and known secrets in any text.
func guard(redact *Redactor) func([]string, slog.Attr) slog.Attr {
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
