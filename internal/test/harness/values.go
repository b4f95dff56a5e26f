package harness

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/apzuk3/agentd/client"
)

// NoSpace takes white space out of a text.
func NoSpace(s string) string { return strings.Join(strings.Fields(s), "") }

// EqualJSON compares two JSON texts by their values; numbers by their digits.
func EqualJSON(a, b string) bool {
	var values [2]any
	for i, s := range []string{a, b} {
		dec := json.NewDecoder(strings.NewReader(s))
		dec.UseNumber()
		if dec.Decode(&values[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// As is what an event says if it is of type T, else nil.
func As[T client.EventData](event *client.Event) T {
	data, _ := event.Data.(T)
	return data
}
