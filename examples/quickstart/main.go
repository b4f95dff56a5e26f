// Quickstart runs two agents on an agentd server and a tool in this process.
//
// Without -addr it starts a server of its own on loopback. Without a key the
// agents speak the lines of quickstart.yaml; with GEMINI_API_KEY set they are
// Gemini's.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
)

//go:embed quickstart.yaml
var script string

// GreetInput is what the model fills in; its JSON Schema comes from these tags.
type GreetInput struct {
	Name string `json:"name" jsonschema:"whom to greet"`
}

func main() {
	addr := flag.String("addr", "", "URL of a running agentd, such as http://localhost:8080; empty starts one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *addr, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, addr string, args []string) error {
	model := "scripted/quickstart"
	key := os.Getenv("GEMINI_API_KEY")
	if key != "" {
		model = "gemini-2.5-flash"
	}
	if addr == "" {
		d, err := agentdtest.New(agentdtest.Config{
			Addr:    "127.0.0.1:0",
			Scripts: map[string]string{"quickstart": script},
			Getenv:  os.Getenv, // the key for Gemini
		})
		if err != nil {
			return err
		}
		defer func() {
			if err := d.Close(); err != nil {
				fmt.Fprintln(os.Stderr, "stop the server:", err)
			}
		}()
		addr = d.URL
	} else if key == "" {
		model = "scripted/demo" // the server has not got our script
	}
	prompt := "Say hi to Alice"
	if len(args) > 0 {
		prompt = args[0]
	}

	clnt := client.New(addr)
	// The function runs here, in this process; the model sees only its result.
	err := client.AddTool(clnt, "greet", "Returns the greeting for a person",
		func(_ context.Context, in GreetInput) (any, error) {
			return "Hello, " + in.Name + "! Nice to see you.", nil
		})
	if err != nil {
		return err
	}

	agent := client.Sequential("assistants",
		client.LLM("greeter", model,
			client.Instruction("You are the greeter. Greet people with the greet tool and pass its words on."),
			client.Tools("greet"), client.OutputKey("greeting")),
		client.LLM("poet", model,
			client.Instruction("You are the poet. Answer this greeting with two short lines of verse: {greeting}")),
	)

	fmt.Printf("you: %s\n", prompt)
	speaker := ""
	for event, err := range clnt.Run(ctx, agent, prompt) {
		if err != nil {
			return err
		}
		if chunk := event.OutputChunk; chunk != nil && chunk.Content != "" {
			if name := chunk.AgentPath[len(chunk.AgentPath)-1]; name != speaker {
				fmt.Printf("\n%s: ", name)
				speaker = name
			}
			fmt.Print(chunk.Content)
		}
		if call := event.ToolCall; call != nil {
			fmt.Printf("\n  [%s %s runs in this process, pid %d]\n  ", call.Name, call.Input, os.Getpid())
		}
		if event.End != nil {
			u := event.End.Usage
			fmt.Printf("\n\ncompleted: %v, %d model calls, %d tokens\n",
				event.End.Completed, u.ModelCalls, u.TotalTokens)
		}
	}
	return nil
}
