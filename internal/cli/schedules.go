package cli

import (
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// timing is when a schedule runs, in words.
func timing(s *agentdv1.Schedule) string {
	switch {
	case s.GetEvery() != nil:
		return "every " + s.GetEvery().AsDuration().String()
	case s.GetAt() != nil:
		return "once"
	case s.GetCron().GetTimeZone() != "":
		return s.GetCron().GetExpression() + " " + s.GetCron().GetTimeZone()
	}
	return s.GetCron().GetExpression() + " UTC"
}

// Schedules lists schedules.
func (p *Printer) Schedules(all []*agentdv1.Schedule) error {
	header := []string{"SCHEDULE", "STARTS", "WHEN", "NEXT", "LAST", "RUNS", "SESSION", "BY", "ERROR"}
	return list(p, all, header, func(s *agentdv1.Schedule) []string {
		next, last := "", ""
		if s.GetNextTime() != nil {
			next = exact(p.Now, s.GetNextTime())
		}
		if s.GetLastTime() != nil {
			last = ago(p.Now, s.GetLastTime())
		}
		return []string{
			s.GetId(), starts(s), timing(s), next, last, number(s.GetRuns()), s.GetSessionId(), s.GetCreatedBy(),
			s.GetLastError(),
		}
	})
}

// starts is what a run of a schedule is.
func starts(s *agentdv1.Schedule) string {
	if s.GetGoal() != nil {
		return "a goal"
	}
	return "a turn"
}

// Schedule shows one schedule.
func (p *Printer) Schedule(s *agentdv1.Schedule) error {
	if p.JSON {
		return WriteJSON(p.Out, s)
	}
	facts := []fact{
		{"schedule", s.GetId()},
		{"starts", starts(s)},
		{"when", timing(s)},
		{"session", s.GetSessionId()},
		{"prompt", s.GetExecute().GetUserPrompt()},
		{"goal", s.GetGoal().GetGoal()},
		{"runs", number(s.GetRuns())},
		{"created by", s.GetCreatedBy()},
		{"created", exact(p.Now, s.GetCreateTime())},
	}
	if s.GetNextTime() != nil {
		facts = append(facts, fact{"next", exact(p.Now, s.GetNextTime())})
	}
	if s.GetLastTime() != nil {
		facts = append(facts, fact{"last", exact(p.Now, s.GetLastTime())}, fact{"last turn", s.GetLastTurnId()})
	}
	if s.GetLastError() != "" {
		facts = append(facts, fact{"error", s.GetLastError()})
	}
	return describe(p.Out, facts)
}
