package session

import (
	"encoding/json"

	"github.com/apzuk3/agentd/session/internal/logjson"
)

// Structured is the protocol's form of a structured output: the text itself, of which
// every number keeps its digits; "" for text that is not JSON.
func Structured(text string) string {
	if !json.Valid([]byte(text)) {
		return ""
	}
	return logjson.Readable(text)
}
