package session

import (
	"strings"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// checkSaid refuses a prompt that says nothing, or too much.
func (m *Manager) checkSaid(prompt string, parts record.Parts) *fault.Error {
	if strings.TrimSpace(prompt) == "" && parts.Blank() {
		return fault.Errorf(fault.Invalid, "user_prompt is empty: a turn needs something to answer").
			Breaking("user_prompt", fault.RuleRequired)
	}
	if err := parts.Check("user_parts", false); err != nil {
		return err
	}
	_, texts := parts.Size()
	switch n, most := len(prompt)+texts, m.limits.MaxPromptBytes; {
	case n <= most:
		return parts.CheckSize("user_parts", "user_prompt", len(prompt), m.limits.MaxPartsBytes)
	case texts > 0:
		return fault.Errorf(fault.LimitExceeded, "user_prompt and the texts of user_parts have %d bytes, at most %d are allowed", n, most).
			Breaking("user_prompt", fault.RuleRange).Over("prompt_bytes", most, n)
	default:
		return fault.Errorf(fault.LimitExceeded, "user_prompt has %d bytes, at most %d are allowed", n, most).
			Breaking("user_prompt", fault.RuleRange).Over("prompt_bytes", most, n)
	}
}
