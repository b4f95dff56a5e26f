// Harness gives an agent three functions of this program, the tools of agentd run, and an MCP server, behind one gate.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/harness"
	"github.com/apzuk3/agentd/examples/internal/demo"
)

func main() { demo.MainWithProject(script, run) }

func run(ctx context.Context, e demo.Example) error {
	// The folder has .agents/mcp.json; it may have settings, skills and AGENTS.md.
	h, err := harness.New(ctx, harness.Config{Dir: e.Project, Prompter: asker{}})
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }()
	clnt := client.New(e.URL, h.ClientOptions()...)
	err = errors.Join(
		client.AddTool(clnt, "shout", "Says it loudly", word(strings.ToUpper)),
		client.AddTool(clnt, "whisper", "Says it softly", word(strings.ToLower)),
		client.AddTool(clnt, "repeat", "Says it twice", word(func(s string) string { return s + " " + s })))
	if err != nil {
		return err
	}
	agent := client.LLM("helper", e.Model, h.AgentOptions("shout", "whisper", "repeat")...)
	result, err := clnt.Do(ctx, agent, "What time is it? Write it down.", h.Tools())
	fmt.Println(result.Text)
	return err
}
