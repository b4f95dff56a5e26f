package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/testmain"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// asDaemon makes the test binary be a daemon that can be told where to die:
// crashAt is "before" or "after", a colon, and the number of a record.
const (
	asDaemon = "CHAOS_AS_DAEMON"
	crashAt  = "CHAOS_CRASH_AT"
)

func TestMain(m *testing.M) {
	if os.Getenv(asDaemon) != "" {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testmain.Run(m)
}

// serve is a daemon as the command starts it, but for its store.
func serve() error {
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	store, err := sqlite.Open(stop, filepath.Join(os.Getenv("AGENTD_DATA"), "agentd.db"), sqlite.Config{})
	if err != nil {
		return err
	}
	mortal, err := newMortal(store, os.Getenv(crashAt))
	if err != nil {
		return errors.Join(err, store.Close())
	}
	d, err := daemon.New(daemon.Config{
		Addr: os.Getenv("AGENTD_ADDR"), Store: mortal, Getenv: os.Getenv,
		Logger: slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Turns:  limits.Limits{HandoverGrace: 100 * time.Millisecond},
	})
	if err != nil {
		return errors.Join(err, store.Close())
	}
	err = d.Start(stop)
	if err == nil {
		<-stop.Done()
	}
	hard, cancelHard := context.WithCancel(context.Background())
	cancelHard()
	return errors.Join(err, d.Shutdown(hard))
}

// mortal is a store that kills its process at a record.
type mortal struct {
	store.Store
	after  bool
	record int // 0 is the making of a session, -1 none

	mu      sync.Mutex // protects records
	records int        // that were appended by this process
}

func newMortal(store store.Store, at string) (*mortal, error) {
	m := &mortal{Store: store, record: -1}
	if at == "" {
		return m, nil
	}
	side, number, _ := strings.Cut(at, ":")
	n, err := strconv.Atoi(number)
	if err != nil || side != "before" && side != "after" {
		return nil, fmt.Errorf("%s is %q, want before:n or after:n", crashAt, at)
	}
	m.record, m.after = n, side == "after"
	return m, nil
}

func (m *mortal) Create(ctx context.Context, s store.NewSession, key *store.Key) error {
	if m.record == 0 && !m.after {
		die()
	}
	err := m.Store.Create(ctx, s, key)
	if m.record == 0 {
		die()
	}
	return err
}

func (m *mortal) Append(ctx context.Context, b store.Batch) error {
	m.mu.Lock()
	from := m.records
	m.records += len(b.Records)
	hit := m.record > from && m.record <= m.records || m.record == 0 && b.Create != nil
	m.mu.Unlock()
	if hit && !m.after {
		die()
	}
	err := m.Store.Append(ctx, b)
	if hit {
		die()
	}
	return err
}

// die ends the process as kill -9 does, and does not return.
func die() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {}
}
