// Package given is what clients give to tool calls: which results the log can take.
//
// The package must not know sessions.
package given

import (
	"encoding/json"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// Result is the result that a client gives to a tool call.
type Result struct {
	// CallID is the id of the call.
	CallID string
	// Output is the output of the tool, and Error says why it failed. Without both, and
	// without Parts, the model sees a tool error that says so.
	Output, Error *string
	// Parts are the rest of the result; not together with Error.
	Parts record.Parts
	// State are keys to write with the result. Numbers may be of type json.Number, which
	// keeps their digits.
	State map[string]any
	// StateField is the name of State in errors and warnings; "" is state_delta.
	StateField string
	// Refused, if set, is why the result cannot be taken. Then only CallID counts: the call is
	// settled all the same.
	Refused *fault.Error
	// Queued, if set, is called when the result has its place in the log, before it is durable, unless it is
	// refused; perhaps more than once. It must not block. Results that get their places while another one is
	// written are written together.
	Queued func()
}

// Recorded returns the result as the log has it, with who gives it and what was left out of it, or why it cannot be
// taken.
func (a *Result) Recorded(
	by string, warnings []record.Warning, most *limits.Limits,
) (res record.ToolResult, data json.RawMessage, wrong *fault.Error) {
	res = record.ToolResult{CallID: a.CallID, Outcome: record.Returned, State: a.State, By: by, Warnings: warnings}
	switch {
	case a.Refused != nil:
		return res, nil, a.Refused
	case a.Error != nil && len(a.Parts) > 0:
		return res, nil, fault.Errorf(fault.Invalid, "parts together with error: a tool that has failed has no result").
			Breaking("parts", fault.RuleExcluded)
	case a.Output != nil:
		res.Output = a.Output
	case len(a.Parts) > 0:
		res.Output = new("")
	case a.Error != nil:
		res.Error = *a.Error
		if res.Error == "" {
			res.Error = "the tool failed without saying why"
		}
	default:
		res.Error = "the client returned neither output nor error"
	}
	data, err := logjson.Marshal(res)
	if err != nil {
		return res, nil, fault.Errorf(fault.Invalid, "the result cannot be stored: %v", err)
	}
	if n := len(data); n > most.MaxResultBytes {
		return res, nil, fault.Errorf(fault.LimitExceeded,
			"the result takes %d bytes, at most %d are allowed", n, most.MaxResultBytes).
			Breaking("output", fault.RuleRange).Over("result_bytes", most.MaxResultBytes, n)
	}
	if len(a.Parts) == 0 {
		return res, data, nil
	}
	if wrong := a.Parts.Check("parts", true); wrong != nil {
		return res, nil, wrong
	}
	if wrong := a.Parts.CheckSize("parts", "output", len(*res.Output), most.MaxPartsBytes); wrong != nil {
		return res, nil, wrong
	}
	res.Parts = a.Parts
	if data, err = logjson.Marshal(res); err != nil {
		return res, nil, fault.Errorf(fault.Invalid, "the result cannot be stored: %v", err)
	}
	return res, data, nil
}
