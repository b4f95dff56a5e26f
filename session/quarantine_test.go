package session_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/store"
)

// grave is a store of a process: once that has died, nothing reaches the store.
type grave struct {
	store.Store
	dead atomic.Bool
}

var errDead = errors.New("the process is dead")

func (g *grave) Append(ctx context.Context, b store.Batch) error {
	if g.dead.Load() {
		return errDead
	}
	return g.Store.Append(ctx, b)
}

func (g *grave) SetAttempts(ctx context.Context, id string, attempts int64, waits bool) error {
	if g.dead.Load() {
		return errDead
	}
	return g.Store.SetAttempts(ctx, id, attempts, waits)
}

// lives are processes on one store, one after the other. A turn whose prompt is
// "kill" ends the process that runs it as soon as it runs.
type lives struct {
	t      *testing.T
	store  store.Store
	limits limits.Limits
	log    bytes.Buffer

	mu   sync.Mutex // protects the fields below
	ran  map[string]int
	m    *session.Manager
	g    *grave
	died chan struct{}
}

func newLives(t *testing.T, limits limits.Limits) *lives {
	limits.StorePatience = time.Millisecond
	return &lives{t: t, store: memory(t), limits: limits, ran: map[string]int{}}
}

// begin starts a process. It may die before begin returns.
func (l *lives) begin() {
	l.t.Helper()
	g, died := &grave{Store: l.store}, make(chan struct{})
	var once sync.Once
	e := &engine{run: func(ctx context.Context, r *session.Run) error {
		l.mu.Lock()
		l.ran[r.Spec().Prompt]++
		l.mu.Unlock()
		if r.Spec().Prompt == "kill" {
			g.dead.Store(true)
			once.Do(func() { close(died) })
			<-ctx.Done()
			return context.Cause(ctx)
		}
		if strings.HasPrefix(r.Spec().Prompt, "think") {
			select {
			case <-time.After(5 * time.Minute):
				return say(ctx, r, "m", root, "done")
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return talk(ctx, r)
	}}
	m, err := session.NewManager(session.Config{
		Store: g, Runner: e, Limits: l.limits, Logger: slog.New(slog.NewTextHandler(&l.log, nil)),
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.m, l.g, l.died = m, g, died
	if err := m.Recover(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

// end lets go of a process that was killed, or kills it now.
func (l *lives) end() {
	l.t.Helper()
	l.g.dead.Store(true)
	l.shutdown()
}

func (l *lives) shutdown() {
	l.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := l.m.Shutdown(ctx); err != nil {
		l.t.Errorf("shutdown: %v", err)
	}
}

func (l *lives) start(prompt string) *session.Turn {
	l.t.Helper()
	turn, err := l.m.Start(l.t.Context(), session.Request{
		Prompt: prompt, Agent: tree(), Tools: []*agentdv1.Tool{{Name: "tool", Description: "a tool"}},
	})
	if err != nil {
		l.t.Fatalf("start %q: %v", prompt, err)
	}
	return turn
}

func (l *lives) info(turn *session.Turn) index.Turn {
	l.t.Helper()
	info, err := l.m.Turn(l.t.Context(), turn.SessionID(), turn.ID())
	if err != nil {
		l.t.Fatal(err)
	}
	return info
}

// quarantined checks that a turn was failed for the deaths of a number of processes.
func (l *lives) quarantined(turn *session.Turn, deaths int) {
	l.t.Helper()
	info := l.info(turn)
	want := fmt.Sprintf("the server died %d times in a row", deaths)
	if info.Status != index.Failed || !strings.Contains(info.End.Message, want) || !strings.Contains(info.End.Message, "quarantined") {
		l.t.Errorf("the turn is %v, %+v; want failed with %q", info.Status, info.End, want)
	}
	if n := strings.Count(l.log.String(), "turn quarantined"); n != 1 || !strings.Contains(l.log.String(), turn.SessionID()) || !strings.Contains(l.log.String(), turn.ID()) {
		l.t.Errorf("the log tells of %d quarantined turns, want this one: %s", n, l.log.String())
	}
}

// works checks that a session, "" is a new one, takes a turn and completes it.
func (l *lives) works(id string) {
	l.t.Helper()
	turn, err := l.m.Start(l.t.Context(), session.Request{SessionID: id, Prompt: "hello", Agent: tree()})
	if err != nil {
		l.t.Fatalf("start: %v", err)
	}
	<-turn.Done()
	if info := l.info(turn); info.Status != index.Succeeded {
		l.t.Errorf("the turn is %v, %+v", info.Status, info.End)
	}
}

// TestQuarantine (F37): a turn that kills the process which runs it, before it has
// written anything, is failed after as many deaths as the limit says.
func TestQuarantine(t *testing.T) {
	for _, limit := range []int{0, 1, 2, 5} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLives(t, limits.Limits{QuarantineAfter: limit})
				deaths := limit
				if limit == 0 {
					deaths = 3
				}
				l.begin()
				poison := l.start("kill")
				for range deaths - 1 {
					<-l.died
					l.end()
					l.begin()
				}
				<-l.died
				l.end()
				l.begin()
				synctest.Wait()
				l.quarantined(poison, deaths)
				l.works("")
				l.works(poison.SessionID())
				l.shutdown()
				l.begin()
				l.works(poison.SessionID())
				if l.ran["kill"] != deaths {
					t.Errorf("the turn ran %d times, want %d", l.ran["kill"], deaths)
				}
				l.shutdown()
			})
		})
	}
}

// TestQuarantineNever: below 0 nothing is counted against a turn.
func TestQuarantineNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLives(t, limits.Limits{QuarantineAfter: -1})
		l.begin()
		poison := l.start("kill")
		for range 10 {
			<-l.died
			l.end()
			l.begin()
		}
		<-l.died
		l.end()
		l.limits.QuarantineAfter = 3
		l.begin()
		l.quarantined(poison, 11)
		l.shutdown()
	})
}

// TestQuarantineOfOneAlone: turns that were running beside the one that kills the
// process continue, though they were running each time, and none has written anything.
func TestQuarantineOfOneAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLives(t, limits.Limits{})
		l.begin()
		var others []*session.Turn
		for i := range 8 {
			others = append(others, l.start(fmt.Sprintf("think %d", i)))
		}
		poison := l.start("kill")
		for range 20 {
			synctest.Wait()
			if !l.g.dead.Load() {
				time.Sleep(6 * time.Minute) // who is tried now is done
				synctest.Wait()
			}
			if l.g.dead.Load() {
				l.end()
				l.begin()
			}
		}
		l.quarantined(poison, 3)
		for _, turn := range others {
			if info := l.info(turn); info.Status != index.Succeeded {
				t.Errorf("%q is %v, %+v", info.Prompt, info.Status, info.End)
			}
		}
		l.shutdown()
	})
}

// TestQuarantineOfTheWoken: a turn that waits for its client kills the process when
// one attaches; the starts themselves leave it alone.
func TestQuarantineOfTheWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLives(t, limits.Limits{})
		l.begin()
		turn := l.start("ask me")
		<-turn.Done() // suspended
		l.shutdown()
		for range 3 {
			l.begin()
			synctest.Wait()
			if info := l.info(turn); info.Status != index.WaitingForClient {
				t.Fatalf("the turn is %v, %+v", info.Status, info.End)
			}
			_, w, err := l.m.Attach(t.Context(), session.AttachRequest{SessionID: turn.SessionID()})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			l.end() // as soon as it runs
			w.Close()
		}
		l.begin()
		l.quarantined(turn, 3)
		l.works(turn.SessionID())
		l.shutdown()
	})
}

// TestNoQuarantine: what does not count.
func TestNoQuarantine(t *testing.T) {
	t.Run("a stop", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLives(t, limits.Limits{})
			l.begin()
			turn := l.start("think")
			for range 9 {
				time.Sleep(time.Second)
				l.shutdown()
				l.begin()
			}
			time.Sleep(6 * time.Minute)
			if info := l.info(turn); info.Status != index.Succeeded {
				t.Errorf("the turn is %v, %+v", info.Status, info.End)
			}
			l.shutdown()
		})
	})
	t.Run("a death while its client is asked", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLives(t, limits.Limits{})
			l.begin()
			turn := l.start("ask me")
			for range 9 {
				_, w, err := l.m.Attach(t.Context(), session.AttachRequest{SessionID: turn.SessionID(), Tools: []string{"tool"}})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				l.end()
				w.Close()
				l.begin()
			}
			again, w, err := l.m.Attach(t.Context(), session.AttachRequest{SessionID: turn.SessionID(), Tools: []string{"tool"}})
			if err != nil {
				t.Fatal(err)
			}
			answer(t, again)
			if e := end(t, follow(t, w)); !e.Completed {
				t.Errorf("end is %v", e)
			}
			l.shutdown()
		})
	})
	t.Run("a death after a step forward", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLives(t, limits.Limits{})
			l.begin()
			turn := l.start("ask me")
			for range 2 {
				synctest.Wait()
				l.end()
				l.begin()
				if _, w, err := l.m.Attach(t.Context(), session.AttachRequest{SessionID: turn.SessionID()}); err != nil {
					t.Fatal(err)
				} else {
					w.Close()
				}
			}
			again, w, err := l.m.Attach(t.Context(), session.AttachRequest{SessionID: turn.SessionID(), Tools: []string{"tool"}})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			head, err := l.store.Head(t.Context(), turn.SessionID())
			if err != nil || head.Attempts != 3 {
				t.Errorf("head is %+v, %v", head, err)
			}
			if err := again.CancelCall(t.Context(), "c-"+turn.ID()); err != nil {
				t.Fatal(err)
			}
			follow(t, w)
			if head, err = l.store.Head(t.Context(), turn.SessionID()); err != nil || head.Attempts > 1 {
				t.Errorf("head is %+v, %v", head, err)
			}
			l.shutdown()
		})
	})
}

// TestQuarantineThatKills: where the process dies while it ends the turn, the turn
// is left alone, and the others continue.
func TestQuarantineThatKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLives(t, limits.Limits{})
		l.begin()
		poison := l.start("kill")
		<-l.died
		l.end()
		if err := l.store.SetAttempts(t.Context(), poison.SessionID(), store.AttemptsClosing, false); err != nil {
			t.Fatal(err)
		}
		l.begin()
		synctest.Wait()
		l.works("")
		if !strings.Contains(l.log.String(), "left open: the process died while the turn was ended") {
			t.Errorf("the log is %s", l.log.String())
		}
		_, _, err := l.m.Attach(t.Context(), session.AttachRequest{SessionID: poison.SessionID()})
		if code(err) != agentdv1.ErrorCode_ERROR_CODE_FAILED_PRECONDITION {
			t.Errorf("attach: %v", err)
		}
		l.shutdown()
	})
}
