package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/apzuk3/agentd/client/permit"
)

// script is what the model says without a key.
const script = `
answers:
  - calls: [{name: clock_now}, {name: shout, args: {Text: it is}}, {name: repeat, args: {Text: hurry}}]
  - calls: [{name: write_file, args: {path: time.txt, content: '{{tool_result "clock_now"}}'}}]
  - text: '{{tool_result "shout"}} {{tool_result "clock_now"}}, {{tool_result "repeat"}}.'
`

// asker says yes to every question of the gate; a real program asks a person.
type asker struct{}

// AskApproval is that of permit.Prompter.
func (asker) AskApproval(_ context.Context, r permit.PromptRequest) (permit.Decision, error) {
	fmt.Printf("may %s be used with %s? yes\n", r.ToolName, filepath.Base(r.Detail))
	return permit.Once, nil
}

type text struct{ Text string }

// word is a tool that changes a text.
func word(f func(string) string) func(context.Context, text) (string, error) {
	return func(_ context.Context, in text) (string, error) { return f(in.Text), nil }
}
