package session_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
)

// A client receives calls in the order in which the model has made them, whatever their
// ids are, for the first time and when they are repeated.
func TestAskedInTheModelsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := []string{"c5", "c2", "c9", "c1", "c7", "c3", "c8", "c4"}
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(func(ctx context.Context, r *session.Run) error {
			_, err := call(ctx, r, want...)
			return err
		})
		asked := func(who string, w *session.Watcher) (last int64) {
			t.Helper()
			var got []string
			for len(got) < len(want) {
				for _, m := range await(t, w, isCall) {
					last = max(last, m.Seq)
					if isCall(m) {
						got = append(got, m.GetToolCall().GetToolCallId())
					}
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s is asked for %v, want %v", who, got, want)
			}
			return last
		}
		turn := f.start(session.Request{})
		first := turn.Watch()
		last := asked("the first client", first)
		back := session.AttachRequest{SessionID: turn.SessionID(), After: &last, Tools: []string{"tool"}}
		_, spare := f.attach(back)
		first.Close()
		asked("the one that is there", spare)
		spare.Close()
		synctest.Wait()
		_, again := f.attach(back)
		asked("one that comes back", again)
		f.stop()
		g := f.newServer(limits.Limits{})
		g.on(func(ctx context.Context, r *session.Run) error {
			for _, id := range want {
				if _, err := r.Await(ctx, id); err != nil {
					return err
				}
			}
			return nil
		})
		turn, w := g.attach(back)
		asked("one that comes to the next server", w)
		for _, id := range want {
			if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: id, Output: new("fine")}); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.ContainsFunc(follow(t, w), func(m *agentdv1.RunResponse) bool { return m.GetEnd().GetCompleted() }) {
			t.Error("the turn has not completed")
		}
	})
}
