package audit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/internal/audit"
	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/internal/test/memledger"
)

// slow is a ledger that writes as slowly as a test says, or not at all.
type slow struct {
	ledger.Ledger
	mu     sync.Mutex // held while it writes
	writes int
	err    error
	away   int // writes that fail
	hangs  bool
}

func (l *slow) AddEntries(ctx context.Context, entries []ledger.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes++
	if l.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if l.away > 0 {
		l.away--
		return errors.New("the ledger is away")
	}
	if l.err != nil {
		return l.err
	}
	return l.Ledger.AddEntries(ctx, entries)
}

// open returns a ledger in memory.
func open(t *testing.T) *slow {
	t.Helper()
	return &slow{Ledger: memledger.Open(t)}
}

func entry(n int) ledger.Entry {
	return ledger.Entry{Time: time.Now(), Principal: fmt.Sprint("p", n), Action: "Run.execute", Outcome: "ok", From: "here"}
}

func (l *slow) all(t *testing.T) (out []string) {
	t.Helper()
	list, err := l.Entries(t.Context(), ledger.EntryQuery{AllTenants: true, Limit: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		out = append(out, e.Principal)
	}
	return out
}

// More entries than may wait are written, in order and in few writes, while the ledger hangs for a time.
func TestTrail(t *testing.T) {
	const entries = 5000
	l := open(t)
	trail := audit.New(audit.Config{Ledger: l, Logger: slog.New(slog.DiscardHandler)})
	l.mu.Lock()
	added := make(chan struct{})
	go func() {
		defer close(added)
		for i := range entries {
			trail.Add(entry(i))
		}
	}()
	select {
	case <-added:
		t.Error("nobody waits for a ledger that hangs")
	case <-time.After(300 * time.Millisecond):
	}
	l.mu.Unlock()
	<-added
	trail.Close()
	trail.Close()
	got := l.all(t)
	if len(got) != entries || l.writes > entries/500 {
		t.Errorf("%d entries of %d in %d writes", len(got), entries, l.writes)
	}
	for i, who := range got {
		if who != fmt.Sprint("p", i) {
			t.Fatalf("entry %d is of %s", i, who)
		}
	}
}

// What is not written is in the log, as is what comes after the end.
func TestUnwrittenEntries(t *testing.T) {
	l := open(t)
	l.err = errors.New("the disk is full")
	var log bytes.Buffer
	trail := audit.New(audit.Config{Ledger: l, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	trail.Add(entry(1))
	trail.Close()
	trail.Add(entry(2))
	for _, want := range []string{"the disk is full", "principal=p1", "the trail has ended", "principal=p2"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q: %s", want, log.String())
		}
	}
}

// A ledger that is away for a while gets all entries, once each, and none of them is in the log; for one that does not
// come back nobody waits for ever.
func TestLedgerAway(t *testing.T) {
	for away, want := range map[int]int{20: 2, 1000: 0} {
		synctest.Test(t, func(t *testing.T) {
			l := open(t)
			l.away = away
			var log bytes.Buffer
			trail := audit.New(audit.Config{Ledger: l, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			trail.Add(entry(1))
			time.Sleep(time.Second)
			trail.Add(entry(2))
			time.Sleep(2 * time.Minute)
			trail.Close()
			if got := l.all(t); len(got) != want || (log.Len() == 0) != (want == 2) {
				t.Errorf("away %d times: %v are written, the log is %s", away, got, log.String())
			}
		})
	}
}

// A ledger that hangs does not keep the trail from ending, and its entries are in the log.
func TestLedgerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t)
		l.hangs = true
		var log bytes.Buffer
		trail := audit.New(audit.Config{Ledger: l, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		trail.Add(entry(1))
		time.Sleep(time.Second)
		trail.Add(entry(2))
		begun := time.Now()
		trail.Close()
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("the trail ended after %v", took)
		}
		if n := strings.Count(log.String(), "an entry of the audit trail is not written"); n != 2 {
			t.Errorf("%d entries are in the log, want 2: %s", n, log.String())
		}
	})
}

// Old entries go, also while the server runs; without a bound all stay.
func TestOldEntries(t *testing.T) {
	for keep, want := range map[time.Duration]int{0: 2501, 24 * time.Hour: 1} {
		synctest.Test(t, func(t *testing.T) {
			l := open(t)
			for i := range 2500 {
				if err := l.AddEntries(context.Background(), []ledger.Entry{entry(i)}); err != nil {
					t.Fatal(err)
				}
			}
			trail := audit.New(audit.Config{Ledger: l, Keep: keep, Logger: slog.New(slog.DiscardHandler)})
			time.Sleep(20 * time.Hour)
			trail.Add(entry(2500))
			time.Sleep(6 * time.Hour)
			trail.Close()
			if got := len(l.all(t)); got != want {
				t.Errorf("with %v there are %d entries, want %d", keep, got, want)
			}
		})
	}
}
