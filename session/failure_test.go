package session_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/limits"
)

// Watchers of a turn, and readers of its log, receive all fields of the error that ended
// it, not only its text.
func TestFailureSaysWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(func(context.Context, *session.Run) error {
			return fault.Errorf(agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED, "slow down").After(90*time.Second).Over("requests", 5, 6)
		})
		turn := f.start(session.Request{})
		check := func(msgs []*agentdv1.RunResponse) {
			i := slices.IndexFunc(msgs, func(m *agentdv1.RunResponse) bool { return m.GetError() != nil })
			if i < 0 {
				t.Fatalf("no error in %v", msgs)
			}
			told := msgs[i].GetError()
			if told.GetTurnId() != turn.ID() || told.GetRetryAfter().AsDuration() != 90*time.Second ||
				told.GetLimit().GetName() != "requests" || told.GetLimit().GetValue() != 5 || told.GetLimit().GetReceived() != 6 {
				t.Errorf("told %v", told)
			}
		}
		check(follow(t, turn.Watch()))
		f.stop()
		f = newFixture(t, f.store, limits.Limits{})
		_, w := f.attach(session.AttachRequest{SessionID: turn.SessionID()})
		check(follow(t, w))
	})
}
