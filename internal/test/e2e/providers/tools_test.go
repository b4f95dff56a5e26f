package providers

import (
	"slices"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// TestProviderTools: what a provider runs and cites reaches the client as its
// bytes say it, once, between the text that it is about and the end of the call;
// and none of it is asked of the client.
func TestProviderTools(t *testing.T) {
	builtins := map[providertest.Wire][]string{
		providertest.Anthropic: {"web_search"}, providertest.OpenAIResponses: {"web_search"},
		providertest.Gemini: {"google_search", "url_context", "code_execution"},
	}
	told := map[providertest.Wire]bool{}
	for _, rec := range providertest.Synthetic(t) {
		e := rec.Calls()[0]
		if e.Status >= 400 {
			continue
		}
		stream, err := e.EventStream()
		if err != nil {
			t.Fatal(err)
		}
		uses, sources := providertest.HearTools(e.Wire, stream)
		if len(uses) == 0 {
			continue
		}
		told[e.Wire] = true
		t.Run(rec.Name, func(t *testing.T) {
			f := harness.NewFaulty(t, e.Wire)
			f.Use(fakeprovider.Through(providertest.NewServer(t, rec, nil)))
			agent := f.Agent()
			agent.GetLlm().BuiltinTools = builtins[e.Wire]
			got := harness.FaultyTurn(t, f.D, agent, "")
			if !got.End.GetCompleted() || len(got.Calls) != 0 {
				t.Fatalf("%v", got.Msgs)
			}
			at := slices.IndexFunc(got.Msgs, func(m *agentdv1.RunResponse) bool { return m.GetProviderToolsUsed() != nil })
			if at < 0 || got.Msgs[at+1].GetModelCallEnded() == nil {
				t.Fatalf("provider tools are message %d of %v", at, got.Msgs)
			}
			p := got.Msgs[at].GetProviderToolsUsed()
			if id := got.Msgs[at+1].GetModelCallEnded().GetMessageId(); p.GetMessageId() != id || len(p.GetAgentPath()) != 1 {
				t.Errorf("of message %q by %q, want %q", p.GetMessageId(), p.GetAgentPath(), id)
			}
			var text strings.Builder
			for _, m := range got.Msgs[:at] {
				if c := m.GetOutputChunk(); c != nil && !c.GetIsThought() {
					text.WriteString(c.GetContent())
				}
			}
			var gotUses []providertest.ToolUse
			for _, u := range p.GetUses() {
				gotUses = append(gotUses, providertest.ToolUse{
					ID: u.GetId(), Name: u.GetToolName(), Error: u.GetError(),
					Input: providertest.SortedJSON([]byte(u.GetInput())), Output: providertest.SortedJSON([]byte(u.GetOutput())),
				})
			}
			var gotSources []providertest.Source
			for _, c := range p.GetCitations() {
				gotSources = append(gotSources, providertest.Source{
					URI: c.GetUri(), Title: c.GetTitle(), Text: c.GetCitedText(), About: text.String()[c.GetStartByte():c.GetEndByte()],
				})
			}
			if !slices.Equal(gotUses, uses) || !slices.Equal(gotSources, sources) {
				t.Errorf("uses %v, want %v\nsources %v, want %v", gotUses, uses, gotSources, sources)
			}
		})
	}
	if len(told) != len(providertest.Wires) {
		t.Errorf("only these wires have told of tools: %v", told)
	}
}
