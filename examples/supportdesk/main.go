// Supportdesk is a chat with a front desk that hands over to two specialists. A refund
// needs a yes, which a supervisor gives in another process that follows the chat, and at
// the end the case is a Go value.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/terminal"
	"github.com/apzuk3/agentd/examples/internal/demo"
)

//go:embed supportdesk.yaml
var script string
var supervise = flag.String("supervise", "", "be the supervisor of this session, who is asked here")

// Query is what the model fills in for the tools that only look.
type Query struct {
	About string `json:"about" jsonschema:"an email address, or the number of an order"`
}

// Case is what a chat comes to, and what a refund is about.
type Case struct {
	Order  int  `json:"order"`
	Euros  int  `json:"euros" jsonschema:"what is paid back"`
	Solved bool `json:"solved"`
}

func says(text string) func(context.Context, Query) (string, error) {
	return func(context.Context, Query) (string, error) { return text, nil }
}

func main() { demo.Main(script, run) }

func run(ctx context.Context, e demo.Example) error {
	clnt, screen := client.New(e.URL), &terminal.Printer{Out: os.Stdout, HideQuestions: true}
	if *supervise != "" {
		person := client.WithPrompter(terminal.New(os.Stdin, os.Stdout))
		return (&terminal.Printer{Out: io.Discard}).PrintAll(clnt.Session(*supervise).Attach(ctx, person))
	}
	refund := func(_ context.Context, c Case) (string, error) {
		return fmt.Sprintf("%d euros are paid back", c.Euros), nil
	}
	if err := errors.Join(
		client.AddTool(clnt, "find_order", "Finds a customer's last order", says("order 17")),
		client.AddTool(clnt, "order_status", "Says where an order is", says("delivered")),
		client.AddTool(clnt, "open_ticket", "Tells the back office", says("ticket 1")),
		client.AddTool(clnt, "refund", "Pays money back", refund, client.NeedsApproval())); err != nil {
		return err
	}
	orders := client.LLM("orders", e.Model, client.Description("Knows where orders are."),
		client.Instruction("You know orders."), client.Tools("find_order", "order_status"))
	billing := client.LLM("billing", e.Model, client.Description("Pays money back."),
		client.Instruction("You know payments."), client.Tools("refund", "open_ticket"))
	chat := clnt.NewSession(client.LLM("desk", e.Model, client.SubAgents(orders, billing),
		client.Instruction("You are the front desk. Transfer to who can help.")))
	//nolint:gosec // this program
	supervisor := exec.CommandContext(ctx, os.Args[0], "-addr", e.URL, "-supervise", chat.ID())
	supervisor.Stdin, supervisor.Stdout, supervisor.Stderr = strings.NewReader("y\n"), os.Stdout, os.Stderr
	for _, prompt := range []string{
		"I am ada@example.com. Where is my order?",
		"It came broken, I want my money back.",
	} {
		fmt.Println("you:", prompt)
		for event, err := range chat.Stream(ctx, prompt) {
			if err != nil {
				return err
			}
			_ = screen.Print(event) // a chat goes on when nobody sees it
			if _, asked := event.Data.(*client.InteractionRequested); asked && supervisor.Process == nil {
				if err := supervisor.Start(); err != nil { // it ends with the turn
					return err
				}
			}
		}
	}
	clerk := client.LLM("clerk", e.Model, client.Instruction("Sum up the case."), client.OutputSchemaOf[Case]())
	got, _, err := client.SendAs[Case](ctx, chat, "Close the case.", client.WithAgent(clerk))
	fmt.Printf("case: %+v\n", got)
	if supervisor.Process != nil {
		err = errors.Join(err, supervisor.Wait())
	}
	return err
}
