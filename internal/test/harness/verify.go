package harness

import (
	"context"
	"iter"
	"testing"

	"github.com/apzuk3/agentd/adkbridge"
	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/internal/check"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// RecordsOf are a session's records.
func RecordsOf(ctx context.Context, db store.Store, id string) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		for last := int64(0); ; {
			recs, err := db.Read(ctx, id, last, 64)
			if err != nil {
				yield(record.Record{}, err)
				return
			}
			for _, rec := range recs {
				if last = rec.Seq; !yield(rec, nil) {
					return
				}
			}
			if store.LastPage(recs, 64) {
				return
			}
		}
	}
}

// VerifyLog runs a session again on its own log, which must give that log.
func VerifyLog(ctx context.Context, t *testing.T, store store.Store, id string) {
	t.Helper()
	rep, err := adkbridge.Verify(ctx, id, RecordsOf(ctx, store, id), nil)
	switch {
	case err != nil:
		t.Errorf("session %s: replay: %v", id, err)
	case rep.Divergence != nil:
		t.Errorf("session %s: replay: %v", id, rep.Divergence)
	}
}

// CheckStore is agentd check, which must find nothing.
func CheckStore(ctx context.Context, t *testing.T, db store.Store) {
	t.Helper()
	_, err := check.Run(ctx, db, check.Config{
		Decode: adkbridge.New(adkbridge.Config{}).Decode,
		Report: func(f check.Finding) { t.Error(f) },
	})
	if err != nil {
		t.Errorf("check: %v", err)
	}
}

// startVerified starts a daemon; when it has ended, all of its sessions are verified, and its store is checked.
func startVerified(t *testing.T, cfg agentdtest.Config, opts ...testdaemon.Option) *agentdtest.Daemon {
	t.Helper()
	disk, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	kept := &RecordedStore{Store: disk, Keep: true}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, id := range kept.ids { // the daemon has ended
			VerifyLog(ctx, t, kept, id)
		}
		CheckStore(ctx, t, disk)
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	return agentdtest.Start(t, cfg, append([]testdaemon.Option{testdaemon.WithStore(kept)}, opts...)...)
}
