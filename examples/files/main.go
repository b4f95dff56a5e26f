// Files shows an agent a picture, and calls another model when the agent's own
// one fails: without -model it always does, and echo says what it was shown.
package main

import (
	"context"
	"encoding/base64"
	"fmt"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/examples/internal/demo"
)

const script = `answers:
  - error: {kind: auth, message: this key has expired}`

// dot is a PNG of one pixel.
const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNoAAAAggCB2kUIOwAAAABJRU5ErkJggg=="

func main() { demo.Main(script, run) }

func run(ctx context.Context, e demo.Example) error {
	picture, err := base64.StdEncoding.DecodeString(dot)
	if err != nil {
		return err
	}
	agent := client.LLM("looker", e.Model,
		client.FallbackModels("echo"), client.Instruction("Say what is in the picture."))
	turn := client.New(e.URL).Run(ctx, agent, "What is this?",
		client.WithParts(client.Inline("image/png", picture)))
	for event, err := range turn {
		if err != nil {
			return err
		}
		switch d := event.Data.(type) {
		case *client.ModelCallFellBack:
			fmt.Printf("%s failed (%v), %s is called\n", d.Model, d.Code, d.NextModel)
		case *client.OutputChunk:
			fmt.Print(d.Content)
		case *client.ModelCallEnded:
			fmt.Printf("\nanswered by %s\n", d.Model)
		}
	}
	return nil
}
