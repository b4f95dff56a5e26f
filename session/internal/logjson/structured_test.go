package logjson_test

import (
	"testing"

	"github.com/apzuk3/agentd/session/internal/logjson"
)

// A structured output keeps its text, and text that is not JSON is none.
func TestStructured(t *testing.T) {
	for _, text := range []string{"", "{", "{} {}"} {
		if got := logjson.Structured(text); got != "" {
			t.Errorf("%q is %s", text, got)
		}
	}
	for _, text := range []string{`{"a": 1e400, "a": 9007199254740993}`, ` "\ud800" `, "null"} {
		if got := logjson.Structured(text); got != text {
			t.Errorf("%q is %s", text, got)
		}
	}
}
