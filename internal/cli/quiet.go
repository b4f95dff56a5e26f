package cli

import (
	"slices"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Quiet shows nothing of a turn but what keeps it waiting, and what of its requests did
// not count.
type Quiet struct {
	// Note tells a person.
	Note func(format string, args ...any)
}

// Event tells that a call waits for a client, or what the daemon warns of.
func (s Quiet) Event(event *agentdv1.RunResponse) error {
	if u := event.GetToolCallUnserved(); u != nil {
		s.Note("%s", unserved(u))
	}
	for _, w := range slices.Concat(event.GetExecute().GetWarnings(), event.GetToolCallAnswered().GetWarnings()) {
		s.Note("%s", line(w.GetMessage(), 2*maxDetail))
	}
	return nil
}

// Hold does nothing.
func (Quiet) Hold(bool) error { return nil }
