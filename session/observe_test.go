package session_test

import (
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// TestObserver: a turn runs as if observers were not there. It is suspended, stays
// suspended when an observer comes, and the observer sees what becomes of it.
func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		turn := f.start(session.Request{Prompt: "ask"})
		w := turn.Watch()
		await(t, w, isCall)
		observe := session.AttachRequest{SessionID: turn.SessionID(), Observe: true}
		_, early := f.attach(observe)
		if isRequested(t, early) {
			t.Error("an observer is asked")
		}
		w.Close()
		begun := time.Now()
		<-turn.Done()
		if took := time.Since(begun); took != time.Minute {
			t.Errorf("suspended after %v", took)
		}
		_, late := f.attach(observe)
		time.Sleep(time.Hour)
		msgs, err := late.Next(t.Context())
		if err != nil || len(unservedOf(msgs)) != 1 {
			t.Errorf("who comes to a suspended turn reads %v, %v", msgs, err)
		}
		info, err := f.m.Turn(t.Context(), turn.SessionID(), "")
		if err != nil || info.Status != index.WaitingForClient {
			t.Errorf("the turn is %v, %v", info.Status, err)
		}
		if _, _, err := f.m.Attach(t.Context(), session.AttachRequest{SessionID: turn.SessionID(), Observe: true, Tools: []string{"tool"}}); code(err) != agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST {
			t.Errorf("with tools: %v", err)
		}
		answer(t, turn)
		for i, w := range []*session.Watcher{early, late} {
			if got := follow(t, w); !end(t, got).Completed {
				t.Errorf("observer %d reads %v", i, got)
			}
		}
	})
}

// TestObserverKeepsNobody from what they do: a cancel for want of clients, a delete, a
// stop of the server.
func TestObserverKeepsNobody(t *testing.T) {
	for name, tc := range map[string]struct {
		does func(f *fixture, turn *session.Turn) error
		want agentdv1.ErrorCode // what the observer receives; 0 is the end of the turn
	}{
		"cancel": {func(*fixture, *session.Turn) error { time.Sleep(5 * time.Minute); return nil }, 0},
		"delete": {func(f *fixture, turn *session.Turn) error { return f.m.DeleteSession(f.t.Context(), turn.SessionID()) }, agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND},
		"stop":   {func(f *fixture, _ *session.Turn) error { return f.m.Shutdown(f.t.Context()) }, unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{})
				f.on(talk)
				turn := f.start(session.Request{Prompt: "ask", OnDisconnect: record.OnDisconnect{Cancel: name == "cancel", Grace: 3 * time.Minute}})
				w := turn.Watch()
				await(t, w, isCall)
				_, o := f.attach(session.AttachRequest{SessionID: turn.SessionID(), Observe: true})
				w.Close()
				if name != "cancel" {
					<-turn.Done()
				}
				begun := time.Now()
				if err := tc.does(f, turn); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); name != "cancel" && took > time.Second {
					t.Errorf("it took %v", took)
				}
				got, err := followErr(t, o)
				if code(err) != tc.want || err == nil && end(t, got).Completed {
					t.Errorf("the observer read %v, then %v", got, err)
				}
			})
		})
	}
}
