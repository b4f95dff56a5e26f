// Sequential runs a writer and then an editor, who sees what the writer wrote.
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
  - when: {system: "the writer"}
    text: The cat sat on on the mat.
  - when: {system: "the editor. Draft: The cat sat on on the mat"}
    text: The cat sat on the mat.
`

func main() { demo.Main(script, run) }

func run(ctx context.Context, e demo.Example) error {
	agent := client.Sequential("desk",
		client.LLM("writer", e.Model,
			client.Instruction("You are the writer. Write one sentence about the topic."),
			client.OutputKey("draft")), // the text lands in the session's state
		client.LLM("editor", e.Model,
			client.Instruction("You are the editor. Draft: {draft} Correct it.")), // and is read from there
	)
	result, err := client.New(e.URL).Do(ctx, agent, "A cat")
	if err != nil {
		return err
	}
	for _, a := range result.Agents {
		fmt.Printf("%s: %s\n", strings.Join(a.Path, "/"), a.Text)
	}
	return nil
}
