package session_test

import (
	"strings"
	"sync"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
)

const codeConflict = agentdv1.ErrorCode_ERROR_CODE_CONFLICT

// TestTurnIDOfTheCaller: an id names one turn of a session, whether that turn
// runs, waits for its start or is over, and whatever on_busy says.
func TestTurnIDOfTheCaller(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(talk)
	a := f.start(session.Request{Prompt: "ask a", TurnID: "a"})
	id := a.SessionID()
	wa := a.Watch()
	await(t, wa, isCall)
	b := f.start(session.Request{SessionID: id, Prompt: "b", TurnID: "b:1@x.-_", OnBusy: enqueue})
	if a.ID() != "a" || b.ID() != "b:1@x.-_" {
		t.Errorf("the turns are %q and %q", a.ID(), b.ID())
	}
	taken := func(when string) {
		t.Helper()
		for _, turn := range []string{"a", "b:1@x.-_"} {
			for _, how := range []agentdv1.OnBusy{reject, enqueue, interrupt, inject} {
				_, err := f.m.Start(t.Context(), session.Request{SessionID: id, Prompt: "again", TurnID: turn, OnBusy: how})
				if code(err) != codeConflict || !strings.Contains(err.Error(), turn) {
					t.Errorf("%s, on_busy %d: a second turn %q: %v", when, how, turn, err)
				}
			}
		}
	}
	taken("one runs, one waits")
	wb := b.Watch()
	answer(t, a)
	for _, w := range []*session.Watcher{wa, wb} {
		if !end(t, follow(t, w)).Completed {
			t.Error("a refused id has changed a turn")
		}
	}
	taken("both are over")
	fork, err := f.m.ForkSession(t.Context(), session.ForkRequest{SessionID: id})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.m.Start(t.Context(), session.Request{SessionID: fork.ID, Prompt: "again", TurnID: "a"}); code(err) != codeConflict {
		t.Errorf("a turn that the fork has inherited: %v", err)
	}
	if other := f.start(session.Request{Prompt: "hi", TurnID: "a"}); other.ID() != "a" || other.SessionID() == id {
		t.Errorf("in another session: turn %q", other.ID())
	}
	for _, bad := range []string{"-a", ".", "a/b", "a b", "ä", "a\n", strings.Repeat("x", 129)} {
		if _, err := f.m.Start(t.Context(), session.Request{SessionID: id, Prompt: "hi", TurnID: bad}); code(err) != agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST || !strings.Contains(err.Error(), "turn_id") {
			t.Errorf("turn %q: %v", bad, err)
		}
	}
}

// TestTurnIDAtOnce: of requests for one id at the same time one starts a turn.
func TestTurnIDAtOnce(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(talk)
	a := f.start(session.Request{Prompt: "ask a"})
	await(t, a.Watch(), isCall)
	var all sync.WaitGroup
	errs := make(chan error, 8)
	for range cap(errs) {
		all.Go(func() {
			_, err := f.m.Start(t.Context(), session.Request{SessionID: a.SessionID(), Prompt: "b", TurnID: "b", OnBusy: enqueue})
			errs <- err
		})
	}
	all.Wait()
	close(errs)
	started := 0
	for err := range errs {
		if err == nil {
			started++
		} else if code(err) != codeConflict {
			t.Error(err)
		}
	}
	if started != 1 {
		t.Errorf("%d turns were started", started)
	}
	answer(t, a)
}
