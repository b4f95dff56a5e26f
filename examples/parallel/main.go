// Parallel asks three reviewers at the same time and has one agent sum up what
// they said.
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
  - when: {system: "Review its security"}
    delay: 40ms
    text: No secrets in the log.
  - when: {system: "Review its speed"}
    delay: 10ms
    text: One query per page.
  - when: {system: "Review its style"}
    delay: 20ms
    text: Names say what they mean.
  - when: {system: "Sum up"}
    text: Three reviews, nothing to mend.
`

func main() { demo.Main(script, run) }

func run(ctx context.Context, e demo.Example) error {
	reviewer := func(topic string) *client.Agent {
		return client.LLM(topic, e.Model, client.Instruction("Review its "+topic+" in one sentence."))
	}
	agent := client.Sequential("review",
		client.Parallel("reviewers", reviewer("security"), reviewer("speed"), reviewer("style")),
		client.LLM("chair", e.Model, client.Instruction("Sum up what the reviewers said.")),
	)
	// The reviewers speak at the same time; each chunk says whose it is.
	for event, err := range client.New(e.URL).Run(ctx, agent, "Review the change.") {
		if err != nil {
			return err
		}
		if c := event.OutputChunk; c != nil && c.Content != "" {
			fmt.Printf("%-27s %q\n", strings.Join(c.AgentPath, "/"), c.Content)
		}
	}
	return nil
}
