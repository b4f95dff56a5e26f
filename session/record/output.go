package record

import (
	"cmp"
)

// Final tells whether the event is an answer that a turn may end with: one that
// says something and asks the client for nothing. The last one is the turn's
// output.
func (e *Event) Final() bool { return e.Text != "" && len(e.Calls) == 0 && e.Injected == "" }

// FinalText is what an agent has answered in the end.
func (e *Event) FinalText() string { return cmp.Or(e.Output, e.Text) }
