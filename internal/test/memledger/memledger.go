// Package memledger is a ledger for tests, in memory.
package memledger

import (
	"testing"

	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/internal/ledger/sqlledger"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// Open returns an empty ledger, which ends with the test.
func Open(tb testing.TB) ledger.Ledger {
	tb.Helper()
	s, err := sqlite.Open(tb.Context(), sqlite.Memory, sqlite.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return sqlledger.New(s)
}
