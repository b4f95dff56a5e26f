package harness

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/internal/test/sessionfront"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// Service is the one over which the turns of a test are driven.
type Service int

// The services.
const (
	OverRun Service = iota
	OverSessions
	// OverFront is Run at a daemon that owns no session: another one runs the turns.
	OverFront
)

func (s Service) String() string {
	return []string{"Run", "SessionService", "Run at another daemon"}[s]
}

// logbook is what is kept of the scenario that TestServices runs: which service
// carries it, and what it leaves behind.
type logbook struct {
	over Service

	mu      sync.Mutex                 // protects the fields below
	logs    map[string][]record.Record // by session
	streams []string                   // what clients were sent
	parts   map[string]bool            // that were left out
}

// current is the scenario that runs; nil when the tests run by themselves, and then
// over Run. It changes between tests only.
var current *logbook

// InScenario reports whether TestServices runs the test.
func InScenario() bool { return current != nil }

// StartDaemon starts a daemon that carries the turns of the running test over
// the service that it is to use.
func StartDaemon(t testing.TB, cfg agentdtest.Config, opts ...testdaemon.Option) *agentdtest.Daemon {
	t.Helper()
	if current == nil {
		if t, ok := t.(*testing.T); ok {
			return startVerified(t, cfg, opts...)
		}
		return agentdtest.Start(t, cfg, opts...)
	}
	store, err := OpenStore(t.Context(), sqlite.Memory)
	if err != nil {
		t.Fatal(err)
	}
	first := []testdaemon.Option{testdaemon.WithStore(store)} // unless the test has one
	if current.over == OverSessions {
		first = append(first, testdaemon.WithFront(func(hc *http.Client, url string) http.Handler {
			f, err := sessionfront.New(hc, url)
			if err != nil {
				t.Fatal(err)
			}
			return f.Handler()
		}))
	}
	opts = append(first, opts...)
	if current.over == OverFront {
		opts = append(opts, testdaemon.BehindFront(t))
	}
	d := agentdtest.Start(t, cfg, opts...)
	t.Cleanup(func() { _ = store.Close() }) // it is the daemon's, or nobody's
	return d
}

// OpenStore opens a store whose logs are kept for comparison.
func OpenStore(ctx context.Context, path string) (store.Store, error) {
	disk, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil || current == nil {
		return disk, err
	}
	return &booked{Store: disk, book: current}, nil
}

// booked is a store that writes its logs into a logbook before it closes.
type booked struct {
	store.Store
	book *logbook
	once sync.Once

	mu  sync.Mutex
	ids []string // of the sessions that were made or written; protected by mu
}

func (b *booked) Append(ctx context.Context, batch store.Batch) error {
	b.mu.Lock()
	if !slices.Contains(b.ids, batch.SessionID) {
		b.ids = append(b.ids, batch.SessionID)
	}
	b.mu.Unlock()
	return b.Store.Append(ctx, batch)
}

func (b *booked) Close() error {
	var err error
	b.once.Do(func() {
		for _, id := range b.ids { // nobody writes any more
			recs, e := b.Read(context.Background(), id, 0, 1<<20)
			if e != nil {
				err = e
				break
			}
			b.book.mu.Lock()
			b.book.logs[id] = recs
			b.book.mu.Unlock()
		}
		if e := b.Store.Close(); err == nil {
			err = e
		}
	})
	return err
}
