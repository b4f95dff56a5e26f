package cli

import agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"

// Approve lets a tool be called; with input, with these arguments.
func Approve(input string) *agentdv1.Resolution {
	a := &agentdv1.Approval{}
	if input != "" {
		a.ToolInput = &input
	}
	return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Approve{Approve: a}}
}

// Deny refuses.
func Deny(reason string) *agentdv1.Resolution {
	return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Deny{Deny: &agentdv1.Denial{Reason: reason}}}
}

// Answer answers a question.
func Answer(text string) *agentdv1.Resolution {
	return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Answer{Answer: text}}
}
