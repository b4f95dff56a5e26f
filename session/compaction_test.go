package session_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// compactionOf is what a run learns.
type compactionOf struct {
	seq   int64
	focus string
}

// A request for summaries is a record of the session: the turn that runs sees it, so does the next one, of another
// server, too, and nobody who follows a turn.
func TestCompactSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		var seen []compactionOf
		look := func(ctx context.Context, r *session.Run) error {
			seq, focus := r.CompactionAsked()
			seen = append(seen, compactionOf{seq, focus})
			return say(ctx, r, "m-"+r.TurnID(), root, "so it is")
		}
		f.on(look)
		first := f.start(session.Request{})
		before := follow(t, first.Watch())
		<-first.Done()
		id := first.SessionID()
		pos, err := f.m.CompactSession(t.Context(), id, "the plan")
		if err != nil {
			t.Fatal(err)
		}
		if last := before[len(before)-1].GetSeq(); pos < last {
			t.Errorf("asked for up to %d, the turn has ended at %d", pos, last)
		}
		recs := f.log(id)
		asked := recs[len(recs)-1]
		if asked.Kind != record.KindCompactionAsked || asked.TurnID != "" {
			t.Fatalf("the last record is a %s of turn %q", asked.Kind, asked.TurnID)
		}
		_, again := f.attach(session.AttachRequest{SessionID: id, TurnID: first.ID()})
		if got := follow(t, again); len(got) == 0 || got[len(got)-1].GetSeq() != before[len(before)-1].GetSeq() {
			t.Errorf("the turn ends otherwise now: %v", got)
		}
		all, err := now(t, f.watchSession(id, ""))
		if err != nil || !slices.ContainsFunc(all, func(p session.Placed) bool { return p.Message.GetEnd() != nil }) {
			t.Errorf("the session: %d events, %v", len(all), err)
		}
		f.stop()

		f = f.newServer(limits.Limits{})
		f.on(look)
		follow(t, f.start(session.Request{SessionID: id}).Watch())
		fork, err := f.m.ForkSession(t.Context(), session.ForkRequest{SessionID: id})
		if err != nil {
			t.Fatal(err)
		}
		follow(t, f.start(session.Request{SessionID: fork.ID}).Watch())

		// A turn that runs.
		f.on(func(ctx context.Context, r *session.Run) error {
			if _, err := call(ctx, r, "c-"+r.TurnID()); err != nil {
				return err
			}
			return look(ctx, r)
		})
		turn := f.start(session.Request{SessionID: id})
		w := turn.Watch()
		callID := findCall(await(t, w, isCall))
		second, err := f.m.CompactSession(t.Context(), id, "")
		if err != nil || second <= pos {
			t.Fatalf("asked for up to %d, then %d: %v", pos, second, err)
		}
		if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: callID, Output: new("1")}); err != nil {
			t.Fatal(err)
		}
		if !end(t, follow(t, w)).GetCompleted() {
			t.Error("the turn was not completed")
		}
		want := []compactionOf{{}, {asked.Seq, "the plan"}, {asked.Seq, "the plan"}, {seen[3].seq, ""}}
		if !slices.Equal(seen, want) || seen[3].seq <= asked.Seq {
			t.Errorf("the runs saw %v, want %v", seen, want)
		}
	})
}

// What there is nothing to summarize of is refused, and nothing is recorded.
func TestCompactSessionRefused(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	empty := f.create(session.Names{})
	f.on(func(ctx context.Context, r *session.Run) error { return say(ctx, r, "m", root, "so it is") })
	turn := f.start(session.Request{})
	<-turn.Done()
	archived := turn.SessionID()
	if _, err := f.m.UpdateSession(t.Context(), archived, store.Change{Archived: new(true)}); err != nil {
		t.Fatal(err)
	}
	records := len(f.log(archived))
	for id, says := range map[string]string{empty.ID: "no turn yet", archived: "is archived", "s-none": "s-none"} {
		_, err := f.m.CompactSession(t.Context(), id, "")
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("session %s: %v, want %q", id, err, says)
		}
		if code := fault.As(err).Code; id != "s-none" && code != fault.Precondition {
			t.Errorf("session %s: %v", id, code)
		}
	}
	if n := len(f.log(archived)); n != records {
		t.Errorf("%d records more", n-records)
	}
}
