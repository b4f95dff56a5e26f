package session_test

import (
	"context"
	"log/slog"
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
