package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

// GreetInput is what the model must give.
type GreetInput struct {
	Name string `json:"name" jsonschema:"whom to greet"`
}

// A program that offers one tool. The server here is a stand-in of a few lines
// that calls the tool and repeats what it said; a real one lets a model decide.
func Example() {
	url, stop := standIn()
	defer stop()

	clnt := client.New(url)
	defer clnt.CloseIdleConnections()
	err := client.AddTool(clnt, "greet", "Returns a greeting", func(_ context.Context, in GreetInput) (any, error) {
		return "Hello, " + in.Name + "!", nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	agent := &agentdv1.Agent{
		Name: "greeter",
		AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{
			Model:       "gemini-2.5-flash",
			Instruction: "Greet people with the greet tool.",
			ToolNames:   []string{"greet"},
		}},
	}
	for event, err := range clnt.Run(context.Background(), agent, "Say hi to Alice") {
		if err != nil {
			fmt.Println(err)
			return
		}
		if event.OutputChunk != nil {
			fmt.Print(event.OutputChunk.Content)
		}
		if event.End != nil {
			fmt.Println("\ncompleted:", event.End.Completed)
		}
	}
	// Output:
	// Hello, Alice!
	// completed: true
}

// standIn starts an HTTP/2 server without TLS.
func standIn() (url string, stop func()) {
	mux := http.NewServeMux()
	mux.Handle(agentdv1connect.NewAgentdHandler(script(func(_ context.Context, s *peer) error {
		if err := steps(s.started, func() error { return s.call("1", "greet", `{"name":"Alice"}`) }); err != nil {
			return err
		}
		answer, err := s.answer()
		if err != nil {
			return err
		}
		return steps(
			func() error { return s.text(answer.GetOutput(), true, "greeter") },
			func() error { return s.end(true, "") },
		)
	})))
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	return srv.URL, srv.Close
}
