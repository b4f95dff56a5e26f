package client

import agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"

// Warning says what of a request the server has left out, though the rest was done: a
// caller that is no operator cannot set state of `app:`, for one. [TurnStarted],
// [ToolCallAnswered], [Turn] and [Result] have them.
type Warning struct {
	// Code is the kind of warning, such as "app_state_ignored". A newer server may have
	// more of them.
	Code string
	// Field is the path of the part in the request, such as
	// `execute.initial_state_json["app:plan"]`.
	Field string
	// Message is for people.
	Message string
}

// String is the message.
func (w Warning) String() string { return w.Message }

// maxWarnings bounds the warnings of a Result.
const maxWarnings = 256

func warningsOf(all []*agentdv1.Warning) []Warning {
	return mapped(all, func(w *agentdv1.Warning) Warning {
		return Warning{Code: w.GetCode(), Field: w.GetField(), Message: w.GetMessage()}
	})
}
