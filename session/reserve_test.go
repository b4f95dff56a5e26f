package session_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
)

// pausing is a log that waits at each line about a turn's end.
type pausing struct {
	slog.Handler
	at, resumeLast chan struct{}
}

func (h pausing) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "turn ended" {
		h.at <- struct{}{}
		<-h.resumeLast
	}
	return nil
}

// Whoever has started a turn may let go of the session late, when that turn is
// over and the next one about to begin: that one is still nobody else's.
func TestReservationOfTheNextTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		log := pausing{slog.NewTextHandler(t.Output(), nil), make(chan struct{}), make(chan struct{})}
		m, err := session.NewManager(session.Config{Store: f.store, Runner: f.engine, Logger: slog.New(log)})
		if err != nil {
			t.Fatal(err)
		}
		f.m = m
		a := f.start(session.Request{Prompt: "ask a"})
		wa := a.Watch()
		await(t, wa, isCall)
		b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: enqueue})
		wb := b.Watch()
		release := m.Reserve(a.SessionID())
		answer(t, a)
		synctest.Wait()
		release()
		<-log.at
		go func() {
			if _, err := m.Start(t.Context(), session.Request{SessionID: a.SessionID(), Prompt: "c"}); code(err) != agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY {
				t.Errorf("start while a turn begins: %v", err)
			}
			close(log.resumeLast)
			for range log.at {
			}
		}()
		follow(t, wa)
		if e := end(t, follow(t, wb)); !e.Completed {
			t.Errorf("b ended with %v", e)
		}
		if err := m.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		close(log.at)
	})
}

// A prompt that may wait does so also for a turn that somebody else is just starting.
func TestPromptWhileATurnStarts(t *testing.T) {
	for _, onBusy := range []agentdv1.OnBusy{patient, inject} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, memory(t), limits.Limits{})
			f.on(talk)
			log := pausing{slog.NewTextHandler(t.Output(), nil), make(chan struct{}), make(chan struct{})}
			m, err := session.NewManager(session.Config{Store: f.store, Runner: f.engine, Logger: slog.New(log)})
			if err != nil {
				t.Fatal(err)
			}
			f.m = m
			a := f.start(session.Request{Prompt: "ask a"})
			wa := a.Watch()
			await(t, wa, isCall)
			f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: enqueue})
			answer(t, a)
			<-log.at // b has started in the log, and nothing runs it yet
			var wg sync.WaitGroup
			wg.Go(func() {
				c, err := m.Start(t.Context(), session.Request{SessionID: a.SessionID(), Prompt: "c", OnBusy: onBusy})
				if err != nil {
					t.Errorf("%v: %v", onBusy, err)
					return
				}
				if e := end(t, follow(t, c.Watch())); !e.Completed {
					t.Errorf("%v: c ended with %v", onBusy, e)
				}
			})
			synctest.Wait()
			go func() {
				close(log.resumeLast)
				for range log.at {
				}
			}()
			wg.Wait()
			if err := m.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			close(log.at)
		})
	}
}
