// Transfer has a front desk that hands the conversation to a specialist, who
// keeps it in the next turn.
package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/examples/internal/demo"
)

const script = `
answers:
  - when: {system: "You are the front desk"}
    text: I will get the billing department.
    calls:
      - name: transfer_to_agent
        args: {agent_name: billing}
  - when: {system: "You are billing", step: 1, user: "thanks"}
    text: You are welcome.
  - when: {system: "You are billing"}
    text: Your invoice is paid.
`

func main() { demo.Main(script, run) }

func run(ctx context.Context, e demo.Example) error {
	billing := client.LLM("billing", e.Model, client.Instruction("You are billing."),
		client.Description("Knows about invoices and payments.")) // what the front desk decides by
	agent := client.LLM("frontdesk", e.Model, client.SubAgents(billing),
		client.Instruction("You are the front desk. Transfer to the department that can help."))
	chat := client.New(e.URL).NewSession(agent)
	for _, prompt := range []string{"Is my invoice paid?", "thanks"} {
		fmt.Printf("you: %s\n", prompt)
		result, err := chat.Send(ctx, prompt)
		if err != nil {
			return err
		}
		for _, a := range result.Agents {
			fmt.Printf("%s: %s\n", strings.Join(a.Path, "/"), a.Text)
		}
	}
	return nil
}
