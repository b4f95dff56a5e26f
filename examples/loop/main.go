// Loop shows the three ways in which a loop of agents ends: its cap, a model
// that calls exit_loop, and the client, asked through the tool loop_continue.
package main

import (
	"context"
	"fmt"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/examples/internal/demo"
)

const script = `
answers:
  - when: {system: "when it is good", call: 2}
    text: Good enough.
    calls:
      - name: exit_loop
  - when: {}
    text: "Draft {{call}}. "
`

// Iteration is what the server asks after each round of a loop.
type Iteration struct {
	Agent         string `json:"agent"`
	Iteration     int    `json:"iteration"`
	MaxIterations int    `json:"max_iterations"`
}

func main() { demo.Main(script, run) }

func run(ctx context.Context, e demo.Example) error {
	writer := func(instruction string, builtins ...string) *client.Agent {
		return client.LLM("writer", e.Model, client.Instruction(instruction), client.BuiltinTools(builtins...))
	}
	say := func(how string, clnt *client.Client, agent *client.Agent) error {
		result, err := clnt.Do(ctx, agent, "Write a slogan.")
		if err != nil {
			return err
		}
		fmt.Printf("%-10s %s\n", how, result.Text)
		return nil
	}

	err := say("cap", client.New(e.URL), client.Loop("rounds", 3, writer("Improve the draft.")))
	if err != nil {
		return err
	}
	err = say("exit_loop", client.New(e.URL),
		client.Loop("rounds", 10, writer("Call exit_loop when it is good.", "exit_loop")))
	if err != nil {
		return err
	}

	asked := client.New(e.URL)
	err = client.AddTool(asked, "loop_continue", "Decides whether the loop goes on",
		func(_ context.Context, in Iteration) (any, error) {
			return map[string]bool{"continue": in.Iteration < 2}, nil
		})
	if err != nil {
		return err
	}
	return say("client", asked, client.Loop("rounds", 10, writer("Improve the draft.")))
}
