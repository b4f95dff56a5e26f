package harness

import (
	"strings"

	"github.com/apzuk3/agentd/client"
)

// NoSpace takes white space out of a text.
func NoSpace(s string) string { return strings.Join(strings.Fields(s), "") }

// As is what an event says if it is of type T, else nil.
func As[T client.EventData](event *client.Event) T {
	data, _ := event.Data.(T)
	return data
}
