// Provider is a daemon with one model provider more than agentd has: the package
// acme makes it, a value that this program gives its host. The vendor is played by
// this program too, and so is the client.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/apzuk3/agentd/agentdhost"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/examples/provider/acme"
	"github.com/apzuk3/agentd/model"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	vendor := httptest.NewServer(http.HandlerFunc(respond))
	defer vendor.Close()

	host, err := agentdhost.New(agentdhost.Config{
		Addr:      "127.0.0.1:0",
		Providers: []model.Provider{acme.New(vendor.URL, "a key")},
	})
	if err != nil {
		return err
	}
	return errors.Join(talk("http://"+host.Addr().String()), host.Shutdown(context.Background()))
}

// talk runs an agent whose model is the vendor's.
func talk(url string) error {
	agent := client.LLM("pilot", "acme/rocket-1")
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

// respond is the vendor.
func respond(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range []string{`{"text":"Three, two, "}`, `{"text":"one."}`,
		`{"done":{"reason":"end","usage":{"Prompt":3,"Completion":4,"Total":7}}}`} {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", event) // a client that has left does not matter
	}
}
