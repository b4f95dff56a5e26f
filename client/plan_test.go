package client_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
)

// TestPlanMode: a turn that only plans runs no tool that may change something, in no agent, also when it goes on
// after a restart; the next turn does.
func TestPlanMode(t *testing.T) {
	const script = `answers:
  - {when: {step: 1}, calls: [{name: look}, {name: note}, {name: write}, {name: run}, {name: fetch}, {name: any}]}
  - {when: {}, text: 'told {{tool_result "write"}}, {{tool_result "run"}}, {{tool_result "fetch"}}, {{tool_result "any"}}.'}`
	cfg := agentdtest.Config{
		DataDir: t.TempDir(), Addr: "127.0.0.1:0",
		Scripts: map[string]string{"all": script},
	}
	var mu sync.Mutex
	var ran []string
	started, release := make(chan struct{}), make(chan struct{})
	set := client.NewToolSet()
	for name, effect := range map[string]client.Effect{
		"look": client.EffectRead, "note": client.EffectInternal, "write": client.EffectWrite, "run": client.EffectExecute, "fetch": client.EffectNetwork, "any": 0,
	} {
		err := client.AddTool(set, name, "A tool", func(ctx context.Context, _ struct{}) (string, error) {
			mu.Lock()
			ran = append(ran, name)
			mu.Unlock()
			if name == "look" && started != nil {
				close(started)
				select {
				case <-release:
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}
			return "ok", nil
		}, client.ToolEffect(effect))
		if err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"look", "note", "write", "run", "fetch", "any"}
	tree := client.Sequential("both", client.LLM("one", "scripted/all", client.Tools(names...)), client.LLM("two", "scripted/all", client.Tools(names...)))
	heard := func(events iter.Seq2[*client.Event, error]) (results []string, said string) {
		for event, err := range events {
			if err != nil {
				t.Fatal(err)
			}
			switch e := event.Data.(type) {
			case *client.ToolCallAnswered:
				results = append(results, fmt.Sprintf("%s %s: %s%s", e.AgentPath[len(e.AgentPath)-1], e.Name, e.Output, e.Error))
			case *client.OutputChunk:
				said += e.Content
			}
		}
		slices.Sort(results)
		return results, said
	}
	d := agentdtest.Start(t, cfg)
	clnt := client.New(d.URL)
	ctx, leave := context.WithCancel(t.Context())
	opts := []client.RunOption{
		client.WithTools(set), client.WithPlanMode(), client.WithOnLeave(client.OnLeaveDetach), client.WithSessionOrNew("plans"),
	}
	first := make(chan struct{})
	go func() {
		defer close(first)
		for range clnt.Run(ctx, tree, "go", opts...) { // until it is left
			_ = ctx
		}
	}()
	<-started
	leave()
	<-first
	clnt.CloseIdleConnections()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	started = nil
	close(release)
	d = agentdtest.Start(t, cfg)
	clnt = client.New(d.URL)
	defer clnt.CloseIdleConnections()
	got, said := heard(clnt.Attach(t.Context(), "plans", client.WithTools(set)))
	if want := []string{"one look: ok", "one note: ok", "two look: ok", "two note: ok"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	const told = "told plan mode: write (WRITE) was not run, plan mode: run (EXECUTE) was not run, plan mode: fetch (NETWORK) was not run, " +
		"plan mode: any was not run: it may change something."
	if said != told+told {
		t.Errorf("said %s", said)
	}
	mu.Lock()
	for _, name := range []string{"write", "run", "fetch", "any"} {
		if slices.Contains(ran, name) {
			t.Errorf("%s has run", name)
		}
	}
	mu.Unlock()
	got, said = heard(clnt.Run(t.Context(), nil, "go", client.WithSessionID("plans"), client.WithTools(set)))
	if len(got) != 12 || said != "told ok, ok, ok, ok.told ok, ok, ok, ok." {
		t.Errorf("the next turn: %q, %s", got, said)
	}
}
