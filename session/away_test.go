package session_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// TestCancelGraceOutlastsARestart: whatever a turn does, and whether its client left
// before the server stopped or was there until then, it is cancelled when nobody has
// come back in time, and not before.
func TestCancelGraceOutlastsARestart(t *testing.T) {
	const grace = 10 * time.Minute
	for name, tc := range map[string]struct {
		prompt  string
		left    time.Duration // how long before the server stops; 0 is not at all
		down    time.Duration
		grace   time.Duration
		limits  limits.Limits
		ownKeys session.Keys
		want    time.Duration // from the next server's start to the end of the turn
	}{
		"a model works, the client was there":      {prompt: "work", down: time.Hour, grace: grace, want: grace},
		"a model works, the client had left":       {prompt: "work", left: 3 * time.Minute, down: time.Minute, grace: grace, want: 6 * time.Minute},
		"a tool is awaited, the client was there":  {prompt: "ask", down: time.Hour, grace: grace, want: grace},
		"a tool is awaited, the client had left":   {prompt: "ask", left: 3 * time.Minute, down: time.Minute, grace: grace, want: 6 * time.Minute},
		"the server was down for longer":           {prompt: "ask", left: 3 * time.Minute, down: time.Hour, grace: grace},
		"the turn needs its caller's key":          {prompt: "work", down: time.Hour, grace: grace, want: grace, ownKeys: session.Keys{"p": "k"}},
		"the server cannot run the turn":           {prompt: "work", down: time.Hour, grace: grace, want: grace, limits: limits.Limits{MaxTurns: 1}},
		"no grace, but the client is not to blame": {prompt: "work", down: time.Hour, want: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				work := func(ctx context.Context, r *session.Run) error {
					if r.Spec().Prompt == "ask" {
						return talk(ctx, r)
					}
					select {
					case <-time.After(24 * time.Hour):
						return say(ctx, r, "m", root, "done")
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
				f := newFixture(t, memory(t), limits.Limits{})
				f.on(work)
				turn := f.start(session.Request{Prompt: tc.prompt, Keys: tc.ownKeys, OnDisconnect: record.OnDisconnect{Cancel: true, Grace: tc.grace}})
				w := turn.Watch()
				if tc.prompt == "ask" {
					await(t, w, isCall)
				}
				if tc.left > 0 {
					w.Close()
					time.Sleep(tc.left)
				}
				f.stop()
				w.Close()
				time.Sleep(tc.down)

				g := newFixture(t, f.store, tc.limits)
				g.on(work)
				if tc.limits.MaxTurns > 0 {
					g.start(session.Request{Prompt: "ask", Agent: tree(), Tools: tools()})
				}
				if err := g.m.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				status := func() index.Status {
					synctest.Wait()
					info, err := g.m.Turn(t.Context(), turn.SessionID(), turn.ID())
					if err != nil {
						t.Fatal(err)
					}
					return info.Status
				}
				if tc.want > 0 {
					time.Sleep(tc.want - time.Second)
					if is := status(); is == index.Stopped {
						t.Errorf("cancelled within %v, want %v", time.Since(begun), tc.want)
					}
				}
				time.Sleep(2 * time.Second)
				if is := status(); is != index.Stopped {
					t.Errorf("%v after %v, want it cancelled after %v", is, time.Since(begun), tc.want)
				}
			})
		})
	}
}

// TestClientThatIsBackKeepsItsTurn: the log says so too, or the next restart would
// cancel a turn whose client was there.
func TestClientThatIsBackKeepsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		turn := f.start(session.Request{Prompt: "ask", OnDisconnect: record.OnDisconnect{Cancel: true, Grace: 5 * time.Minute}})
		w := turn.Watch()
		await(t, w, isCall)
		for range 3 {
			w.Close()
			time.Sleep(4 * time.Minute)
			_, w = f.attach(session.AttachRequest{SessionID: turn.SessionID(), Tools: []string{"tool"}})
			time.Sleep(9 * time.Minute)
			f.stop()
			w.Close()
			g := newFixture(t, f.store, limits.Limits{})
			g.on(talk)
			if err := g.m.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(4 * time.Minute)
			f = g
			turn, w = f.attach(session.AttachRequest{SessionID: turn.SessionID(), Tools: []string{"tool"}})
			time.Sleep(9 * time.Minute)
		}
		answer(t, turn)
		if got := follow(t, w); !end(t, got).Completed {
			t.Errorf("the turn ended with %v", end(t, got))
		}
	})
}
