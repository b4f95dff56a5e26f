// Package goal says how the goal of a session stands, by its log, and what follows.
//
// A goal is a chain of turns. Between two of them one append holds the end of the first, a checkpoint, and the start of
// the second or the end of the goal. [State.Apply] alone changes a [State]; [State.AfterTurn] and [State.Next] say what
// is to be written, and change nothing. All of it is a function of records and a time.
//
// The package must not know sessions, stores, nor how a turn is run.
package goal

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/team"
	"github.com/apzuk3/agentd/session/record"
)

const (
	// AnswerTime is how long a goal waits for a caller.
	AnswerTime = 30 * time.Second
	// MaxInbox bounds the messages that wait, and maxInboxBytes their texts; beyond, the oldest are dropped.
	MaxInbox      = 256
	maxInboxBytes = 1 << 20
	// backoffFirst is the wait after the second turn in a row that has failed. It doubles to backoffMost.
	backoffFirst = time.Second
	backoffMost  = 30 * time.Second
)

// State is what a log says of the last goal of its session. The zero value is that of a session without one. A copy
// changes by itself. It must not be changed but by Apply.
type State struct {
	// Seq is the record of GoalStarted, Started its time, and F what it says; 0 for none.
	Seq     int64
	Started time.Time
	F       *record.GoalStarted
	// Totals are those of the turns that have ended.
	Totals record.GoalTotals
	// Turn is the turn that is under way, "" for none.
	Turn string
	// Prompt is that of the next turn, and Last that of the last one; both without messages.
	Prompt, Last string
	// Final, Detail, Failure and Failures are those of the last checkpoint.
	Final, Detail, Failure string
	Failures               int64
	// Paused is true between GoalPaused and GoalResumed.
	Paused bool
	// Wait is what it waits for, and Until when that ends.
	Wait  agentdv1.GoalWait
	Until time.Time
	// End is its end, Ended the time of that, and EndSeq its record; nil before.
	End    *record.GoalEnded
	Ended  time.Time
	EndSeq int64
	// Alerted is the record of the last alert for the session's parent, 0 for none.
	Alerted int64
	// Team are the children of the session, with a goal or without one.
	Team team.State

	since    int64     // the record from which on children count as the goal's
	begun    bool      // a turn has started
	released bool      // a caller lets the next turn begin
	inbox    []message // in order; never changed in place
	bytes    int       // of inbox
	keys     []string  // of the last messages; never changed in place
}

// message is one that waits for the next turn.
type message struct {
	seq  int64
	text string
}

// IsOpen reports whether there is a goal that has not ended.
func (s *State) IsOpen() bool { return s.Seq > 0 && s.End == nil }

// Below is what the children that the goal has spawned count as spent.
func (s *State) Below() record.Spent { return s.Team.HeldSince(s.since) }

// Waiting returns how many messages wait.
func (s *State) Waiting() int { return len(s.inbox) }

// HasKey reports whether a message of the idempotency key was injected, among the last MaxInbox.
func (s *State) HasKey(key string) bool { return key != "" && slices.Contains(s.keys, key) }

// Status is how the goal is.
func (s *State) Status() agentdv1.GoalStatus {
	switch {
	case s.Seq == 0:
		return 0
	case s.End != nil:
		return s.End.Status()
	case s.Paused:
		return agentdv1.GoalStatus_GOAL_STATUS_PAUSED
	default:
		return agentdv1.GoalStatus_GOAL_STATUS_RUNNING
	}
}

// Apply applies a record, and reports whether it is about the goal.
func (s *State) Apply(rec record.Record, fact any) bool {
	switch f := fact.(type) {
	case *record.GoalStarted:
		before := s.since
		*s = State{
			Seq: rec.Seq, Started: rec.Time, F: f, Totals: f.Totals, Prompt: f.Prompt,
			inbox: s.inbox, bytes: s.bytes, keys: s.keys, Team: s.Team, since: rec.Seq,
		}
		if f.Resumed {
			s.since = before
		}
	case *record.TurnStarted:
		s.Team.Apply(rec, fact)
		if f.Goal == nil {
			return false
		}
		s.drain(f.Goal.Inbox)
		if s.is(f.Goal.ID) {
			s.Turn, s.Last, s.begun = rec.TurnID, cmp.Or(f.Goal.Prompt, f.Prompt), true
			s.Wait, s.Until, s.released = 0, time.Time{}, false
		}
	case *record.GoalCheckpointed:
		if s.is(f.ID) {
			s.checkpoint(f)
		}
	case *record.GoalPaused:
		s.Paused = s.Paused || s.is(f.ID)
	case *record.GoalResumed:
		if s.is(f.ID) {
			s.resume(rec.Time, f.Action)
		}
	case *record.GoalEnded:
		if s.is(f.ID) {
			s.End, s.Ended, s.EndSeq, s.Turn, s.Wait, s.Until = f, rec.Time, rec.Seq, "", 0, time.Time{}
		}
	case *record.MessageInjected:
		s.inject(rec.Seq, f)
	case *record.Event:
		if f.Goal == nil || len(f.Goal.Alerts) == 0 || !s.IsOpen() {
			return false
		}
		s.Alerted = rec.Seq
	default:
		return s.Team.Apply(rec, fact)
	}
	return true
}

// is reports whether a record is about this goal, which has not ended.
func (s *State) is(id string) bool { return s.IsOpen() && s.F.ID == id }

func (s *State) checkpoint(f *record.GoalCheckpointed) {
	s.Totals, s.Prompt, s.Final, s.Detail = f.Totals, f.Prompt, f.Final, f.Detail
	s.Failure, s.Failures, s.Wait, s.Until = f.Failure, f.Failures, f.Wait, f.Until
	if f.Turn != "" {
		s.Turn = ""
	}
}

func (s *State) resume(at time.Time, action agentdv1.GoalAction) {
	switch action {
	case agentdv1.GoalAction_GOAL_ACTION_PROCEED:
		s.released = true
	case agentdv1.GoalAction_GOAL_ACTION_RETRY:
		s.Prompt = s.Last
	case agentdv1.GoalAction_GOAL_ACTION_SKIP:
		s.Prompt = s.F.Continuation
	default:
		s.Paused = false
		switch s.Wait {
		case agentdv1.GoalWait_GOAL_WAIT_ASK:
			s.Until = at.Add(AnswerTime)
			return
		case agentdv1.GoalWait_GOAL_WAIT_HOLD: // it is held anew
		default:
			return
		}
	}
	s.Wait, s.Until = 0, time.Time{}
}

func (s *State) inject(seq int64, f *record.MessageInjected) {
	s.inbox = append(slices.Clone(s.inbox), message{seq, f.Text})
	s.bytes += len(f.Text)
	for len(s.inbox) > MaxInbox || s.bytes > maxInboxBytes {
		s.bytes -= len(s.inbox[0].text)
		s.inbox = s.inbox[1:]
	}
	if f.Key != "" {
		s.keys = append(slices.Clone(s.keys[max(0, len(s.keys)-MaxInbox+1):]), f.Key)
	}
}

// drain forgets the messages up to a record.
func (s *State) drain(upTo int64) {
	for len(s.inbox) > 0 && s.inbox[0].seq <= upTo {
		s.bytes -= len(s.inbox[0].text)
		s.inbox = s.inbox[1:]
	}
}

// Outcome is how a turn of a goal has ended.
type Outcome int

// The outcomes.
const (
	Completed   Outcome = iota // the tree has finished
	Failed                     // an error has ended it, or nobody came that it waited for
	Stopped                    // a caller has canceled it
	Interrupted                // the prompt of another caller has taken its place
)

// Ended is the end of a turn of a goal.
type Ended struct {
	Turn    string
	Outcome Outcome
	// Why is the error of one that has failed, or why it was stopped, and RetryAfter what that error says.
	Why        string
	RetryAfter time.Duration
	// Budget is true if it has failed because a budget was used up.
	Budget bool
	// Usage, Final and Said are what the turn has used, what it said last, and what its agents said of the goal.
	Usage record.Usage
	Final string
	Said  *record.GoalSaid
}

// AfterTurn returns the checkpoint of the end of the goal's turn, as it is without [State.Next].
func (s *State) AfterTurn(e Ended, now time.Time) *record.GoalCheckpointed {
	c := s.standing()
	c.Turn, c.Totals, c.Final, c.Prompt = e.Turn, s.Totals.Add(e.Usage), cmp.Or(e.Final, s.Final), s.F.Continuation
	c.Failure, c.Failures = "", 0
	switch {
	case e.Said != nil && e.Said.Done:
		c.Stop, c.Detail = agentdv1.GoalReason_GOAL_REASON_COMPLETED, e.Said.Detail
	case e.Outcome == Stopped:
		c.Stop = agentdv1.GoalReason_GOAL_REASON_CONTEXT_CANCELLED
	case e.Outcome == Failed:
		s.failed(c, e, now)
	case e.Outcome == Completed && e.Said != nil && !e.Said.Wake.IsZero():
		c.Wait, c.Until, c.Prompt = agentdv1.GoalWait_GOAL_WAIT_TIMER, e.Said.Wake, cmp.Or(e.Said.Prompt, c.Prompt)
	}
	return c
}

// failed is AfterTurn for a turn that has failed.
func (s *State) failed(c *record.GoalCheckpointed, e Ended, now time.Time) {
	c.Failure, c.Failures = cmp.Or(e.Why, "it failed"), s.Failures+1
	if e.Budget && s.exceeded(c.Totals, now) != 0 {
		return // Next says so
	}
	switch s.F.OnFailure {
	case agentdv1.StartGoalRequest_ON_FAILURE_RETRY:
		c.Prompt = s.Last
	case agentdv1.StartGoalRequest_ON_FAILURE_SKIP:
	case agentdv1.StartGoalRequest_ON_FAILURE_ASK:
		c.Prompt = s.Last
		c.Wait, c.Until = agentdv1.GoalWait_GOAL_WAIT_ASK, now.Add(AnswerTime)
		return
	default:
		c.Stop = agentdv1.GoalReason_GOAL_REASON_RETRY_POLICY_ABORTED
		return
	}
	wait := e.RetryAfter
	if c.Failures > 1 {
		wait = max(wait, min(backoffFirst<<min(c.Failures-2, 10), backoffMost))
	}
	if wait > 0 {
		c.Wait, c.Until = agentdv1.GoalWait_GOAL_WAIT_BACKOFF, now.Add(wait)
	}
}

// standing returns a checkpoint of how the goal stands.
func (s *State) standing() *record.GoalCheckpointed {
	return &record.GoalCheckpointed{
		ID: s.F.ID, Totals: s.Totals, Goal: s.F.Goal, Continuation: s.F.Continuation, Final: s.Final, Detail: s.Detail,
		Failure: s.Failure, Failures: s.Failures, Prompt: s.Prompt,
	}
}

// Next is what follows of a goal while no turn of its session is open.
type Next struct {
	// Starts is true when its next turn begins.
	Starts bool
	// Ends is why it ends, 0 if it does not, and Message more about it.
	Ends    agentdv1.GoalReason
	Message string
	// Waits is a checkpoint that says that it begins to wait; nil if it does not.
	Waits *record.GoalCheckpointed
}

// Next says what follows at a time. The zero value is nothing.
func (s *State) Next(now time.Time) Next {
	over := !now.Before(s.Until)
	switch {
	case !s.IsOpen(), s.Turn != "", s.Paused:
		return Next{}
	case s.Wait == agentdv1.GoalWait_GOAL_WAIT_ASK || s.Wait == agentdv1.GoalWait_GOAL_WAIT_HOLD:
		if !over {
			return Next{}
		}
		return Next{
			Ends:    agentdv1.GoalReason_GOAL_REASON_RETRY_POLICY_ABORTED,
			Message: fmt.Sprintf("nobody has said within %v how it goes on", AnswerTime),
		}
	}
	if why := s.exceeded(s.Totals, now); why != 0 {
		return Next{Ends: why, Message: s.Failure}
	}
	switch {
	case s.Wait != 0 && !over:
		return Next{}
	case s.F.Hold && !s.released:
		c := s.standing()
		c.Wait, c.Until = agentdv1.GoalWait_GOAL_WAIT_HOLD, now.Add(AnswerTime)
		return Next{Waits: c}
	}
	return Next{Starts: true}
}

// exceeded returns the limit that is reached with totals at a time, 0 for none.
func (s *State) exceeded(t record.GoalTotals, now time.Time) agentdv1.GoalReason {
	l, below := s.F.Limits, s.Below()
	switch {
	case l.Turns > 0 && t.Turns >= l.Turns:
		return agentdv1.GoalReason_GOAL_REASON_MAX_TURNS_EXCEEDED
	case l.Input > 0 && t.Input >= l.Input, l.Output > 0 && t.Output >= l.Output,
		l.Input > 0 && l.Output > 0 && t.Input+t.Output+below.Tokens >= l.Input+l.Output,
		l.Tokens > 0 && t.Input+t.Output+below.Tokens >= l.Tokens:
		return agentdv1.GoalReason_GOAL_REASON_MAX_TOKENS_EXCEEDED
	case l.Cost > 0 && t.Cost+below.Cost >= l.Cost:
		return agentdv1.GoalReason_GOAL_REASON_MAX_COST_EXCEEDED
	case l.Wall > 0 && !now.Before(s.Started.Add(l.Wall)):
		return agentdv1.GoalReason_GOAL_REASON_WALLCLOCK_EXCEEDED
	default:
		return 0
	}
}

// Due returns when Next is to be asked again if no record comes before; false is never. The zero time is at once.
func (s *State) Due() (at time.Time, ok bool) {
	if !s.IsOpen() || s.Turn != "" || s.Paused {
		return time.Time{}, false
	}
	at = s.Until
	waits := s.Wait == agentdv1.GoalWait_GOAL_WAIT_TIMER || s.Wait == agentdv1.GoalWait_GOAL_WAIT_BACKOFF
	if wall := s.F.Limits.Wall; wall > 0 && waits {
		if last := s.Started.Add(wall); last.Before(at) {
			at = last
		}
	}
	return at, true
}

// Over returns the end of the goal.
func (s *State) Over(why agentdv1.GoalReason, message, by string, now time.Time) *record.GoalEnded {
	return &record.GoalEnded{
		ID: s.F.ID, Reason: why, Message: message, Totals: s.Totals, Final: s.Final, Detail: s.Detail,
		Took: max(now.Sub(s.Started), 0), By: by, // the clock may have been set back
	}
}
