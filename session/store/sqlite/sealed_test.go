package sqlite

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/sealed"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/storetest"
)

// TestFailingSealed is TestFailing for a store that is encrypted; package sealed runs the rest of the suite.
func TestFailingSealed(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("a "+strings.Repeat("YWFh", 10)+"YWE="), 0o600); err != nil {
		t.Fatal(err)
	}
	storetest.Harness{OpenFailing: func(t *testing.T, dir string) (store.Store, func(bool)) {
		var next func(commit func() error) error // set while no append is under way
		s := open(t, dir, withCommit(func(commit func() error) error {
			if next != nil {
				return next(commit)
			}
			return commit()
		}))
		ring, err := sealed.Open(t.Context(), s, sealed.Config{KeysFile: keys}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return sealed.New(s, ring), func(persisted bool) {
			next = func(commit func() error) error {
				errDisk := errors.New("the disk is on fire")
				if persisted {
					return errors.Join(errDisk, commit())
				}
				return errDisk
			}
		}
	}}.Run(t)
}
