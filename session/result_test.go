package session_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
)

// A result is shown, at its record, to the client that gave it, to other watchers and to
// clients that come later, whole and as the model sees it. A call without one is canceled.
func TestAnswersAreShown(t *testing.T) {
	large := strings.Repeat("ä", 1<<19-100)
	for name, tc := range map[string]struct {
		answer session.ClientResult
		output *string
		err    string
	}{
		"output":  {answer: session.ClientResult{Output: &large}, output: &large},
		"empty":   {answer: session.ClientResult{Output: new("")}, output: new("")},
		"error":   {answer: session.ClientResult{Error: new("no such file")}, err: "no such file"},
		"neither": {answer: session.ClientResult{}, err: "the client returned neither output nor error"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, memory(t), limits.Limits{})
			f.on(func(ctx context.Context, r *session.Run) error {
				_, err := call(ctx, r, "c1", "c2")
				return err
			})
			turn := f.start(session.Request{})
			asked, watching := turn.Watch(), attach(t, f, turn, nil)
			await(t, asked, isCall)
			tc.answer.CallID = "c1"
			if err := errors.Join(turn.SubmitResult(t.Context(), tc.answer), turn.CancelCall(t.Context(), "c2")); err != nil {
				t.Fatal(err)
			}
			<-turn.Done()
			var first *agentdv1.RunResponse
			for i, w := range []*session.Watcher{asked, watching, attach(t, f, turn, nil)} {
				var results, cancelled []*agentdv1.RunResponse
				for _, m := range follow(t, w) {
					switch {
					case m.GetToolCallAnswered() != nil:
						results = append(results, m)
					case m.GetToolCallCanceled() != nil:
						cancelled = append(cancelled, m)
					}
				}
				if len(results) != 1 || len(cancelled) != 1 || cancelled[0].GetToolCallCanceled().GetToolCallId() != "c2" {
					t.Fatalf("watcher %d reads %d results and that %v", i, len(results), cancelled)
				}
				r := results[0].GetToolCallAnswered()
				if r.GetToolCallId() != "c1" || r.GetToolName() != "tool" || !slices.Equal(r.GetAgentPath(), root) || r.GetSessionId() != turn.SessionID() {
					t.Errorf("watcher %d reads of %q %q %v", i, r.GetToolCallId(), r.GetToolName(), r.GetAgentPath())
				}
				if _, failed := r.GetResult().(*agentdv1.ToolCallAnswered_Error); failed != (tc.output == nil) || r.GetError() != tc.err || tc.output != nil && r.GetOutput() != *tc.output {
					t.Errorf("watcher %d reads an output of %d bytes and the error %q", i, len(r.GetOutput()), r.GetError())
				}
				if first == nil {
					first = results[0]
				}
				if results[0].GetSeq() != first.GetSeq() || !results[0].GetTime().AsTime().Equal(first.GetTime().AsTime()) {
					t.Errorf("watcher %d reads it at %d, %v, the first at %d, %v", i, results[0].GetSeq(), results[0].GetTime(), first.GetSeq(), first.GetTime())
				}
			}
		})
	}
}
