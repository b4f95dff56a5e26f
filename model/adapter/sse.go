package adapter

import (
	"io"
	"iter"

	"github.com/apzuk3/agentd/model/internal/sse"
)

// Event is one server-sent event.
type Event struct {
	// Name is the event's type, "" if the stream does not name it.
	Name string
	// Data is its data; never empty.
	Data string
}

// ReadEvents reads a stream of server-sent events whose lines, and events, have at most maxLine
// bytes (0 means 1 MiB, and 4 MiB for an event). Comments and events without data are skipped; a
// final event without the blank line behind it counts. The iteration ends with the stream, or with
// an error as its last element: that of r, one of a line that is too long, or one about a line that
// no event stream holds, such as a line of HTML. Pass the error to TransportError.
func ReadEvents(r io.Reader, maxLine int) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for ev, err := range sse.Read(r, maxLine) {
			if !yield(Event{Name: string(ev.Name), Data: string(ev.Data)}, err) {
				return
			}
		}
	}
}
