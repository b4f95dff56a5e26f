// Command adkpeer is the REST server of ADK itself, which stores nothing: one agent with Gemini and a tool that does
// nothing.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/model/gemini"
	"google.golang.org/adk/v2/server/adkrest"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/bench/internal/proc"
	"github.com/apzuk3/agentd/bench/internal/script"
)

// streamTimeout is longer than any stream of a benchmark.
const streamTimeout = 10 * time.Minute

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "adkpeer:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("adkpeer MODEL-URL: got %d arguments", len(args))
	}
	server, err := newServer(context.Background(), args[0])
	if err != nil {
		return err
	}
	return proc.Serve(server)
}

// newServer returns the server of a model at an address.
func newServer(ctx context.Context, url string) (http.Handler, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 100
	m, err := gemini.NewModel(ctx, script.GeminiModel, &genai.ClientConfig{
		APIKey:      "bench",
		Backend:     genai.BackendGeminiAPI,
		HTTPClient:  &http.Client{Transport: transport},
		HTTPOptions: genai.HTTPOptions{BaseURL: url},
	})
	if err != nil {
		return nil, err
	}
	work, err := functiontool.New(functiontool.Config{Name: script.Tool, Description: script.ToolDescription}, work)
	if err != nil {
		return nil, err
	}
	a, err := llmagent.New(llmagent.Config{
		Name: script.Agent, Model: m, Instruction: script.Instruction, Tools: []tool.Tool{work},
	})
	if err != nil {
		return nil, err
	}
	return adkrest.NewServer(adkrest.ServerConfig{
		AgentLoader:     agent.NewSingleLoader(a),
		SessionService:  session.InMemoryService(),
		SSEWriteTimeout: streamTimeout,
	})
}

// input is what the tool is given: which call of the conversation it is, and how long it takes, in microseconds.
type input struct {
	N    int `json:"n"`
	Wait int `json:"wait"`
}

type output struct {
	Output string `json:"output"`
}

func work(ctx agent.Context, in input) (output, error) {
	if in.Wait > 0 {
		timer := time.NewTimer(time.Duration(in.Wait) * time.Microsecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return output{}, ctx.Err()
		}
	}
	return output{Output: script.Result(in.N)}, nil
}
