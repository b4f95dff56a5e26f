package session_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
)

// A turn that waits for a person gives way to no prompt but one that interrupts,
// whether or not it is in memory.
func TestPromptsBesideAQuestion(t *testing.T) {
	for _, aside := range []bool{false, true} {
		name := "in memory"
		if aside {
			name = "put aside"
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{})
				f.on(careful)
				turn := f.start(session.Request{})
				w := turn.Watch()
				await(t, w, isAsked)
				w.Close()
				if aside {
					<-turn.Done()
				}
				id := turn.SessionID()
				_, err := f.m.Start(t.Context(), session.Request{SessionID: id, Prompt: "now"})
				if code(err) != agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY || !strings.Contains(err.Error(), "q1") {
					t.Errorf("a prompt: %v", err)
				}
				next, err := f.m.Start(t.Context(), session.Request{SessionID: id, Prompt: "later", OnBusy: enqueue})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour) // the turn is not suspended for it either
				if info, err := f.m.Turn(t.Context(), id, next.ID()); err != nil || info.Status != index.Pending {
					t.Fatalf("the prompt that waits: %+v, %v", info, err)
				}
				f.on(func(ctx context.Context, r *session.Run) error {
					if r.Spec().Prompt == "hello" {
						return careful(ctx, r)
					}
					return say(ctx, r, "m-"+r.TurnID(), root, "re: ", r.Spec().Prompt)
				})
				if _, err := f.m.Resolve(t.Context(), session.AttachRequest{SessionID: id}, "q1", deny("no")); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				for _, want := range []string{turn.ID(), next.ID()} {
					if info, err := f.m.Turn(t.Context(), id, want); err != nil || info.Status != index.Succeeded {
						t.Errorf("a turn after the answer: %+v, %v", info, err)
					}
				}
			})
		})
	}
	t.Run("interrupt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, memory(t), limits.Limits{})
			f.on(careful)
			turn := f.start(session.Request{})
			w := turn.Watch()
			await(t, w, isAsked)
			f.on(talk)
			next := f.start(session.Request{SessionID: turn.SessionID(), Prompt: "now", OnBusy: interrupt})
			if !end(t, follow(t, next.Watch())).GetCompleted() || end(t, follow(t, w)).GetCompleted() {
				t.Error("want the turn that asks to be interrupted and the other to be completed")
			}
			in, err := f.m.Interaction(t.Context(), turn.SessionID(), "q1")
			if err != nil || in.Status != canceled {
				t.Errorf("its question: %+v, %v", in, err)
			}
		})
	})
}
