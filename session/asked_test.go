package session_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// isRequested reports whether a watcher has a request for a call by now.
func isRequested(t *testing.T, w *session.Watcher) bool {
	t.Helper()
	synctest.Wait()
	msgs, err := w.Next(t.Context())
	if err != nil {
		t.Fatalf("next: %v", err)
	}
	return slices.ContainsFunc(msgs, isCall)
}

// TestAnsweredCallIsAskedOfNobody (F17): while a result waits for the store, its call
// is no longer open, whatever its client and others do meanwhile.
func TestAnsweredCallIsAskedOfNobody(t *testing.T) {
	with := session.AttachRequest{Tools: []string{"tool"}}
	for name, meanwhile := range map[string]func(f *fixture, owner *session.Watcher){
		"its client leaves":          func(_ *fixture, owner *session.Watcher) { owner.Close() },
		"its client half-closes":     func(_ *fixture, owner *session.Watcher) { owner.Unattended("it has closed its side") },
		"a newer client leaves":      func(f *fixture, _ *session.Watcher) { _, w := f.attach(with); w.Close() },
		"its client leaves and back": func(f *fixture, owner *session.Watcher) { owner.Close(); f.attach(with) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &tampered{Store: memory(t)}
				f := newFixture(t, db, limits.Limits{})
				f.on(talk)
				turn := f.start(session.Request{Prompt: "ask"})
				owner := turn.Watch()
				await(t, owner, isCall)
				with.SessionID = turn.SessionID()
				_, second := f.attach(with)
				db.tamper(always(store.ErrFull))
				answer(t, turn)
				meanwhile(f, owner)
				time.Sleep(time.Minute) // longer than any grace
				_, third := f.attach(with)
				for i, w := range []*session.Watcher{second, third} {
					if isRequested(t, w) {
						t.Errorf("client %d is asked for a call that was answered", i+2)
					}
				}
				info, err := f.m.Turn(t.Context(), turn.SessionID(), turn.ID())
				if err != nil || info.Status != index.Running {
					t.Errorf("the turn is %v, %v", info.Status, err)
				}
				db.tamper(nil)
				got := follow(t, third)
				if !end(t, got).Completed {
					t.Errorf("then: %v", got)
				}
				for _, m := range got {
					if isCall(m) {
						t.Errorf("asked when the store was back: %v", m)
					}
				}
			})
		})
	}
}

// TestCallWhoseAnswerIsNotTakenIsAskedAgain: a client comes while a result is being
// written. When the write fails, the client receives the call.
func TestCallWhoseAnswerIsNotTakenIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &tampered{Store: memory(t)}
		f := newFixture(t, db, limits.Limits{})
		f.on(talk)
		turn := f.start(session.Request{Prompt: "ask"})
		w := turn.Watch()
		await(t, w, isCall)
		trying, full := make(chan struct{}), make(chan struct{})
		db.tamper(func(_ context.Context, _ store.Batch) error {
			close(trying)
			<-full
			return store.ErrFull
		})
		refused := make(chan error, 1)
		go func() {
			refused <- f.m.CancelCall(t.Context(), session.AttachRequest{SessionID: turn.SessionID()}, "c-"+turn.ID())
		}()
		<-trying
		w.Close()
		_, second := f.attach(session.AttachRequest{SessionID: turn.SessionID(), Tools: []string{"tool"}})
		if isRequested(t, second) {
			t.Error("asked while the call is being cancelled")
		}
		db.tamper(nil)
		close(full)
		if err := <-refused; code(err) != unavailable {
			t.Errorf("the cancel: %v", err)
		}
		if !isRequested(t, second) {
			t.Error("not asked for a call that was not cancelled")
		}
		answer(t, turn)
		if !end(t, follow(t, second)).Completed {
			t.Error("not completed")
		}
	})
}

// closing is a handler of logs that calls f at a line, once.
type closing struct {
	slog.Handler
	at string
	f  func()
}

func (h closing) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.at {
		h.f()
	}
	return nil
}

// TestClientThatLeavesWhileItsTurnStarts: whenever the client of a queued turn leaves,
// nobody is there for the turn afterwards: it waits, and is suspended.
func TestClientThatLeavesWhileItsTurnStarts(t *testing.T) {
	for _, between := range []bool{false, true} { // the record of its start and its launch
		synctest.Test(t, func(t *testing.T) {
			var w *session.Watcher
			leave := sync.OnceFunc(func() { w.Close() })
			log := slog.New(closing{slog.NewTextHandler(t.Output(), nil), "turn ended", func() {
				if between {
					leave()
				}
			}})
			e := &engine{}
			m, err := session.NewManager(session.Config{Store: memory(t), Runner: e, Logger: log})
			if err != nil {
				t.Fatal(err)
			}
			f := &fixture{engine: e, t: t, m: m}
			f.on(talk)
			first := f.start(session.Request{Prompt: "ask first"})
			wf := first.Watch()
			await(t, wf, isCall)
			second := f.start(session.Request{SessionID: first.SessionID(), Prompt: "ask second", OnBusy: enqueue})
			w = second.Watch()
			if !between {
				leave()
			}
			answer(t, first)
			follow(t, wf)
			begun := time.Now()
			<-second.Done()
			if took := time.Since(begun); took > 2*time.Minute {
				t.Errorf("between=%v: suspended after %v", between, took)
			}
			info, err := m.Turn(t.Context(), second.SessionID(), second.ID())
			if err != nil || info.Status != index.WaitingForClient {
				t.Errorf("between=%v: the turn is %v with %+v, %v", between, info.Status, info.End, err)
			}
			if err := m.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLeavingInAnyOrder: when one client has left and the other has no such tool, a call
// is abandoned, whichever came first.
func TestLeavingInAnyOrder(t *testing.T) {
	for _, closeFirst := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, memory(t), limits.Limits{})
			f.on(talk)
			turn := f.start(session.Request{Prompt: "ask"})
			leaves := turn.Watch()
			await(t, leaves, isCall)
			_, stays := f.attach(session.AttachRequest{SessionID: turn.SessionID(), Tools: []string{"tool"}})
			if closeFirst {
				leaves.Close()
			}
			stays.Unattended("it has closed its side")
			if !closeFirst {
				leaves.Close()
			}
			begun := time.Now()
			got := follow(t, stays)
			if !end(t, got).Completed || time.Since(begun) > 2*time.Second {
				t.Errorf("closeFirst=%v: after %v: %v", closeFirst, time.Since(begun), got)
			}
		})
	}
}

// TestCancelGraceOutlastsTheIdleTime: a turn whose client has left is cancelled when
// the grace is over, also if it comes to need that client only then.
func TestCancelGraceOutlastsTheIdleTime(t *testing.T) {
	for _, leaves := range []string{"before the call", "behind the call"} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, memory(t), limits.Limits{})
			speak := make(chan struct{})
			f.on(func(ctx context.Context, r *session.Run) error {
				<-speak
				return talk(ctx, r)
			})
			turn := f.start(session.Request{Prompt: "ask", OnDisconnect: record.OnDisconnect{Cancel: true, Grace: 10 * time.Minute}})
			w := turn.Watch()
			if leaves == "behind the call" {
				close(speak)
				await(t, w, isCall)
				w.Close()
			} else {
				w.Close()
				time.Sleep(time.Second)
				close(speak)
			}
			time.Sleep(9 * time.Minute)
			for range 2 {
				info, err := f.m.Turn(t.Context(), turn.SessionID(), turn.ID())
				if err != nil {
					t.Fatal(err)
				}
				if over := info.Status == index.Stopped; over != (info.End != nil) || over && info.End.Reason != "the client disconnected" {
					t.Errorf("it leaves %s: %v with %+v", leaves, info.Status, info.End)
				}
				if left := time.Since(session.Started(turn)) < 10*time.Minute; left == (info.Status == index.Stopped) {
					t.Errorf("it leaves %s: %v after %v", leaves, info.Status, time.Since(session.Started(turn)))
				}
				time.Sleep(2 * time.Minute)
			}
		})
	}
}
