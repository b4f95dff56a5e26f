// Chat talks with one agent over many turns of one session; the server keeps the
// history. It plays a short conversation, or with -i reads yours, line by line,
// from standard input.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/examples/internal/demo"
)

const script = `
answers:
  - when: {call: 1}
    text: "Nice to meet you, {{last_word}}."
  - when: {}
    text: "You said {{printf \"%q\" last_user}}; that was turn {{call}}."
`

var interactive = flag.Bool("i", false, "read what you say from standard input")

func main() { demo.Main(script, run) }

func run(ctx context.Context, e demo.Example) error {
	var in io.Reader = strings.NewReader("My name is Ada\nWhat did I say?\nAnd now?\n")
	if *interactive {
		in = os.Stdin
	}
	clnt := client.New(e.URL)
	chat := clnt.NewSession(client.LLM("friend", e.Model, client.Instruction("You are a friend. Be brief.")))
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		fmt.Printf("you: %s\nfriend: ", lines.Text())
		for event, err := range chat.Stream(ctx, lines.Text()) {
			switch {
			case err != nil:
				return err
			case event.OutputChunk != nil:
				fmt.Print(event.OutputChunk.Content)
			}
		}
		fmt.Println()
	}
	return lines.Err()
}
