// Provider is a daemon with one model provider more than agentd has: the package
// acme registers itself, and this program imports it. The vendor is played by
// this program too, and so is the client.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/apzuk3/agentd/agentdhost"
	"github.com/apzuk3/agentd/client"
	_ "github.com/apzuk3/agentd/examples/provider/acme" // the models "acme/…"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	vendor := httptest.NewServer(http.HandlerFunc(answer))
	defer vendor.Close()

	ctx, stop := context.WithCancel(context.Background())
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		stop()
		return err
	}
	served := make(chan error, 1)
	go func() { // ends with ctx
		served <- agentdhost.Serve(ctx, agentdhost.Config{
			Listener: listener,
			Getenv: func(name string) string { // in place of the environment
				return map[string]string{"ACME_API_KEY": "a key", "ACME_BASE_URL": vendor.URL}[name]
			},
		})
	}()
	err = talk("http://" + listener.Addr().String())
	stop()
	if failed := <-served; err == nil {
		err = failed
	}
	return err
}

// talk runs an agent whose model is the vendor's.
func talk(url string) error {
	agent := &agentdv1.Agent{Name: "pilot", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "acme/rocket-1"}}}
	for event, err := range client.New(url).Run(context.Background(), agent, "Ready?") {
		switch {
		case err != nil:
			return err
		case event.OutputChunk != nil:
			fmt.Print(event.OutputChunk.Content)
		case event.End != nil:
			fmt.Println("\ncompleted:", event.End.Completed)
		}
	}
	return nil
}

// answer is the vendor.
func answer(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range []string{`{"text":"Three, two, "}`, `{"text":"one."}`, `{"done":{"reason":"end","usage":{"Prompt":3,"Completion":4,"Total":7}}}`} {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", event) // a client that has left does not matter
	}
}
