package providertest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// TestProvided: what adapters tell of the providers' own tools and of sources is
// what the bytes of each recorded answer say, and no more.
func TestProvided(t *testing.T) {
	told := map[providertest.Wire]int{}
	for _, rec := range providertest.All(t) {
		for i, e := range rec.Calls() {
			if e.Status >= 400 {
				continue
			}
			stream, err := e.EventStream()
			if err != nil {
				t.Fatal(err)
			}
			from := &memory{stream: stream}
			req := &model.Request{Contents: genai.Text("hello"), Config: &genai.GenerateContentConfig{}}
			resp, err := reader(t, e.Wire, from).Generate(t.Context(), req, func(model.Delta) {})
			if err != nil {
				continue // Other tests say whether it may fail.
			}
			wantUses, wantSources := providertest.HearTools(e.Wire, stream)
			uses, sources := observed(resp)
			if diff := cmp.Diff(wantUses, uses, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s, call %d, tools (-bytes +adapter):\n%s", rec.Name, i, diff)
			}
			if diff := cmp.Diff(wantSources, sources, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s, call %d, sources (-bytes +adapter):\n%s", rec.Name, i, diff)
			}
			told[e.Wire] += len(uses)
			for _, use := range uses {
				if strings.Contains(use.Output, "encrypted") {
					t.Errorf("%s, call %d: encrypted data in %s", rec.Name, i, use.Output)
				}
			}
		}
	}
	for _, wire := range providertest.Wires {
		if told[wire] < 2 {
			t.Errorf("%s: %d uses of tools were heard", wire, told[wire])
		}
	}
}

// observed is what an answer tells of tools and sources, in the oracle's terms.
func observed(resp *model.Response) (uses []providertest.ToolUse, sources []providertest.Source) {
	if resp.Provided == nil {
		return nil, nil
	}
	text := adapter.Text(resp.Content)
	for _, u := range resp.Provided.Uses {
		u.Input, u.Output = providertest.SortedJSON([]byte(u.Input)), providertest.SortedJSON([]byte(u.Output))
		uses = append(uses, providertest.ToolUse(u))
	}
	for _, c := range resp.Provided.Citations {
		sources = append(sources, providertest.Source{URI: c.URI, Title: c.Title, Text: c.Text, About: text[c.Start:c.End]})
	}
	return uses, sources
}
