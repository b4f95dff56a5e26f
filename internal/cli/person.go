package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Person is somebody at a terminal. One goroutine at a time may ask.
type Person struct {
	out io.Writer
	in  source
}

// NewPerson returns the person who reads out and types into in. Of a file that is
// a terminal nothing is read while no question is open.
func NewPerson(in io.Reader, out io.Writer) *Person {
	return &Person{out: out, in: newSource(in)}
}

// Ask shows a prompt and returns the line that is typed behind it, without white
// space around it: what was typed before is dropped. When ctx ends the prompt is
// taken back and its cause returned.
func (p *Person) Ask(ctx context.Context, prompt string) (string, error) {
	p.in.discard()
	for {
		if _, err := io.WriteString(p.out, prompt); err != nil {
			return "", err
		}
		text, err := p.in.line(ctx)
		switch {
		case errors.Is(err, errStale):
			fmt.Fprintln(p.out, "(this line was begun before the question and does not count)")
			continue
		case ctx.Err() != nil && errors.Is(err, errElsewhere):
			fmt.Fprintln(p.out, "("+err.Error()+")")
		case err != nil:
			fmt.Fprintln(p.out)
		}
		return strings.TrimSpace(text), err
	}
}

// Confirm asks a question that is answered by yes or no; anything else is no.
func (p *Person) Confirm(ctx context.Context, question string) (bool, error) {
	line, err := p.Ask(ctx, question+" [y/N] ")
	return yes(line), err
}

func yes(s string) bool { return strings.EqualFold(s, "y") || strings.EqualFold(s, "yes") }

// approval asks whether a tool may be called.
func (p *Person) approval(ctx context.Context, i *agentdv1.Interaction) (*agentdv1.Resolution, error) {
	tool, arguments := line(i.GetToolName(), maxDetail), visible(i.GetToolInput())
	shown, left := middle(arguments)
	question := fmt.Sprintf("%s wants to call %s %s\nApprove? [y]es, [n]o, [e]dit the arguments: ", who(i), tool, shown)
	again := "Please answer y, n or e: "
	if left > 0 {
		question = fmt.Sprintf("%s wants to call %s %s\n%s of the arguments are left out.\nApprove %s? [y]es, [n]o, [e]dit or [v]iew the arguments: ",
			who(i), tool, shown, characters(left), tool)
		again = "Please answer y, n, e or v: "
	}
	prompt := question
	for {
		said, err := p.Ask(ctx, prompt)
		if err != nil {
			return nil, err
		}
		switch strings.ToLower(said) {
		case "y", "yes":
			return Approve(""), nil
		case "n", "no":
			reason, err := p.Ask(ctx, "Why? (may be empty) ")
			if errors.Is(err, errNobody) { // the no was said
				err = nil
			}
			return Deny(reason), err
		case "e", "edit":
			input, err := p.arguments(ctx)
			return Approve(input), err
		case "v", "view":
			prompt = arguments + "\n" + question
		default:
			prompt = again
		}
	}
}

// arguments asks for a JSON object.
func (p *Person) arguments(ctx context.Context) (string, error) {
	prompt := "Arguments, a JSON object on one line: "
	for {
		said, err := p.Ask(ctx, prompt)
		if err != nil {
			return "", err
		}
		var object map[string]any
		if err = json.Unmarshal([]byte(said), &object); err == nil && object != nil {
			return said, nil
		}
		prompt = fmt.Sprintf("That is no JSON object (%v). Arguments: ", err)
	}
}

// answer asks a model's question.
func (p *Person) answer(ctx context.Context, i *agentdv1.Interaction) (*agentdv1.Resolution, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s asks: %s\n", who(i), indented(i.GetQuestion()))
	choices := i.GetChoices()
	for n, c := range choices {
		fmt.Fprintf(&b, "  %d. %s\n", n+1, line(c, maxDetail))
	}
	b.WriteString("Answer")
	if len(choices) > 0 {
		b.WriteString(", or the number of a choice")
	}
	b.WriteString(" (empty to give none): ")
	said, err := p.Ask(ctx, b.String())
	if err != nil {
		return nil, err
	}
	if n, err := strconv.Atoi(said); err == nil && n >= 1 && n <= len(choices) {
		said = choices[n-1]
	}
	if said == "" {
		return Deny("no answer"), nil
	}
	return Answer(said), nil
}

// who is the agent that asks.
func who(i *agentdv1.Interaction) string { return line(speaker(i.GetAgentPath()), maxDetail) }
