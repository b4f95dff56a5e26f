package retry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/store"
)

// TestDamagedIsFinal: a read that meets damage fails at once, is written to the log, and
// is nothing that the caller should try again; the store as a whole goes on.
func TestDamagedIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		db := &lossy{script: make([]error, 2)}
		for i := range db.script {
			db.script[i] = fmt.Errorf("usage of session %q: %w", "a", store.ErrDamaged)
		}
		p := New(Config{
			Store: db, Patience: time.Minute, Logger: slog.New(slog.NewTextHandler(&lines, nil)),
			OnFatal: func(err error) { t.Errorf("fatal: %v", err) },
		})
		defer p.Abort()
		for name, read := range map[string]func() error{
			"Info": func() error { _, err := p.Info(context.Background(), "a"); return err },
			"Row":  func() error { _, err := p.Row(context.Background(), store.RowTurn, "a", "t"); return err },
		} {
			begun, tries := time.Now(), db.tries
			lines.Reset()
			err := read()
			var e *fault.Error
			if !errors.As(err, &e) || e.Code != fault.Internal || e.Retryable() || !strings.Contains(e.Message, "damaged") {
				t.Errorf("%s: %v, want an internal error that says what is damaged", name, err)
			}
			if db.tries != tries+1 || time.Since(begun) > 0 {
				t.Errorf("%s: %d tries in %s, want one at once", name, db.tries-tries, time.Since(begun))
			}
			if n := strings.Count(lines.String(), "level=ERROR"); n != 1 || !strings.Contains(lines.String(), "usage of session") {
				t.Errorf("%s: the log says %q", name, lines.String())
			}
		}
		if err := p.Failed(); err != nil {
			t.Errorf("the store has failed: %v", err)
		}
	})
}
