package session_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// wanting has a server want a session until the test ends, as one does whose clients try to attach.
func wanting(t *testing.T, r *replica, id string) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for ctx.Err() == nil {
			if err := r.m.Want(ctx, id); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
}

// TestWant: a server lets go of a session that another one wants when none of its own clients takes part, and does not
// take it back before the other one can.
func TestWant(t *testing.T) {
	for name, tc := range map[string]struct {
		by       string // the server that has forwarded the client at the owner
		observed bool   // an observer is at the owner
		keeps    bool
	}{
		"a client of the owner":                {keeps: true},
		"a client of a third server":           {by: "c", keeps: true},
		"a client of the server that wants it": {by: "b"},
		"and an observer":                      {by: "b", observed: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, limits.Limits{})
				a, b := g.join("a", sayAskSay), g.join("b", sayAskSay)
				turn := a.start(session.Request{})
				id, w := turn.SessionID(), turn.Watch()
				w.ForwardedBy(tc.by)
				await(t, w, isCall)
				if tc.observed {
					_, watch, err := a.m.Attach(t.Context(), session.AttachRequest{SessionID: id, Observe: true})
					if err != nil {
						t.Fatal(err)
					}
					defer watch.Close()
				}
				wanting(t, b, id)
				if tc.keeps {
					time.Sleep(time.Minute)
					g.wantOwner(id, "a")
					w.Close()
				}
				time.Sleep(1200 * time.Millisecond)
				g.wantOwner(id, "")
				_, _, err := a.m.Attach(t.Context(), session.AttachRequest{SessionID: id, Observe: true})
				wantElsewhere(t, err, "b")
				again, mine, err := b.m.Attach(t.Context(), session.AttachRequest{SessionID: id, Tools: toolNames()})
				if err != nil {
					t.Fatal(err)
				}
				defer mine.Close()
				g.wantOwner(id, "b")
				time.Sleep(10 * time.Second) // what is wanted by the owner itself is no reason to let go
				g.wantOwner(id, "b")
				answerCall(t, again)
				follow(t, mine)
				if n := g.kinds(id); n[record.KindTurnEnded] != 1 || n[record.KindToolResult] != 1 || a.owns.Fenced() > 0 {
					t.Errorf("the log has %v, %d appends were fenced", n, a.owns.Fenced())
				}
				if !tc.keeps {
					if _, err := w.Next(t.Context()); !session.IsMoved(err) {
						for err == nil {
							_, err = w.Next(t.Context())
						}
						if !session.IsMoved(err) {
							t.Errorf("the client at the owner reads %v", err)
						}
					}
				}
			})
		})
	}
}

// TestWantDuringCall: the owner lets go when the model call is over, and the next one is made where the session is then:
// each once.
func TestWantDuringCall(t *testing.T) {
	for name, taken := range map[string]bool{"taken": true, "nobody takes it": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, limits.Limits{})
				var mu sync.Mutex // protects calls
				calls := map[string]int{}
				run := func(at string) func(ctx context.Context, r *session.Run) error {
					return func(ctx context.Context, r *session.Run) error {
						n, err := eventsOf(ctx, r)
						for ; err == nil && n < 2; n++ {
							end, failed := r.BeginCall(ctx, record.ModelCall{Path: root, Model: "m", MessageID: "m"}, nil)
							if failed != nil {
								return failed
							}
							mu.Lock()
							calls[at]++
							mu.Unlock()
							select {
							case <-time.After(5 * time.Second):
								err = say(ctx, r, "m"+string(rune('1'+n)), root, "said")
							case <-ctx.Done():
								err = context.Cause(ctx)
							}
							end(false)
						}
						return err
					}
				}
				a, b := g.join("a", run("a")), g.join("b", run("b"))
				if !taken {
					b.owns.Drain()
				}
				id := a.start(session.Request{}).SessionID()
				time.Sleep(100 * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				for ctx.Err() == nil {
					if err := b.m.Want(t.Context(), id); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				g.wantOwner(id, "a")
				time.Sleep(time.Minute)
				want := map[string]int{"a": 1, "b": 1}
				if !taken {
					want = map[string]int{"a": 2}
				}
				mu.Lock()
				defer mu.Unlock()
				if len(calls) != len(want) || calls["a"] != want["a"] || calls["b"] != want["b"] {
					t.Errorf("model calls by server: %v, want %v", calls, want)
				}
				if n := g.kinds(id); n[record.KindTurnEnded] != 1 {
					t.Errorf("the log has %v", n)
				}
				g.wantOwner(id, "")
			})
		})
	}
}
