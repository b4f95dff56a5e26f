package goal

import (
	"strings"

	"github.com/apzuk3/agentd/session/record"
)

// NextTurn returns the start of the goal's next turn: what is left of the goal is its budget, and the messages and the
// reports that wait come before its prompt.
func (s *State) NextTurn() *record.TurnStarted {
	t := s.F.Turn
	if first := s.F.First; first != nil && !s.begun {
		t.State, t.Temp, t.Seed = first.State, first.Temp, first.Seed
	}
	t.Prompt = s.Prompt
	t.Goal = &record.GoalTurn{ID: s.F.ID, N: s.Totals.Turns + 1, Tools: s.F.Tools}
	above, reports := s.Team.Reports(t.Prompt)
	if t.Reports = reports; reports != nil {
		t.Goal.Prompt = t.Prompt
	}
	if len(s.inbox) > 0 {
		t.Goal.Prompt, t.Goal.Inbox = t.Prompt, s.inbox[len(s.inbox)-1].seq
		above = s.inboxText() + above
	}
	t.Prompt = above + t.Prompt
	t.Budget = t.Budget.Least(s.left())
	return &t
}

// inboxText is what a prompt with messages begins with.
func (s *State) inboxText() string {
	var b strings.Builder
	b.WriteString("[Inbox]\n")
	for _, m := range s.inbox {
		b.WriteString("- ")
		b.WriteString(m.text)
		b.WriteByte('\n')
	}
	b.WriteString("\n---\n\n")
	return b.String()
}

// left is what the next turn may spend of what is left of the goal. Input and output tokens bound a turn only together:
// a budget counts them in one.
func (s *State) left() record.Budget {
	l, below := s.F.Limits, s.Below()
	b := record.Budget{Wall: l.PerTurn}
	if l.Cost > 0 {
		b.Cost = l.Cost - s.Totals.Cost - below.Cost
	}
	if l.Input > 0 && l.Output > 0 {
		b.Tokens = l.Input - s.Totals.Input + l.Output - s.Totals.Output - below.Tokens
	}
	if l.Tokens > 0 {
		b.Tokens = l.Tokens - s.Totals.Input - s.Totals.Output - below.Tokens
	}
	return b
}
