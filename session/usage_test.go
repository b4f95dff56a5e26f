package session_test

import (
	"encoding/json"
	"testing"

	"github.com/apzuk3/agentd/session"
)

// TestUsageOfEarlierForm: what was stored as its provider counted is read as it is
// counted now.
func TestUsageOfEarlierForm(t *testing.T) {
	for name, c := range map[string]struct {
		stored, provider string
		want             session.Usage
	}{
		"OpenAI":                {`{"prompt":100,"completion":40,"cached":60,"thoughts":15,"total":140,"calls":1}`, "openai", session.Usage{Prompt: 100, Completion: 40, Cached: 60, Thoughts: 15, Total: 140, Calls: 1}},
		"Gemini":                {`{"prompt":100,"completion":25,"cached":60,"thoughts":15,"total":140,"calls":1}`, "gemini", session.Usage{Prompt: 100, Completion: 40, Cached: 60, Thoughts: 15, Total: 140, Calls: 1}},
		"Anthropic":             {`{"prompt":90,"completion":40,"cached":60,"cache_write":30,"total":130,"calls":2,"cost_usd":0.5}`, "anthropic", session.Usage{Prompt: 150, Completion: 40, Cached: 60, CacheWrite: 30, Total: 190, Calls: 2, CostUSD: 0.5}},
		"Anthropic, all cached": {`{"prompt":40,"completion":40,"cached":60,"total":80,"calls":1}`, "anthropic", session.Usage{Prompt: 100, Completion: 40, Cached: 60, Total: 140, Calls: 1}},
		"of nobody known":       {`{"prompt":40,"completion":25,"cached":60,"thoughts":15,"total":80,"calls":1}`, "", session.Usage{Prompt: 100, Completion: 40, Cached: 60, Thoughts: 15, Total: 140, Calls: 1}},
	} {
		var u session.Usage
		if err := json.Unmarshal([]byte(c.stored), &u); err != nil {
			t.Fatal(err)
		}
		if u = u.CountedBy(c.provider); u != c.want {
			t.Errorf("%s: read as %+v, want %+v", name, u, c.want)
		}
		if again := u.CountedBy(""); again != u {
			t.Errorf("%s: what is counted as today becomes %+v", name, again)
		}
	}
}
