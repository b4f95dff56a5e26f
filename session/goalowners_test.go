package session_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// A goal whose time has come goes on, however often its session is used meanwhile: at one of several servers each use
// claims the session and lets go of it.
func TestGoalGoesOnWhileItsSessionIsUsed(t *testing.T) {
	for range 24 { // what puts the goal off does so now and then
		if goesOnWhileUsed(t); t.Failed() {
			return
		}
	}
}

func goesOnWhileUsed(t *testing.T) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, limits.Limits{HibernateAfter: time.Millisecond})
		w := &worker{script: map[int]func(context.Context, *session.Run) error{
			1: func(ctx context.Context, r *session.Run) error {
				return reports(record.GoalSaid{Wake: time.Now().Add(2 * time.Second)})(ctx, r)
			}, 2: done("")}}
		r := g.join("a", w.run)
		id := r.goal(session.GoalRequest{}).SessionID
		for range 200 {
			if _, err := r.m.Inject(t.Context(), id, "so", "key"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if got := r.goalNow(id); got.Totals.Turns != 2 || got.Ended.IsZero() {
			t.Errorf("after 4 s it is %+v", got)
		}
	})
}
