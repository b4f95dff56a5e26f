package chaos

import (
	"fmt"
	"regexp"
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/record"
)

// goal takes in a record of a goal.
func (l *logged) goal(rec record.Record) {
	if rec.TurnID != "" {
		l.faults.otherf("record %d (%s) is of turn %s", rec.Seq, rec.Kind, rec.TurnID)
	}
}

var sessionInText = regexp.MustCompile(`session \d+`)

// goalStory is what a log says of goals: how they go on, the prompts of turns, and what each turn has used.
func goalStory(records []record.Record) (out []string) {
	add := func(format string, args ...any) {
		out = append(out, sessionInText.ReplaceAllString(fmt.Sprintf(format, args...), "session"))
	}
	for _, rec := range records {
		fact, _ := rec.Decode(engine.Decode) // is reported
		switch f := fact.(type) {
		case *record.GoalStarted:
			add("goal %q, resumed %v, %+v", f.Goal, f.Resumed, f.Totals)
		case *record.TurnStarted:
			if f.Goal != nil {
				add("turn %d of the goal: %q", f.Goal.N, f.Prompt)
			}
		case *record.GoalCheckpointed:
			add("%+v, %v, %v, next %q", f.Totals, f.Wait, f.Stop, f.Prompt)
		case *record.GoalPaused, *record.GoalResumed:
			add("%s", rec.Kind)
		case *record.GoalEnded:
			add("%v: %q, %+v", f.Reason, f.Detail, f.Totals)
		}
	}
	return out
}

// mayStop reports whether a turn may have been stopped: with its goal.
func (x *examine) mayStop(t *loggedTurn) bool {
	return x.pursuit != nil && x.pursuit.stopped && t.ended.Code == 0 && t.ended.Reason == "its goal was stopped"
}

// chased is a goal as the log has it, from record to record.
type chased struct {
	x       *examine
	last    record.Record
	fact    any // of last
	g       *record.GoalStarted
	ended   []*record.GoalEnded
	totals  record.GoalTotals // of the last checkpoint
	sum     record.GoalTotals // of all turns of this goal and of those it goes on with
	turn    *loggedTurn       // the one under way, or that has just ended
	base    string            // prompt of the next turn, without messages
	prompt  string            // of the last one
	inbox   []string
	paused  bool
	failed  bool // a turn of this goal has
	done    bool // an agent has said so
	wait    *record.GoalCheckpointed
	pauses  int
	notes   map[string]bool
	numbers int64
}

// goals checks the goals of the session: their records follow one another as they must, each message is told once and
// in order, and each ends as its errand has it.
func (x *examine) goals() {
	p := x.pursuit
	if p == nil {
		return
	}
	c := &chased{x: x, notes: map[string]bool{}}
	for _, rec := range x.records {
		fact, err := rec.Decode(engine.Decode)
		if err != nil {
			x.v.otherf("record %d (%s): %v", rec.Seq, rec.Kind, err)
			return
		}
		c.follows(rec)
		c.take(rec, fact)
		c.last, c.fact = rec, fact
	}
	c.over(p)
}

// follows checks what must be in one append with the record before.
func (c *chased) follows(rec record.Record) {
	want := record.Kind("")
	switch f := c.fact.(type) {
	case *record.TurnEnded:
		want = record.KindGoalCheckpointed
	case *record.GoalStarted:
		want = record.KindTurnStarted
	case *record.GoalCheckpointed:
		switch {
		case f.Stop != 0:
			want = record.KindGoalEnded
		case f.Turn != "" && f.Wait == 0 && !c.paused:
			want = record.KindTurnStarted
		}
	}
	if want != "" && (rec.Kind != want || !rec.Time.Equal(c.last.Time)) {
		c.x.v.lostf("record %d (%s) at %v is followed by a %s at %v, want a %s in the same append",
			c.last.Seq, c.last.Kind, c.last.Time, rec.Kind, rec.Time, want)
	}
}

func (c *chased) take(rec record.Record, fact any) {
	v := &c.x.v
	switch f := fact.(type) {
	case *record.GoalStarted:
		if c.g != nil {
			v.repeatedf("record %d: a goal begins while another one is open", rec.Seq)
		}
		if f.Totals != c.sum {
			v.lostf("record %d: the goal begins with %+v, its session has used %+v", rec.Seq, f.Totals, c.sum)
		}
		c.g, c.base, c.totals, c.numbers = f, goalPrompt(c.x.number, "begin"), f.Totals, f.Totals.Turns
		if f.Resumed {
			c.base = goalPrompt(c.x.number, "go on")
		}
		c.paused, c.wait, c.done, c.failed = false, nil, false, false
	case *record.TurnStarted:
		c.start(rec, f)
	case *record.Event:
		c.done = c.done || f.Goal != nil && f.Goal.Done
	case *record.TurnEnded:
		if c.turn == nil || c.turn.id != rec.TurnID {
			v.otherf("record %d: the end of turn %s, which is none of the goal", rec.Seq, rec.TurnID)
			return
		}
		u := c.turn.usage
		c.sum = record.GoalTotals{Turns: c.sum.Turns + 1, Input: c.sum.Input + u.Prompt, Output: c.sum.Output + u.Completion, Unpriced: c.sum.Unpriced + u.Unpriced}
		if e := c.x.shape.errand; f.Completed && c.done != (e.doneAt > 0 && c.started() >= int64(e.doneAt)) {
			v.lostf("record %d: turn %d has completed, reported: %v", rec.Seq, c.started(), c.done)
		}
		c.failed = c.failed || f.Code != 0
		c.prompt, c.base = c.base, goalPrompt(c.x.number, "go on")
		if f.Code != 0 {
			c.base = c.prompt
		}
	case *record.GoalCheckpointed:
		c.checkpoint(rec, f)
	case *record.GoalPaused:
		c.pauses++
		c.paused = true
	case *record.GoalResumed:
		if !c.paused {
			v.repeatedf("record %d: the goal is resumed, and was not paused", rec.Seq)
		}
		c.paused = false
	case *record.MessageInjected:
		if c.notes[f.Text] {
			v.repeatedf("record %d: %q is injected twice", rec.Seq, f.Text)
		}
		if !c.x.pursuit.tried[f.Text] {
			v.lostf("record %d: nobody has injected %q", rec.Seq, f.Text)
		}
		c.notes[f.Text] = true
		c.inbox = append(c.inbox, f.Text)
	case *record.GoalEnded:
		if c.g == nil || c.g.ID != f.ID {
			v.repeatedf("record %d: the end of goal %s, which is not open", rec.Seq, f.ID)
			return
		}
		if f.Totals != c.sum {
			v.lostf("record %d: the goal ends with %+v, its turns have used %+v", rec.Seq, f.Totals, c.sum)
		}
		c.ends(rec, f)
		c.g = nil
	}
}

func (c *chased) start(rec record.Record, f *record.TurnStarted) {
	v := &c.x.v
	switch {
	case f.Goal == nil || c.g == nil || f.Goal.ID != c.g.ID:
		v.otherf("record %d: turn %s is none of the goal", rec.Seq, rec.TurnID)
		return
	case c.paused:
		v.rerunf("record %d: a turn starts while the goal is paused", rec.Seq)
	}
	if c.numbers++; f.Goal.N != c.numbers {
		v.repeatedf("record %d: turn %d of the goal, want %d", rec.Seq, f.Goal.N, c.numbers)
	}
	if c.wait != nil && rec.Time.Before(c.wait.Until) {
		v.rerunf("record %d: a turn starts at %v, it was to wait until %v", rec.Seq, rec.Time, c.wait.Until)
	}
	c.wait = nil
	want := c.base
	if len(c.inbox) > 0 {
		want = "[Inbox]\n- " + strings.Join(c.inbox, "\n- ") + "\n\n---\n\n" + want
	}
	if f.Prompt != want {
		v.lostf("record %d: the prompt is %q, want %q", rec.Seq, f.Prompt, want)
	}
	c.inbox, c.turn = nil, nil
	for _, t := range c.x.log.turns {
		if t.id == rec.TurnID {
			c.turn = t
		}
	}
}

func (c *chased) checkpoint(rec record.Record, f *record.GoalCheckpointed) {
	v := &c.x.v
	if c.g == nil || f.ID != c.g.ID || c.turn == nil || f.Turn != c.turn.id {
		v.otherf("record %d: a checkpoint of turn %s of goal %s", rec.Seq, f.Turn, f.ID)
		return
	}
	if f.Totals != c.sum {
		v.lostf("record %d: the checkpoint has %+v, the turns have used %+v", rec.Seq, f.Totals, c.sum)
	}
	if f.Wait == agentdv1.GoalWait_GOAL_WAIT_TIMER {
		c.base = goalPrompt(c.x.number, "wake up")
		if ahead := f.Until.Sub(rec.Time); ahead > wakeIn {
			v.otherf("record %d: the next turn is to wait for %v", rec.Seq, ahead)
		}
	}
	if waits := c.x.shape.errand.waitsAt == int(c.started()) && c.turn.ended.Completed && !c.done; waits != (f.Wait == agentdv1.GoalWait_GOAL_WAIT_TIMER) && f.Stop == 0 {
		v.lostf("record %d: turn %d waits for %v", rec.Seq, c.started(), f.Wait)
	}
	if f.Wait != 0 {
		c.wait = f
	}
}

// started is how many turns of goals have begun.
func (c *chased) started() int64 { return int64(c.turn.number / tries) }

// ends checks that the goal ends as it has to.
func (c *chased) ends(rec record.Record, f *record.GoalEnded) {
	e, want := c.x.shape.errand, agentdv1.GoalReason(0)
	switch limit := c.g.Limits.Turns; {
	case c.done:
		want = agentdv1.GoalReason_GOAL_REASON_COMPLETED
	case c.x.pursuit.stopped && f.Reason == agentdv1.GoalReason_GOAL_REASON_CONTEXT_CANCELLED:
		want = f.Reason
	case e.aborts && c.failed:
		want = agentdv1.GoalReason_GOAL_REASON_RETRY_POLICY_ABORTED
	case limit > 0 && c.sum.Turns >= limit:
		want = agentdv1.GoalReason_GOAL_REASON_MAX_TURNS_EXCEEDED
	}
	if limit := c.g.Limits.Turns; limit > 0 && c.sum.Turns > limit {
		c.x.v.rerunf("record %d: %d turns, at most %d are allowed", rec.Seq, c.sum.Turns, limit)
	}
	if f.Reason != want {
		c.x.v.lostf("record %d: the goal ends as %v, want %v", rec.Seq, f.Reason, want)
	}
	if c.turn != nil && c.done && f.Detail != detailOf(int(c.started())) {
		c.x.v.lostf("record %d: the goal ends with %q", rec.Seq, f.Detail)
	}
	c.ended = append(c.ended, f)
}

// over checks what was confirmed, and what callers were told.
func (c *chased) over(p *pursuit) {
	v := &c.x.v
	if c.g != nil {
		v.lostf("goal %s has not ended", c.g.ID)
	}
	for text := range p.injected {
		if !c.notes[text] {
			v.lostf("the message %q was taken, the log does not have it", text)
		}
	}
	if c.pauses < p.paused {
		v.lostf("the goal was paused %d times, %d requests were confirmed", c.pauses, p.paused)
	}
	if len(c.ended) != len(p.ended) {
		v.lostf("%d goals have ended, a caller has seen %d", len(c.ended), len(p.ended))
		return
	}
	for i, g := range p.ended {
		f := c.ended[i]
		told := record.GoalTotals{Turns: g.GetTurns(), Input: g.GetInputTokens(), Output: g.GetOutputTokens(), Unpriced: g.GetUnpricedCalls()}
		if told != f.Totals || g.GetReason() != f.Reason || g.GetStatus() != f.Status() || g.GetDoneDetail() != f.Detail || g.GetFinalText() != f.Final {
			v.lostf("a caller was told that goal %s ended as %v, the log has %+v", f.ID, g, f)
		}
		if e := c.x.shape.errand; e.doneAt > 0 && !e.aborts && !e.stops && i == len(p.ended)-1 && f.Reason != agentdv1.GoalReason_GOAL_REASON_COMPLETED {
			v.lostf("goal %s was to be completed, and ended as %v", f.ID, f.Reason)
		}
	}
}
