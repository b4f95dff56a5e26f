package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// goalData is a goal, as it is now.
type goalData struct {
	ID     string `json:"id"`
	Status string `json:"status"`           // running, paused, stopped, completed or failed
	Reason string `json:"reason,omitempty"` // of its end
	// Wait is what it waits for, hold or ask, or also timer or backoff, and until when.
	Wait         string    `json:"wait,omitempty"`
	WaitUntil    time.Time `json:"wait_until,omitzero"`
	Turns        int64     `json:"turns"`
	InputTokens  int64     `json:"input_tokens"`
	OutputTokens int64     `json:"output_tokens"`
	CostUSD      float64   `json:"cost_usd"`
	Seconds      float64   `json:"duration_seconds,omitempty"` // of one that has ended
	// With content.
	Goal       string `json:"goal,omitempty"`
	FinalText  string `json:"final_text,omitempty"`
	DoneDetail string `json:"done_detail,omitempty"`
	Message    string `json:"message,omitempty"`
}

// goal is what a session has of a goal.
func (s *Sender) goal(ctx context.Context, h *Hook, d *delivery) (*goalData, error) {
	row, err := s.cfg.Reader.Row(ctx, store.RowGoal, d.session, d.Subject)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	g, err := index.ReadGoal(row)
	if err != nil {
		return nil, err
	}
	out := &goalData{
		ID: g.ID, Status: row.Status, Turns: g.Totals.Turns, InputTokens: g.Totals.Input, OutputTokens: g.Totals.Output,
		CostUSD: g.Totals.Cost.Dollars(), Seconds: g.Took.Seconds(),
	}
	if g.Reason != 0 {
		out.Reason = word(g.Reason.String(), "GOAL_REASON_")
	}
	if g.Wait != 0 {
		out.Wait, out.WaitUntil = word(g.Wait.String(), "GOAL_WAIT_"), g.Until
	}
	if h.Content {
		out.Goal, out.FinalText = cut(g.Text), cut(g.Final)
		out.DoneDetail, out.Message = cut(g.Detail), cut(g.Message)
	}
	return out, nil
}

// word is the name of a value without what all of its kind begin with.
func word(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }

// goalFacts are the ends of goals in a batch, and the questions of those that wait for an answer.
func goalFacts(b *store.Batch) (out []fact, err error) {
	for i := range b.Records {
		switch r := &b.Records[i]; r.Kind {
		case record.KindGoalEnded:
			var f record.GoalEnded
			if err := json.Unmarshal(r.Data, &f); err != nil {
				return nil, unreadable(r, err)
			}
			out = append(out, fact{GoalEnded, r.TurnID, f.ID, r})
		case record.KindGoalCheckpointed:
			var f record.GoalCheckpointed
			if err := json.Unmarshal(r.Data, &f); err != nil {
				return nil, unreadable(r, err)
			}
			if w := word(f.Wait.String(), "GOAL_WAIT_"); w == "ask" || w == "hold" {
				out = append(out, fact{GoalAsks, f.Turn, f.ID, r})
			}
		default:
			// Nothing else of a goal is told.
		}
	}
	return out, nil
}

func unreadable(r *record.Record, err error) error {
	return fmt.Errorf("webhook: record %d (%s): %w", r.Seq, r.Kind, err)
}

// goalMarks are those of a goal's limits that the turns which end in a batch reach.
func (s *Store) goalMarks(ctx context.Context, b *store.Batch) (out []fact, err error) {
	for i := range b.Records {
		r := &b.Records[i]
		if r.Kind != record.KindGoalCheckpointed {
			continue
		}
		var f record.GoalCheckpointed
		if err := json.Unmarshal(r.Data, &f); err != nil {
			return nil, unreadable(r, err)
		}
		took, is, err := tookOf(b, f.Turn)
		if err != nil {
			return nil, err
		}
		if !is {
			continue // it waits anew
		}
		limits, err := s.limitsOf(ctx, b, f.ID)
		if err != nil {
			return nil, err
		}
		after := f.Totals
		for _, x := range []struct {
			part              string
			limit, now, added int64
		}{
			{"input_tokens", limits.Input, after.Input, took.Input},
			{"output_tokens", limits.Output, after.Output, took.Output},
			{partCost, int64(limits.Cost), int64(after.Cost), int64(took.Cost)},
		} {
			for _, m := range reached("goal", x.part, x.limit, x.now-x.added, x.now) {
				out = append(out, fact{BudgetMarked, f.Turn, m.String(), r})
			}
		}
	}
	return out, nil
}

// tookOf is what a turn that ends in a batch has used; is is false for one that does not.
func tookOf(b *store.Batch, turn string) (took record.GoalTotals, is bool, err error) {
	at := slices.IndexFunc(b.Rows, func(r store.Row) bool { return r.Kind == store.RowTurn && r.ID == turn })
	if turn == "" || at < 0 {
		return took, false, nil
	}
	t := new(index.Turn)
	if err := t.Read(b.Rows[at]); err != nil {
		return took, false, err
	}
	return took.Add(t.Usage), true, nil
}

// limitsOf are the limits of a goal of which a batch has the row: its beginning says them.
func (s *Store) limitsOf(ctx context.Context, b *store.Batch, id string) (none record.GoalLimits, err error) {
	at := slices.IndexFunc(b.Rows, func(r store.Row) bool { return r.Kind == store.RowGoal && r.ID == id })
	if at < 0 {
		return none, nil
	}
	seq := b.Rows[at].Seq
	var begin *record.Record
	if in := seq - b.After - 1; in >= 0 && in < int64(len(b.Records)) {
		begin = &b.Records[in]
	} else {
		recs, err := s.Read(ctx, b.SessionID, seq-1, 1)
		if err != nil || len(recs) == 0 {
			return none, err
		}
		begin = &recs[0]
	}
	var f record.GoalStarted
	if err := json.Unmarshal(begin.Data, &f); err != nil {
		return none, unreadable(begin, err)
	}
	return f.Limits, nil
}
