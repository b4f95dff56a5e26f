package postgres

import (
	"testing"

	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session/store/storetest"
)

// BenchmarkStore measures a server that writes to the disk what it acknowledges, on the machine of the test.
func BenchmarkStore(b *testing.B) {
	server := pgserver.Start(b, pgserver.Options{Fsync: true,
		Settings: map[string]string{"shared_buffers": "256MB", "max_wal_size": "2GB"}})
	s := openAt(b, server.URL(b))
	storetest.Harness{}.Benchmark(b, s)
	if err := s.Close(); err != nil {
		b.Error(err)
	}
}
