package shared

import (
	"encoding/json"
	"strings"

	"github.com/apzuk3/agentd/session/fault"
)

// Use is how many keys there are and how many bytes they take, or may take.
type Use struct{ Keys, Bytes int }

// KeySize returns how many bytes of its scope's bound a key takes.
func KeySize(key string, value json.RawMessage) int {
	return len(strings.TrimPrefix(key, ScopeOf(key))) + len(value)
}

// Fits refuses keys that grow past a bound: grow is what a write adds, after what there is with it. Keys
// that are past a bound already may be written as long as they do not grow. whose names the keys in the
// error.
func Fits(whose string, grow, after, most Use) error {
	switch {
	case grow.Keys > 0 && after.Keys > most.Keys:
		return fault.Errorf(fault.LimitExceeded,
			"state: %s would be %d, at most %d are allowed; a null value removes a key", whose, after.Keys, most.Keys).
			Over("state_keys", most.Keys, after.Keys)
	case grow.Bytes > 0 && after.Bytes > most.Bytes:
		return fault.Errorf(fault.LimitExceeded,
			"state: %s would take %d bytes as JSON, at most %d are allowed; a null value removes a key",
			whose, after.Bytes, most.Bytes).
			Over("state_bytes", most.Bytes, after.Bytes)
	}
	return nil
}
