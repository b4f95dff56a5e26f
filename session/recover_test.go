package session_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// parallelTree has two agents that run at the same time.
func parallelTree() *agentdv1.Agent {
	llm := func(name string) *agentdv1.Agent {
		return &agentdv1.Agent{Name: name, AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "echo"}}}
	}
	return &agentdv1.Agent{Name: "root", AgentType: &agentdv1.Agent_Parallel{
		Parallel: &agentdv1.ParallelAgent{Agents: []*agentdv1.Agent{llm("a"), llm("b")}},
	}}
}

// besides runs both agents of parallelTree: a asks for a tool; b thinks for ten
// minutes, or asks too.
func besides(both bool) func(ctx context.Context, r *session.Run) error {
	return func(ctx context.Context, r *session.Run) error {
		asked := map[string]bool{}
		for rec, err := range r.Records(ctx, r.StartSeq()) {
			if err != nil {
				return err
			}
			if rec.Kind == record.KindEvent {
				asked["asked"] = true
			}
		}
		names := []string{"a"}
		if both {
			names = append(names, "b")
		}
		for _, name := range names {
			path := []string{"root", name}
			ev := &record.Event{Path: path, Calls: []record.ToolCall{{ID: name + r.TurnID(), Name: "tool", Input: []byte(`{}`), Path: path}}}
			if asked["asked"] {
				continue
			}
			if err := add(ctx, r, ev); err != nil {
				return err
			}
		}
		if !both {
			done, err := r.BeginCall(ctx, record.ModelCall{Path: []string{"root", "b"}, MessageID: "b"}, nil)
			if err != nil {
				return err
			}
			defer done(false)
			select {
			case <-time.After(10 * time.Minute):
				return say(ctx, r, "b", []string{"root", "b"}, "done")
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		_, err := r.Await(ctx, "a"+r.TurnID())
		return err
	}
}

// recovering is an engine whose turns do what their prompts say.
func recovering(ctx context.Context, r *session.Run) error {
	switch r.Spec().Prompt {
	case "one asks, one thinks":
		return besides(false)(ctx, r)
	case "both ask":
		return besides(true)(ctx, r)
	case "think":
		select {
		case <-time.After(10 * time.Minute):
			return say(ctx, r, "m", root, "done")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return talk(ctx, r)
}

// TestRecoverWhatWorks: turns that can continue do, as many as may run at a time, until
// none is left. Turns that only wait take no place, whatever their trees look like and
// whether they were suspended or cut off.
func TestRecoverWhatWorks(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed=%v", killed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLives(t, limits.Limits{})
				first := newFixture(t, &grave{Store: l.store}, limits.Limits{})
				first.on(recovering)
				tools := []*agentdv1.Tool{{Name: "tool", Description: "a tool"}}
				var work, wait []*session.Turn
				for range 3 {
					wait = append(wait, first.start(session.Request{Prompt: "both ask", Agent: parallelTree(), Tools: tools}))
					work = append(work, first.start(session.Request{Prompt: "think"}))
					wait = append(wait, first.start(session.Request{Prompt: "ask"}))
					work = append(work, first.start(session.Request{Prompt: "one asks, one thinks", Agent: parallelTree(), Tools: tools}))
				}
				synctest.Wait()
				if killed {
					first.store.(*grave).dead.Store(true)
				} else {
					time.Sleep(2 * time.Minute) // those that only wait are suspended
				}
				first.stop()

				second := newFixture(t, l.store, limits.Limits{MaxTurns: 1})
				second.on(recovering)
				if err := second.m.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				for len(work) > 0 && time.Since(began) < 24*time.Hour {
					time.Sleep(time.Minute)
					synctest.Wait()
					rest := work[:0]
					for _, turn := range work {
						info, err := second.m.Turn(t.Context(), turn.SessionID(), turn.ID())
						if err != nil {
							t.Fatal(err)
						}
						if info.Prompt == "think" && info.Status == index.Succeeded || info.Prompt != "think" && info.Output == "done" {
							continue
						}
						rest = append(rest, turn)
					}
					work = rest
				}
				for _, turn := range work {
					t.Errorf("turn %s never went on", turn.ID())
				}
				for _, turn := range wait {
					log := logOf(t, l.store, turn.SessionID())
					if info, err := second.m.Turn(t.Context(), turn.SessionID(), turn.ID()); err != nil || info.Status != index.WaitingForClient {
						t.Errorf("a turn that waits is %v, %+v, %v; its log is %s", info.Status, info.End, err, log)
					}
				}
			})
		})
	}
}

// TestRecoverAgain: turns that cannot continue at the start because of the store continue later.
func TestRecoverAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &tampered{Store: memory(t)}
		first := newFixture(t, db, limits.Limits{})
		first.on(recovering)
		turn := first.start(session.Request{Prompt: "think"})
		time.Sleep(time.Second)
		first.stop()
		db.tamper(always(store.ErrFull))
		second := newFixture(t, db, limits.Limits{})
		second.on(recovering)
		if err := second.m.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		db.tamper(nil)
		time.Sleep(12 * time.Minute)
		if info, err := second.m.Turn(t.Context(), turn.SessionID(), turn.ID()); err != nil || info.Status != index.Succeeded {
			t.Errorf("the turn is %v, %+v, %v", info.Status, info.End, err)
		}
	})
}
