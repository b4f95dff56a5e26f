package session_test

import (
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
)

// A session that is not used loses its log, one that is used or waits does not.
func TestPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const purged = agentdv1.ErrorCode_ERROR_CODE_HISTORY_PURGED
		limits := limits.Limits{PurgeAfter: 72 * time.Hour, Retention: 1000 * time.Hour}
		f := newFixture(t, memory(t), limits)
		f.on(talk)
		if err := f.m.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		begin := func(id, prompt string) *session.Turn {
			req := session.Request{SessionID: id, Prompt: prompt}
			return f.start(req)
		}
		run := func(id, prompt string) string {
			turn := begin(id, prompt)
			follow(t, turn.Watch())
			return turn.SessionID()
		}
		unused, used := run("", "hi"), run("", "hi")
		info, err := f.m.Turn(t.Context(), unused, "")
		if err != nil {
			t.Fatal(err)
		}
		lost := info.ID
		waiting := begin("", "ask")
		w := waiting.Watch()
		await(t, w, isCall)
		w.Close()
		for range 5 {
			time.Sleep(20 * time.Hour)
			run(used, "again")
		}
		last := int64(1)
		_, _, err = f.m.Attach(t.Context(), session.AttachRequest{SessionID: unused, After: &last})
		if code(err) != purged {
			t.Errorf("attach to a purged session: %v", err)
		}
		if _, err := f.m.Start(t.Context(), session.Request{SessionID: unused, Prompt: "hi"}); code(err) != purged {
			t.Errorf("start in a purged session: %v", err)
		}
		for _, id := range []string{"", lost} {
			if _, err := f.m.TurnLog(t.Context(), unused, id, ""); code(err) != purged {
				t.Errorf("the log of a turn that is purged: %v", err)
			}
		}
		if _, err := f.m.Said(t.Context(), &info); code(err) != purged { // found before the purge
			t.Errorf("the parts of a prompt that is purged: %v", err)
		}
		if recs, err := f.store.Read(t.Context(), unused, 0, 10); err != nil || len(recs) != 0 {
			t.Errorf("the store still has %v, %v", recs, err)
		}
		if _, w := f.attach(session.AttachRequest{SessionID: used, After: new(int64(0))}); len(follow(t, w)) == 0 {
			t.Error("a session that is used is empty")
		}
		turn, w := f.attach(session.AttachRequest{SessionID: waiting.SessionID(), Tools: []string{"tool"}})
		await(t, w, isCall)
		answer(t, turn)
		if !end(t, follow(t, w)).Completed {
			t.Error("a turn that waited was not completed")
		}
		// Another server knows it too.
		f.stop()
		g := newFixture(t, f.store, limits)
		if _, _, err := g.m.Attach(t.Context(), session.AttachRequest{SessionID: unused}); code(err) != purged {
			t.Errorf("attach on another server: %v", err)
		}
	})
}
