// Cancel stops one slow tool call, which the model then knows, and later a
// whole turn, after which the session still goes on.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/examples/internal/demo"
)

const script = `
answers:
  - when: {user: "look it up", step: 1}
    calls:
      - name: archive
  - when: {user: "look it up"}
    text: The archive did not answer.
  - when: {user: "tell me everything"}
    chunk_delay: 300ms
    text: [It, " all", " began", " a", " very", " long", " time", " ago", " and", " so", " on", " and", " on", ...]
  - when: {user: "in short"}
    text: It is fine.
`

func main() { demo.Main(script, run) }

func run(ctx context.Context, e demo.Example) error {
	clnt := client.New(e.URL)
	begun, stopped := make(chan struct{}, 1), make(chan struct{}, 1)
	err := client.AddTool(clnt, "archive", "Asks the archive",
		func(ctx context.Context, _ struct{}) (any, error) {
			begun <- struct{}{}
			select {
			case <-time.After(time.Minute):
				return "found", nil
			case <-ctx.Done():
				fmt.Printf("  [the handler stops: %v]\n", context.Cause(ctx))
				stopped <- struct{}{}
				return nil, context.Cause(ctx)
			}
		})
	if err != nil {
		return err
	}
	agent := client.LLM("clerk", e.Model, client.Instruction("You are a clerk."), client.Tools("archive"))

	session := ""
	for _, prompt := range []string{"look it up", "tell me everything", "in short"} {
		fmt.Printf("you: %s\nclerk: ", prompt)
		var control client.Control
		words := 0
		turn := clnt.Run(ctx, agent, prompt, client.WithSessionID(session), client.WithControl(&control))
		for event, err := range turn {
			if err != nil {
				return err
			}
			session = event.SessionID
			switch d := event.Data.(type) {
			case *client.ToolCall:
				<-begun
				if err = control.CancelTool(d.ID); err == nil { // the turn goes on
					<-stopped
				}
			case *client.OutputChunk:
				fmt.Print(d.Content)
				if words++; words == 3 && prompt == "tell me everything" {
					err = control.Cancel() // the turn stops
				}
			case *client.End:
				fmt.Printf("\n  [completed: %v %s]\n", d.Completed, d.Reason)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
