package cluster

import (
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/test/link"
	"github.com/apzuk3/agentd/internal/test/pgserver"
)

// TestWindowBeginsAnew: a database that was away comes back, first for one member and then for another. The first one does
// not take the other for dead meanwhile, though it has not beaten for long and its lock may be free.
func TestWindowBeginsAnew(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]struct{ stop, start func(*pgserver.Server) }{
		"frozen": {(*pgserver.Server).Freeze, (*pgserver.Server).Thaw},
		"killed": {(*pgserver.Server).Kill, (*pgserver.Server).Restart},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgserver.Start(t, pgserver.Options{})
			d := newDB(t, server.URL(t))
			wire := link.New(t, server.Addr())
			a, b := d.join("a", wire.Addr()), d.join("b", "")
			id := d.sessions(1, "s", false)[0]
			a.claims(id)
			await(t, "b sees the lock of a", func() bool { return b.sees(a.ID(), func(s *seen) bool { return s.wasHeld }) })
			f.stop(server)
			time.Sleep(testTTL + testLockTTL)
			wire.Hold()
			f.start(server)
			back := time.Now()
			await(t, "b reaches the database", func() bool { return !b.InDoubt() })
			for time.Since(back) < testTTL/2 {
				if _, dead := b.Replicas(); len(dead) > 0 && time.Since(back) < testTTL {
					t.Fatalf("b takes %v for dead %v after the database is back", dead, time.Since(back))
				}
				time.Sleep(testBeat / 4)
			}
			wire.Heal()
			await(t, "a reaches the database", func() bool { return !a.InDoubt() })
			if _, dead := b.Replicas(); len(dead) > 0 { // a did not come back in time
				t.Logf("b takes %v for dead %v after the database is back", dead, time.Since(back))
				return
			}
			b.meets(id, a)
		})
	}
}
