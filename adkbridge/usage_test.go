package adkbridge

import (
	"testing"

	"github.com/apzuk3/agentd/session/record"
)

// TestUsageOfEarlierEvents: events of earlier releases count as their providers did;
// those of today are believed.
func TestUsageOfEarlierEvents(t *testing.T) {
	const counts = `{"prompt":90,"completion":40,"cached":60,"total":130,"calls":1}`
	apart := record.Usage{Prompt: 150, Completion: 40, Cached: 60, Total: 190, Calls: 1}
	within := record.Usage{Prompt: 90, Completion: 40, Cached: 60, Total: 130, Calls: 1}
	for name, c := range map[string]struct {
		event string
		want  record.Usage
	}{
		"of Anthropic":               {`{"customMetadata":{"agentd":{"usage":` + counts + `,"before":` + counts + `,"call":{"provider":"anthropic"}}}}`, apart},
		"of Claude, without a call":  {`{"modelVersion":"claude-sonnet-4-5","customMetadata":{"agentd":{"usage":` + counts + `,"before":` + counts + `}}}`, apart},
		"of Claude by another":       {`{"modelVersion":"claude-x","customMetadata":{"agentd":{"usage":` + counts + `,"before":` + counts + `,"call":{"provider":"openai"}}}}`, within},
		"of today":                   {`{"customMetadata":{"agentd":{"usage":` + counts + `,"before":` + counts + `,"usage_form":2,"call":{"provider":"anthropic"}}}}`, within},
		"of nobody known, and short": {`{"customMetadata":{"agentd":{"usage":` + counts + `,"before":` + counts + `}}}`, within},
	} {
		s, err := decode([]byte(c.event))
		if err != nil {
			t.Fatal(err)
		}
		if got := *s.CustomMetadata.Agentd.Usage; got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if got := *s.CustomMetadata.Agentd.Before; got != within {
			t.Errorf("%s: the tries before took %+v, want %+v", name, got, within)
		}
	}
}
