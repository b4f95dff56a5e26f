// Research is a team: a lead spawns three researchers, which work beside each other in sessions of their own, and
// writes a report of what they found. The program runs the tool that all of them have.
package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/examples/internal/demo"
)

const script = `
answers:
  - when: {system: "You lead", step: 1}
    calls:
      - {name: spawn_agent, args: {name: history, system_prompt: You research., goal: the history of tea, max_turns: 5}}
      - {name: spawn_agent, args: {name: trade, system_prompt: You research., goal: the trade of tea, max_turns: 5}}
      - {name: spawn_agent, args: {name: taste, system_prompt: You research., goal: the taste of tea, max_turns: 5}}
  - when: {system: "You lead", step: 2}
    calls:
      - {name: wait_agent, args: {name: history}}
      - {name: wait_agent, args: {name: trade}}
      - {name: wait_agent, args: {name: taste}}
  - when: {system: "You lead"}
    text: "Three of us have looked, and tea is old, far-travelled and bitter."
  - when: {system: "You research", step: 1}
    calls: [{name: search, args: {query: '{{last_user}}'}}]
  - when: {system: "You research", step: 2}
    calls: [{name: report_done, args: {state: done, detail: '{{tool_result "search"}}'}}]
  - when: {system: "You research"}
    text: That is all.
`

func main() { demo.Main(script, run) }

// query is what a researcher looks for.
type query struct {
	Query string `json:"query" jsonschema:"what to look for"`
}

func run(ctx context.Context, e demo.Example) error {
	c := client.New(e.URL)
	err := client.AddTool(c, "search", "Searches the library.", func(ctx context.Context, q query) (string, error) {
		return fmt.Sprintf("%s has three books on %s", client.CallFrom(ctx).Child(), q.Query), nil
	})
	if err != nil {
		return err
	}
	lead := client.LLM("lead", e.Model, client.Instruction("You lead a team."), client.Tools("search"),
		client.BackgroundAgents(client.Background{}))
	ctx, cancel := context.WithCancel(ctx)
	served, told := make(chan error, 1), make(chan string, 3) // as many as there are researchers
	for event, err := range c.Run(ctx, lead, "Find out about tea.") {
		if err != nil {
			cancel()
			return err
		}
		switch d := event.Data.(type) {
		case *client.TurnStarted:
			go func() { // ends with ctx
				served <- c.Serve(ctx, event.SessionID, client.WithOnAlert(func(r *client.ChildEvent) {
					told <- fmt.Sprintf("%s %s: %s", r.Name, r.Report, r.Text)
				}))
			}()
		case *client.OutputChunk:
			fmt.Print(d.Content)
		}
	}
	lines := []string{<-told, <-told, <-told}
	slices.Sort(lines)
	fmt.Println("\n" + strings.Join(lines, "\n"))
	cancel()
	return <-served
}
