package session_test

import (
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
)

func unservedOf(msgs []*agentdv1.RunResponse) (out []*agentdv1.RunResponse) {
	for _, m := range msgs {
		if m.GetToolCallUnserved() != nil {
			out = append(out, m)
		}
	}
	return out
}

// TestNobodyHasTheTool: each client is notified once, live, when no client that is
// there has the tool of a call; a client that comes with the tool receives the call.
func TestNobodyHasTheTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		turn := f.start(session.Request{Prompt: "ask"})
		_, w := f.attach(session.AttachRequest{SessionID: turn.SessionID()})
		now := func(w *session.Watcher) []*agentdv1.RunResponse {
			t.Helper()
			synctest.Wait()
			msgs, err := w.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return msgs
		}
		time.Sleep(2900 * time.Millisecond)
		if got := unservedOf(now(w)); len(got) > 0 {
			t.Errorf("told too early: %v", got)
		}
		time.Sleep(200 * time.Millisecond)
		told := unservedOf(now(w))
		if len(told) != 1 {
			t.Fatalf("told %v", told)
		}
		u := told[0].GetToolCallUnserved()
		if told[0].Seq != 0 || told[0].TurnId != turn.ID() || u.ToolCallId != "c-"+turn.ID() || u.ToolName != "tool" ||
			u.SessionId != turn.SessionID() || !u.ExpireTime.AsTime().After(time.Now()) {
			t.Errorf("told %v", told[0])
		}
		time.Sleep(time.Minute)
		if got := unservedOf(now(w)); len(got) > 0 {
			t.Errorf("told twice: %v", got)
		}
		_, late := f.attach(session.AttachRequest{SessionID: turn.SessionID()})
		if got := unservedOf(now(late)); len(got) != 1 {
			t.Errorf("who comes later is told %v", got)
		}

		_, has := f.attach(session.AttachRequest{SessionID: turn.SessionID(), Tools: []string{"tool"}})
		if got := now(has); len(unservedOf(got)) > 0 {
			t.Errorf("who has the tool is told %v", got)
		}
		has.Close()
		time.Sleep(4 * time.Second) // the grace in which it may come back
		_, third := f.attach(session.AttachRequest{SessionID: turn.SessionID()})
		if got := unservedOf(now(third)); len(got) > 0 {
			t.Errorf("told although it may come back: %v", got)
		}
		time.Sleep(2 * time.Second)
		if got := unservedOf(now(third)); len(got) != 1 {
			t.Errorf("when the last client with the tool has left: %v", got)
		}
		answer(t, turn)
		for _, w := range []*session.Watcher{w, late, third} {
			if rest := follow(t, w); len(unservedOf(rest)) > 0 || !end(t, rest).Completed {
				t.Errorf("then: %v", rest)
			}
		}
		if got := logOf(t, f.store, turn.SessionID()); got != "turn_started event tool_result event turn_ended" {
			t.Errorf("the log holds %s", got)
		}
	})
}
