package cli

import agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"

// Quiet shows nothing of a turn but what keeps it waiting.
type Quiet struct {
	// Note tells a person.
	Note func(format string, args ...any)
}

// Event tells that a call waits for a client.
func (s Quiet) Event(event *agentdv1.RunResponse) error {
	if u := event.GetToolCallUnserved(); u != nil {
		s.Note("%s", unserved(u))
	}
	return nil
}

// Hold does nothing.
func (Quiet) Hold(bool) error { return nil }
