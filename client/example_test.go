package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

// GreetInput is what the model must give.
type GreetInput struct {
	Name string `json:"name" jsonschema:"whom to greet"`
}

// A program that offers one tool. The server here is a stand-in of a few lines
// that calls the tool and repeats what it said; a real one lets a model decide.
func Example() {
	url, stop := scriptedServer()
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
	agent := client.LLM("greeter", "gemini-2.5-flash",
		client.Instruction("Greet people with the greet tool."), client.Tools("greet"))
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

// A user says something while the agent works: the prompt becomes a message of
// the running turn, and the model's next call sees it. A real program would do
// so from another goroutine, or another process.
func ExampleWithOnBusy() {
	d, err := agentdtest.New(agentdtest.Config{Scripts: map[string]string{"clerk": `answers:
  - calls: [{name: search}]
  - text: 'Found {{tool_result "search"}}. And you said: {{last_user}}'`}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = d.Close() }()
	ctx := context.Background()
	clnt := d.Client()
	said := make(chan struct{}) // closed when the user has spoken
	err = client.AddTool(clnt, "search", "Searches the archive", func(context.Context, struct{}) (any, error) {
		<-said // the search takes its time
		return "3 letters", nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	agent := client.LLM("clerk", "scripted/clerk", client.Tools("search"))
	var speaker sync.WaitGroup
	session := ""
	for event, err := range clnt.Run(ctx, agent, "Look for letters") {
		switch {
		case err != nil:
			fmt.Println(err)
			return
		case as[*client.TurnStarted](event) != nil:
			session = event.SessionID
		case event.ToolCall != nil:
			speaker.Go(func() {
				// The run continues to the end of the turn: to leave it cancels that.
				for event, err := range clnt.Run(ctx, nil, "only from 1912", client.WithSessionID(session), client.WithOnBusy(client.OnBusyInject)) {
					if err != nil {
						fmt.Println(err)
						return
					}
					if as[*client.TurnQueued](event) != nil {
						close(said)
					}
				}
			})
		case as[*client.MessageInjected](event) != nil:
			fmt.Println("the user:", as[*client.MessageInjected](event).Prompt)
		case event.OutputChunk != nil:
			fmt.Print(event.OutputChunk.Content)
		}
	}
	speaker.Wait()
	// Output:
	// the user: only from 1912
	// Found 3 letters. And you said: only from 1912
}

// An image goes to the model with the prompt, and another one comes back from a
// tool. This model only says what it was shown.
func ExampleWithParts() {
	d, err := agentdtest.New(agentdtest.Config{Scripts: map[string]string{"eye": `answers:
  - calls: [{name: photograph}]
  - text: 'You showed me: {{last_user}}. The tool said: {{tool_result "photograph"}}.'`}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = d.Close() }()
	clnt := d.Client()
	png := []byte("\x89PNG")
	err = client.AddTool(clnt, "photograph", "Takes a photograph", func(context.Context, struct{}) (any, error) {
		return client.ToolOutput{Output: "a photograph", Parts: []client.Part{client.Inline("image/png", png)}}, nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	agent := client.LLM("eye", "scripted/eye", client.Tools("photograph"))
	result, err := clnt.Do(context.Background(), agent, "Compare", client.WithParts(
		client.Inline("image/png", png), client.FileURI("application/pdf", "gs://bucket/plan.pdf")))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Text)
	// Output:
	// You showed me: Compare
	// [image/png, 4 bytes]
	// [application/pdf, gs://bucket/plan.pdf]. The tool said: a photograph
	// [image/png, 4 bytes].
}

// scriptedServer starts an HTTP/2 server without TLS.
func scriptedServer() (url string, stop func()) {
	mux := http.NewServeMux()
	mux.Handle(agentdv1connect.NewAgentdHandler(script(func(_ context.Context, s *peer) error {
		if err := steps(s.started, func() error { return s.call("1", "greet", `{"name":"Alice"}`) }); err != nil {
			return err
		}
		result, err := s.toolResult()
		if err != nil {
			return err
		}
		return steps(
			func() error { return s.text(result.GetOutput(), true, "greeter") },
			func() error { return s.end(true, "") },
		)
	})))
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	return srv.URL, srv.Close
}

// A response that a program can use: the model's text is JSON of a Go type.
func ExampleOutputSchemaOf() {
	type city struct {
		Name   string `json:"name"`
		People int    `json:"people" jsonschema:"how many live there"`
	}
	d, err := agentdtest.New(agentdtest.Config{
		Scripts: map[string]string{"atlas": `answers: [{text: '{"name": "Yerevan", "people": 1092800}'}]`},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = d.Close() }()
	agent := client.LLM("atlas", "scripted/atlas", client.OutputSchemaOf[city]())
	result, err := d.Client().Do(context.Background(), agent, "The capital of Armenia?")
	if err != nil {
		fmt.Println(err)
		return
	}
	found, err := client.Structured[city](result.Structured)
	fmt.Println(found.Name, found.People, err)
	// Output: Yerevan 1092800 <nil>
}

// A chat: the session keeps what was said, here and for whoever comes back to it.
func ExampleClient_NewSession() {
	d, err := agentdtest.New(agentdtest.Config{
		Scripts: map[string]string{"friend": `answers: [{when: {}, text: 'You said {{last_user}}.'}]`},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = d.Close() }()
	ctx := context.Background()
	chat := d.Client().NewSession(client.LLM("friend", "scripted/friend"))
	for _, prompt := range []string{"hello", "bye"} {
		result, err := chat.Send(ctx, prompt)
		fmt.Println(result.Text, err)
	}
	for turn, err := range d.Client().Session(chat.ID()).Turns(ctx, client.TurnFilter{}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(turn.Prompt, turn.Status)
	}
	// Output:
	// You said hello. <nil>
	// You said bye. <nil>
	// bye succeeded
	// hello succeeded
}

// The response as a Go value: the agent gets the schema of the type.
func ExampleDoAs() {
	type city struct {
		Name   string `json:"name"`
		People int    `json:"people" jsonschema:"how many live there"`
	}
	d, err := agentdtest.New(agentdtest.Config{
		Scripts: map[string]string{"atlas": `answers: [{text: '{"name": "Yerevan", "people": 1092800}'}]`},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = d.Close() }()
	found, _, err := client.DoAs[city](context.Background(), d.Client(), client.LLM("atlas", "scripted/atlas"), "The capital of Armenia?")
	fmt.Println(found.Name, found.People, err)
	// Output: Yerevan 1092800 <nil>
}
