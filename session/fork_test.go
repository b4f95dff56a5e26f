package session_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// remember is a turn that puts its prompt into the state and calls a tool.
func remember(ctx context.Context, r *session.Run) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	prompt := r.Spec().Prompt
	if err := add(ctx, r, &record.Event{Path: root, State: map[string]any{"last": prompt, prompt: "was here"}}); err != nil {
		return err
	}
	if _, err := call(ctx, r, "c-"+r.TurnID()); err != nil {
		return err
	}
	return say(ctx, r, "m-"+r.TurnID(), root, "re: ", prompt)
}

// A fork at any record has the history and the state up to there, runs further
// turns, and changes nothing of its parent.
func TestForkAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(remember)
		parent := ""
		var last *session.Turn
		var w *session.Watcher
		for _, prompt := range []string{"one", "two", "three"} {
			turn := f.start(session.Request{SessionID: parent, Prompt: prompt, Agent: tree(), Tools: tools()})
			parent = turn.SessionID()
			last, w = turn, turn.Watch()
			await(t, w, isCall)
			if prompt == "three" { // it waits, and others wait for it
				f.start(session.Request{SessionID: parent, Prompt: "four", OnBusy: enqueue})
				continue
			}
			answer(t, turn)
			follow(t, w)
			<-turn.Done()
		}
		before := f.log(parent)
		state, starts := map[string]any{}, 0
		for i, rec := range before {
			if rec.Kind == record.KindTurnStarted {
				starts++
			}
			if rec.Kind == record.KindEvent {
				ev, err := f.Decode(rec.Data)
				if err != nil {
					t.Fatal(err)
				}
				maps.Copy(state, ev.State)
			}
			at := rec.Seq<<20 | 1<<16 - 1
			fork, err := f.m.ForkSession(t.Context(), session.ForkRequest{SessionID: parent, At: &at, Names: session.Names{ClientRef: "f"}})
			if err != nil {
				t.Fatalf("fork at record %d: %v", rec.Seq, err)
			}
			if fork.ForkedFrom != parent || fork.ForkedAt != at || fork.ClientRef != "f" || fork.Usage != (record.Usage{}) || fork.OpenTurn != "" {
				t.Errorf("fork at record %d: %+v", rec.Seq, fork)
			}
			if got := f.log(fork.ID)[:i+1]; !slices.EqualFunc(got, before[:i+1], sameRecord) {
				t.Errorf("fork at record %d has another history", rec.Seq)
			}
			turns, _, err := f.m.ListTurns(t.Context(), index.TurnQuery{SessionID: fork.ID}, "", 10)
			if err != nil {
				t.Fatal(err)
			}
			began := 0
			for _, turn := range turns {
				if turn.End == nil {
					t.Errorf("fork at record %d: turn %q is not over", rec.Seq, turn.Prompt)
				}
				if !turn.Started.IsZero() {
					began++
				}
			}
			if began != starts {
				t.Errorf("fork at record %d has %d turns that have begun, want %d", rec.Seq, began, starts)
			}
			var seen map[string]any
			f.on(func(ctx context.Context, r *session.Run) error {
				seen = r.State()
				return say(ctx, r, "m-"+r.TurnID(), root, "in a fork")
			})
			f.run(fork.ID, "next")
			f.on(remember)
			if fmt.Sprint(seen) != fmt.Sprint(state) {
				t.Errorf("fork at record %d begins with state %v, want %v", rec.Seq, seen, state)
			}
			if info, err := f.m.Session(t.Context(), fork.ID); err != nil || info.Usage.Calls != 1 || info.LastIs != index.Succeeded {
				t.Errorf("fork at record %d after a turn: %+v, %v", rec.Seq, info, err)
			}
		}
		if after := f.log(parent); !slices.EqualFunc(before, after, sameRecord) {
			t.Error("the parent has changed")
		}
		answer(t, last)
		if !end(t, follow(t, w)).GetCompleted() {
			t.Error("the parent's turn was not completed")
		}
		if err := f.m.CancelTurn(t.Context(), parent, "", "enough"); err != nil { // the one that waited
			t.Error(err)
		}
	})
}

func sameRecord(a, b record.Record) bool {
	return a.Seq == b.Seq && a.TurnID == b.TurnID && a.Kind == b.Kind && a.Time.Equal(b.Time) && bytes.Equal(a.Data, b.Data)
}

// log reads a session's records.
func (f *fixture) log(id string) []record.Record {
	f.t.Helper()
	recs, err := f.store.Read(f.t.Context(), id, 0, 1000)
	if err != nil {
		f.t.Fatal(err)
	}
	return recs
}

// A server that was gone before it had ended what a fork has inherited does so
// later, and never has it run.
func TestForkUnfinished(t *testing.T) {
	for _, how := range []string{"start", "attach"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{})
				f.on(talk)
				turn := f.start(session.Request{Prompt: "hi", Agent: tree()})
				follow(t, turn.Watch())
				<-turn.Done()
				recs := f.log(turn.SessionID())
				info, err := f.m.Session(t.Context(), turn.SessionID())
				if err != nil {
					t.Fatal(err)
				}
				info.LastSeq = 1
				batch, err := session.IndexOf(t.Context(), f.store, f, info.Info)
				if err != nil {
					t.Fatal(err)
				}
				for i := range batch.Rows {
					batch.Rows[i].SessionID = "fork"
				}
				err = f.store.Fork(t.Context(), store.Fork{
					From: turn.SessionID(), Seq: 1, Into: store.NewSession{ID: "fork", CreatedAt: recs[0].Time}, Rows: batch.Rows,
					LastTurn: turn.ID(), LastStatus: "open", OpenTurn: turn.ID(),
				})
				if err != nil {
					t.Fatal(err)
				}
				f.on(func(ctx context.Context, _ *session.Run) error {
					t.Error("the inherited turn runs")
					return ctx.Err()
				})
				if how == "start" {
					if err := f.m.Recover(t.Context()); err != nil {
						t.Fatal(err)
					}
				} else {
					_, w := f.attach(session.AttachRequest{SessionID: "fork"})
					if e := end(t, follow(t, w)); e.GetCompleted() || e.GetReason() != "the session was forked here" {
						t.Errorf("the inherited turn's end: %v", e)
					}
				}
				got, err := f.m.Turn(t.Context(), "fork", turn.ID())
				if err != nil || got.Status != index.Stopped {
					t.Errorf("the inherited turn: %+v, %v", got, err)
				}
			})
		})
	}
}

func TestForkRefused(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(talk)
	id := f.run("", "hi").SessionID()
	for name, tt := range map[string]struct {
		req  session.ForkRequest
		want agentdv1.ErrorCode
	}{
		"unknown session": {session.ForkRequest{SessionID: "none"}, noSession},
		"beyond the end":  {session.ForkRequest{SessionID: id, At: new(int64(1000 << 20))}, badRequest},
		"before it began": {session.ForkRequest{SessionID: id, At: new(int64(-1))}, badRequest},
	} {
		if _, err := f.m.ForkSession(t.Context(), tt.req); code(err) != tt.want {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	empty, err := f.m.ForkSession(t.Context(), session.ForkRequest{SessionID: id, At: new(int64(0))})
	if err != nil || empty.LastSeq != 0 || len(f.log(empty.ID)) != 0 {
		t.Errorf("a fork of nothing: %+v, %v", empty, err)
	}
}
