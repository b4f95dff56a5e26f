package chaos

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/record"
)

// fact edits the n-th record of a kind.
func fact[T any](t *testing.T, e *evidence, k record.Kind, n int, edit func(*T)) {
	t.Helper()
	for i, rec := range e.records {
		if rec.Kind != k {
			continue
		}
		if n--; n >= 0 {
			continue
		}
		var f T
		err := json.Unmarshal(rec.Data, &f)
		if edit(&f); err == nil {
			e.records[i].Data, err = json.Marshal(f)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no such %s", k)
}

// What is wrong with a goal is seen.
func TestGoalChecker(t *testing.T) {
	p := newProvider(t, false)
	steered := (&point{p: p, shape: errands()[0]}).run(t).evidence
	resumed := (&point{p: p, shape: errands()[1]}).run(t).evidence
	lost := func(v verdict) int { return v.lost }
	repeated := func(v verdict) int { return v.repeated }
	rerun := func(v verdict) int { return v.rerun }
	other := func(v verdict) int { return v.other }
	for name, tc := range map[string]struct {
		whole  evidence
		count  func(verdict) int
		mutate func(*testing.T, *evidence)
	}{
		"a checkpoint is in an append of its own": {steered, lost, func(t *testing.T, e *evidence) {
			for i := e.record(t, record.KindGoalCheckpointed); i < len(e.records); i++ {
				e.records[i].Time = e.records[i].Time.Add(time.Microsecond)
			}
		}},
		"a turn starts in an append of its own": {steered, lost, func(t *testing.T, e *evidence) {
			i := e.record(t, record.KindGoalCheckpointed) + 1
			e.records[i].Time = e.records[i].Time.Add(time.Microsecond)
		}},
		"a message is told twice": {steered, lost, func(t *testing.T, e *evidence) {
			fact(t, e, record.KindTurnStarted, 2, func(f *record.TurnStarted) {
				f.Prompt = "[Inbox]\n- message turn 1 0 of session 1001\n\n---\n\n" + f.Prompt
			})
		}},
		"a message is not told": {steered, lost, func(t *testing.T, e *evidence) {
			fact(t, e, record.KindTurnStarted, 1, func(f *record.TurnStarted) {
				f.Prompt = strings.Replace(f.Prompt, "- message turn 1 0 of session 1001\n", "", 1)
			})
		}},
		"messages are out of order": {steered, lost, func(t *testing.T, e *evidence) {
			fact(t, e, record.KindTurnStarted, 1, func(f *record.TurnStarted) {
				f.Prompt = strings.NewReplacer("turn 1 0", "turn 1 1", "turn 1 1", "turn 1 0").Replace(f.Prompt)
			})
		}},
		"a message is injected twice": {steered, repeated, func(t *testing.T, e *evidence) {
			fact(t, e, record.KindMessageInjected, 1, func(f *record.MessageInjected) { f.Text = strings.Replace(f.Text, "turn 1 1", "turn 1 0", 1) })
		}},
		"a message that was taken is gone": {steered, lost, func(_ *testing.T, e *evidence) {
			e.pursuit.injected["another one"] = true
		}},
		"a turn starts while the goal is paused": {steered, rerun, func(t *testing.T, e *evidence) {
			i := e.record(t, record.KindGoalResumed)
			e.records[i].Kind, e.records[i].Data = record.KindGoalPaused, []byte(`{"id":"x"}`)
		}},
		"a turn is stopped by a pause": {steered, other, func(t *testing.T, e *evidence) {
			fact(t, e, record.KindTurnEnded, 1, func(f *record.TurnEnded) { f.Completed, f.Reason = false, "its goal was paused" })
		}},
		"totals are not those of the turns": {steered, lost, func(t *testing.T, e *evidence) {
			fact(t, e, record.KindGoalCheckpointed, 1, func(f *record.GoalCheckpointed) { f.Totals.Input-- })
		}},
		"the end has other totals": {steered, lost, func(t *testing.T, e *evidence) {
			fact(t, e, record.KindGoalEnded, 0, func(f *record.GoalEnded) { f.Totals.Turns++ })
		}},
		"the goal ends for another reason": {steered, lost, func(t *testing.T, e *evidence) {
			fact(t, e, record.KindGoalEnded, 0, func(f *record.GoalEnded) {
				f.Reason = agentdv1.GoalReason_GOAL_REASON_MAX_TURNS_EXCEEDED
			})
		}},
		"the goal has not ended": {steered, lost, func(_ *testing.T, e *evidence) {
			e.records = slices.DeleteFunc(e.records, func(r record.Record) bool { return r.Kind == record.KindGoalEnded })
		}},
		"a caller was told another end": {steered, lost, func(_ *testing.T, e *evidence) { e.pursuit.ended[0].Turns++ }},
		"a goal goes on without what it has used": {resumed, lost, func(t *testing.T, e *evidence) {
			fact(t, e, record.KindGoalStarted, 1, func(f *record.GoalStarted) { f.Totals = record.GoalTotals{Turns: 2} })
		}},
		"a turn does not wait": {resumed, rerun, func(t *testing.T, e *evidence) {
			fact(t, e, record.KindGoalCheckpointed, 0, func(f *record.GoalCheckpointed) { f.Until = f.Until.Add(time.Second) })
		}},
		"a turn that waited has another prompt": {resumed, lost, func(t *testing.T, e *evidence) {
			fact(t, e, record.KindTurnStarted, 1, func(f *record.TurnStarted) { f.Prompt = strings.Replace(f.Prompt, "wake up", "go on", 1) })
		}},
		"a goal goes beyond its limit": {resumed, rerun, func(t *testing.T, e *evidence) {
			fact(t, e, record.KindGoalStarted, 0, func(f *record.GoalStarted) { f.Limits.Turns = 1 })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := tc.whole.clone()
			if v := e.check(); v.bad() || v.facts == 0 {
				t.Fatalf("before the fault: %+v", v)
			}
			tc.mutate(t, &e)
			if v := e.check(); tc.count(v) == 0 {
				t.Errorf("the fault is not seen: %+v", v)
			}
		})
	}
}
