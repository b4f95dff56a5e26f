// Command witness is the Go client among the tests of the TypeScript client: it starts a turn, or
// follows one, and writes a line for each thing it sees, in the words of the page in examples/web.
// With -tool it has that page's tool, which answers with the next line of the standard input. It
// ends with the turn, without ending it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"os"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

const tool = "pick_tea"

func main() {
	url := flag.String("url", "", "the daemon")
	session := flag.String("session", "", "the session to follow")
	turn := flag.String("turn", "", "the turn to follow")
	prompt := flag.String("prompt", "", "what to start a turn with, in place of following one; takes -tool")
	answers := flag.Bool("tool", false, "have the tool; else only watch")
	flag.Parse()
	if err := run(*url, *session, *turn, *prompt, *answers); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(url, session, turn, prompt string, answers bool) error {
	clnt := client.New(url)
	opts := []client.AttachOption{client.WithTurnID(turn)}
	if answers {
		if err := client.AddTool(clnt, tool, "Asks which tea it is to be", pick); err != nil {
			return err
		}
	} else {
		opts = append(opts, client.Observe())
	}
	var events iter.Seq2[*client.Event, error]
	if prompt == "" {
		events = clnt.Attach(context.Background(), session, opts...)
	} else {
		events = clnt.Run(context.Background(), host(), prompt)
	}
	out := json.NewEncoder(os.Stdout)
	for event, err := range events {
		if err != nil {
			return err
		}
		if err := out.Encode(lineOf(event)); err != nil {
			return err
		}
	}
	return nil
}

// host is the agent of the page.
func host() *agentdv1.Agent {
	return &agentdv1.Agent{Name: "host", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{
		Model: "scripted/demo", Instruction: "You serve tea.", ToolNames: []string{tool},
	}}}
}

type question struct {
	Question string `json:"question" jsonschema:"what to ask the visitor"`
}

// pick returns the next line of the standard input. The model asks once.
func pick(ctx context.Context, _ question) (any, error) {
	line := make(chan string, 1)
	go func() { // ends with the standard input, or with the process
		if in := bufio.NewScanner(os.Stdin); in.Scan() {
			line <- in.Text()
		}
	}()
	select {
	case tea := <-line:
		return tea, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// line is what is written of an event: a piece of a message, or a fact.
type line struct {
	// Turn is the session and the turn, as the page has them behind its #.
	Turn    string `json:"turn"`
	Message string `json:"message,omitempty"`
	Text    string `json:"text,omitempty"`
	// Fact is the event's seq, its type, and what it holds.
	Fact string `json:"fact,omitempty"`
}

func lineOf(e *client.Event) line {
	out := line{Turn: e.SessionID + "/" + e.TurnID}
	switch c := e.OutputChunk; {
	case c == nil:
		out.Fact = fmt.Sprintf("%d %s", e.Seq, fact(e))
	case !c.IsThought: // the page shows none either
		out.Message, out.Text = c.MessageID, c.Content
	}
	return out
}

func fact(e *client.Event) string {
	switch d := e.Data.(type) {
	case *client.TurnStarted:
		return "turn_started " + d.SessionID
	case *client.ToolCall:
		return fmt.Sprintf("tool_call %s %s %s", d.ID, d.Name, d.Input)
	case *client.ToolCallAnnounced:
		return fmt.Sprintf("tool_call_announced %s %s %s", d.ID, d.Name, d.Input)
	case *client.ToolCallAnswered:
		return fmt.Sprintf("tool_call_answered %s %s %s", d.ID, d.Name, d.Output+d.Error)
	case *client.AgentStarted:
		return "agent_started " + d.Model
	case *client.AgentEnded:
		return "agent_ended " + string(d.Outcome)
	case *client.MessageCompleted:
		return fmt.Sprintf("message_completed %d bytes", d.TextBytes)
	case *client.ModelCallEnded:
		return fmt.Sprintf("model_call_ended %s, %d tokens", d.Model, d.Usage.TotalTokens)
	case *client.Error:
		return "error " + d.Error()
	case *client.End:
		end := "completed"
		if !d.Completed {
			end = "stopped: " + d.Reason
		}
		return fmt.Sprintf("end %s, %d model calls", end, d.Usage.ModelCalls)
	default:
		return fmt.Sprintf("unexpected %+v", e)
	}
}
