package record

import (
	"cmp"
)

// Final reports whether the event is a response that a turn may end with: one that has text and no tool
// call for the client, of an agent that is not called as a tool. The last one is the turn's output.
func (e *Event) Final() bool {
	return e.Text != "" && len(e.Calls) == 0 && e.Injected == "" && e.Branch == ""
}

// FinalText is the output of an agent.
func (e *Event) FinalText() string { return cmp.Or(e.Output, e.Text) }
