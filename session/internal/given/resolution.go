package given

import (
	"bytes"
	"encoding/json"

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
