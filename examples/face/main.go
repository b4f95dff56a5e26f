// Face is a daemon that speaks one more protocol than agentd does: the package lines makes it, a value that this
// program gives its host. The client that reads the lines is played by this program too.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/apzuk3/agentd/agentdhost"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/examples/face/lines"
	"github.com/apzuk3/agentd/server"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	host, err := agentdhost.New(agentdhost.Config{Addr: "127.0.0.1:0", Faces: []server.Face{lines.Face{}}})
	if err != nil {
		return err
	}
	return errors.Join(talk("http://"+host.Addr().String()), host.Shutdown(context.Background()))
}

// talk makes a session by the face, has an agent run in it by the protocol, and reads what happened by the face.
func talk(url string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	create, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/lines/greeting", nil)
	if err != nil {
		return err
	}
	made, err := http.DefaultClient.Do(create)
	if err != nil {
		return err
	}
	if err := made.Body.Close(); err != nil {
		return err
	}
	parrot := client.LLM("parrot", "echo")
	if _, err := client.New(url).Do(ctx, parrot, "Say hello", client.WithSessionID("greeting")); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/lines/greeting", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Last-Event-ID", "0") // from the beginning
	events, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer events.Body.Close()
	for in := bufio.NewScanner(events.Body); in.Scan(); {
		line, ok := strings.CutPrefix(in.Text(), "data: ")
		if ok {
			fmt.Println(line)
		}
		if line == "end" {
			return nil
		}
	}
	return errors.New("the stream has ended before the turn")
}
