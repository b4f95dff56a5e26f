package record_test

import (
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/models/record"
)

// TestUsageOfForm2: usage of earlier lines is read as it is counted now.
func TestUsageOfForm2(t *testing.T) {
	for provider, c := range map[string]struct {
		usage string
		want  record.Usage
	}{
		"openai":    {`{"prompt":100,"completion":40,"cached":60,"thoughts":15,"total":140}`, record.Usage{Prompt: 100, Completion: 40, Cached: 60, Thoughts: 15, Total: 140}},
		"gemini":    {`{"prompt":100,"completion":25,"cached":60,"thoughts":15,"total":140}`, record.Usage{Prompt: 100, Completion: 40, Cached: 60, Thoughts: 15, Total: 140}},
		"anthropic": {`{"prompt":90,"completion":40,"cached":60,"cache_write":30,"total":130}`, record.Usage{Prompt: 150, Completion: 40, Cached: 60, CacheWrite: 30, Total: 190}},
	} {
		failed := `{"kind":"unavailable","message":"x","usage":` + c.usage + `}`
		head := `{"agentd_record":2,"provider":"` + provider + `","request":{"contents":[]},"tries":[{"try":1,"error":` + failed + `}],`
		text := head + `"response":{"finish_reason":"STOP","usage":` + c.usage + "}}\n" + head + `"error":` + failed + "}\n"
		lines, err := record.Read(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := lines[0].Response.Usage; got != c.want {
			t.Errorf("%s: the answer has %+v, want %+v", provider, got, c.want)
		}
		for _, e := range []*record.Error{lines[0].Tries[0].Error, lines[1].Error} {
			if *e.Usage != c.want {
				t.Errorf("%s: a failed try has %+v, want %+v", provider, *e.Usage, c.want)
			}
		}
		lines, err = record.Read(strings.NewReader(strings.ReplaceAll(text, `"agentd_record":2`, `"agentd_record":3`)))
		if err != nil || provider == "anthropic" && lines[0].Response.Usage.Prompt != 90 {
			t.Errorf("%s: a line of form 3 has %+v, error %v", provider, lines[0].Response.Usage, err)
		}
	}
}
