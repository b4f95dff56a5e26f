package given

import (
	"bytes"
	"encoding/json"
	"fmt"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// CheckResolution refuses a resolution that does not fit the interaction of a call, and compacts its arguments as the
// log has them. Whether those fit the tool is for the engine to say.
func CheckResolution(call record.ToolCall, r *record.Resolution, l *limits.Limits) error {
	if n, most := len(r.Answer)+len(r.Input)+len(r.Reason), l.MaxResultBytes; n > most {
		return fault.Errorf(fault.LimitExceeded, "interaction %q: the resolution takes more than %d bytes",
			call.InteractionID(), most).
			Breaking("resolution", fault.RuleRange).Over("resolution_bytes", most, n)
	}
	switch raised := call.Asks.N > 0; {
	case r.Scope != 0 && !raised:
		return fault.Errorf(fault.Invalid,
			"interaction %q: scope is for approvals that a client asks for", call.InteractionID()).
			Breaking("resolution.approve.scope", fault.RuleExcluded)
	case r.Input != nil && raised:
		return fault.Errorf(fault.Invalid,
			"interaction %q: the tool runs already, its arguments stand", call.InteractionID()).
			Breaking("resolution.approve.tool_input", fault.RuleExcluded)
	}
	switch approval := call.Asks.Kind == agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL; {
	case r.Decision == record.Deny:
		return nil
	case r.Decision == record.Approve && !approval:
		return fault.Errorf(fault.Invalid, "interaction %q is %v: answer it, or deny", call.InteractionID(), call.Asks).
			Breaking("resolution.approve", fault.RuleExcluded)
	case r.Decision == record.Reply && approval:
		return fault.Errorf(fault.Invalid, "interaction %q is %v: approve, or deny", call.InteractionID(), call.Asks).
			Breaking("resolution.answer", fault.RuleExcluded)
	case r.Input == nil:
		return nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, r.Input); err != nil || !bytes.HasPrefix(b.Bytes(), []byte("{")) {
		return fault.Errorf(fault.Invalid, "interaction %q: tool_input must be a JSON object", call.InteractionID()).
			Breaking("resolution.approve.tool_input", fault.RuleFormat)
	}
	r.Input = b.Bytes()
	return nil
}

// Bounds of what a client asks.
const (
	maxQuestions = 64 // about one call

	maxQuestion = 65_536 // bytes
	maxChoices  = 100
	maxChoice   = 1_024 // bytes
	maxSource   = 256   // bytes
)

// CheckQuestion refuses a question that a client must not ask, and names the field of RaiseInteractionRequest that is
// wrong.
func CheckQuestion(q *record.Question, l *limits.Limits) error {
	if q.N < 1 || q.N > maxQuestions {
		return fault.Errorf(fault.Invalid, "n must be 1 to %d, it is %d", maxQuestions, q.N).
			Breaking("n", fault.RuleRange)
	}
	approval := q.Kind == agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL
	if q.Text == "" && !approval {
		return fault.Errorf(fault.Invalid, "interaction.question is empty: only an approval may have none").
			Breaking("interaction.question", fault.RuleRequired)
	}
	tooLong := func(field string, n, most int) error {
		return fault.Errorf(fault.LimitExceeded, "interaction.%s has %d bytes, at most %d are allowed", field, n, most).
			Breaking("interaction."+field, fault.RuleRange).Over("interaction_bytes", most, n)
	}
	switch n, most := len(q.Text), min(maxQuestion, l.MaxResultBytes); {
	case n > most:
		return tooLong("question", n, most)
	case len(q.Source) > maxSource:
		return tooLong("source", len(q.Source), maxSource)
	case len(q.Choices) > maxChoices:
		return fault.Errorf(fault.LimitExceeded, "interaction.choices: %d, at most %d are allowed",
			len(q.Choices), maxChoices).Breaking("interaction.choices", fault.RuleRange)
	}
	for i, c := range q.Choices {
		if len(c) > maxChoice {
			return tooLong(fmt.Sprintf("choices[%d]", i), len(c), maxChoice)
		}
	}
	return nil
}
