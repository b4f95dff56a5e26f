package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/apzuk3/agentd/client"
)

// ErrElsewhere is a cause with which a caller ends the context of a question that
// another client has resolved the interaction: the person is notified.
var ErrElsewhere = errors.New("answered elsewhere")

// Prompter is a client.Prompter: somebody who reads a screen and types. Its methods may
// be called concurrently; a question waits until those before it are answered or taken
// back.
type Prompter struct {
	out  io.Writer
	in   source
	turn chan struct{} // holds one: whose question it is
}

// New returns the person who reads out and types into in. Of a file that is a terminal
// nothing is read while no question is open. A reader that is no file is read line by
// line by a goroutine that a question which is taken back leaves behind, until that
// line has come; the line then counts for no question.
func New(in io.Reader, out io.Writer) *Prompter {
	return &Prompter{out: out, in: newSource(in), turn: make(chan struct{}, 1)}
}

// Prompt asks what a turn asks, and shows why an answer before was refused. The error is
// that of the input, [ErrNobody] at its end, or the cause of ctx's end.
func (p *Prompter) Prompt(ctx context.Context, in *client.Interaction) (*client.Resolution, error) {
	if err := p.begin(ctx); err != nil {
		return nil, err
	}
	defer p.end()
	if in.Refused != nil {
		p.Say("This was refused: " + indented(in.Refused.Message))
	}
	switch {
	case in.Kind == client.InteractionApproval && in.N > 0:
		return p.permission(ctx, in)
	case in.Kind == client.InteractionApproval:
		return p.approval(ctx, in)
	}
	return p.question(ctx, in)
}

// Say writes a line.
func (p *Prompter) Say(text string) { fmt.Fprintln(p.out, text) }

// begin waits until no other question is open.
func (p *Prompter) begin(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *Prompter) end() { <-p.turn }

// Ask shows a prompt and returns the line that is typed behind it, without white
// space around it: what was typed before is dropped. When ctx ends the prompt is
// taken back and its cause returned.
func (p *Prompter) Ask(ctx context.Context, prompt string) (string, error) {
	if err := p.begin(ctx); err != nil {
		return "", err
	}
	defer p.end()
	return p.ask(ctx, prompt)
}

// Line is Ask for what answers no question, such as the next message of a conversation: what was typed before counts.
func (p *Prompter) Line(ctx context.Context, prompt string) (string, error) {
	if err := p.begin(ctx); err != nil {
		return "", err
	}
	defer p.end()
	return p.read(ctx, prompt)
}

// ask is Ask of the question that is open.
func (p *Prompter) ask(ctx context.Context, prompt string) (string, error) {
	p.in.discard()
	return p.read(ctx, prompt)
}

// read shows a prompt and returns the line behind it.
func (p *Prompter) read(ctx context.Context, prompt string) (string, error) {
	for {
		if _, err := io.WriteString(p.out, prompt); err != nil {
			return "", err
		}
		text, err := p.in.line(ctx)
		switch {
		case errors.Is(err, errStale):
			fmt.Fprintln(p.out, "(this line was begun before the question and does not count)")
			continue
		case ctx.Err() != nil && errors.Is(err, ErrElsewhere):
			fmt.Fprintln(p.out, "("+err.Error()+")")
		case ctx.Err() != nil && errors.Is(err, client.ErrInteractionOver):
			fmt.Fprintln(p.out, "(no longer asked)")
		case err != nil:
			fmt.Fprintln(p.out)
		}
		return strings.TrimSpace(text), err
	}
}

// Confirm asks a question that is answered by yes or no; anything else is no.
func (p *Prompter) Confirm(ctx context.Context, question string) (bool, error) {
	line, err := p.Ask(ctx, question+" [y/N] ")
	return yes(line), err
}

func yes(s string) bool { return strings.EqualFold(s, "y") || strings.EqualFold(s, "yes") }

// choose asks for a permission: what is shown of its text stands on one line with each of its characters. It returns
// one of the keys; m, which is not one of them, shows what was left out of a long text.
func (p *Prompter) choose(ctx context.Context, asked *Permission) (string, error) {
	whole := visible(asked.Text)
	shown, left := middle(whole)
	hint := "Please answer " + strings.Join(asked.Keys, ", ")
	whole = asked.Asks + whole + "\n" + asked.Prompt
	first := asked.Asks + shown + "\n" + asked.Prompt
	if left > 0 {
		first = asked.Asks + shown + "\n" + characters(left) + " are left out: [m] shows them.\n" + asked.Prompt
		hint += " or m"
	}
	prompt := first
	for {
		said, err := p.ask(ctx, prompt)
		if err != nil {
			return "", err
		}
		said = strings.ToLower(said)
		switch {
		case slices.Contains(asked.Keys, said):
			return said, nil
		case said == "m" && left > 0:
			prompt = whole
		default:
			prompt = hint + ": "
		}
	}
}

// permission asks whether a tool that runs may do something, and how far that holds.
func (p *Prompter) permission(ctx context.Context, i *client.Interaction) (*client.Resolution, error) {
	asked := PermissionOf(i)
	said, err := p.choose(ctx, &asked)
	if err != nil {
		return nil, err
	}
	return asked.Said(said), nil
}

// approval asks whether a tool may be called.
func (p *Prompter) approval(ctx context.Context, i *client.Interaction) (*client.Resolution, error) {
	tool, arguments := Line(i.ToolName, maxName), visible(string(i.ToolInput))
	shown, left := middle(arguments)
	question := fmt.Sprintf("%s wants to call %s %s\nApprove? [y]es, [n]o, [e]dit the arguments: ", who(i), tool, shown)
	hint := "Please answer y, n or e: "
	if left > 0 {
		question = fmt.Sprintf("%s wants to call %s %s\n%s of the arguments are left out.\n"+
			"Approve %s? [y]es, [n]o, [e]dit or [v]iew the arguments: ",
			who(i), tool, shown, characters(left), tool)
		hint = "Please answer y, n, e or v: "
	}
	prompt := question
	for {
		said, err := p.ask(ctx, prompt)
		if err != nil {
			return nil, err
		}
		switch strings.ToLower(said) {
		case "y", "yes":
			return client.Approve(), nil
		case "n", "no":
			reason, err := p.ask(ctx, "Why? (may be empty) ")
			if errors.Is(err, ErrNobody) { // the no was said
				err = nil
			}
			if err != nil {
				return nil, err
			}
			return client.Deny(reason), nil
		case "e", "edit":
			input, err := p.arguments(ctx)
			if err != nil {
				return nil, err
			}
			return &client.Resolution{Kind: client.ResolutionApproval, ToolInput: json.RawMessage(input)}, nil
		case "v", "view":
			prompt = arguments + "\n" + question
		default:
			prompt = hint
		}
	}
}

// arguments asks for a JSON object.
func (p *Prompter) arguments(ctx context.Context) (string, error) {
	prompt := "Arguments, a JSON object on one line: "
	for {
		said, err := p.ask(ctx, prompt)
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

// question asks a model's question.
func (p *Prompter) question(ctx context.Context, i *client.Interaction) (*client.Resolution, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s asks: %s\n", who(i), indented(i.Question))
	choices := i.Choices
	for n, c := range choices {
		fmt.Fprintf(&b, "  %d. %s\n", n+1, Line(c, maxName))
	}
	b.WriteString("Answer")
	if len(choices) > 0 {
		b.WriteString(", or the number of a choice")
	}
	b.WriteString(" (empty to give none): ")
	said, err := p.ask(ctx, b.String())
	if err != nil {
		return nil, err
	}
	if n, err := strconv.Atoi(said); err == nil && n >= 1 && n <= len(choices) {
		said = choices[n-1]
	}
	if said == "" {
		return client.Deny("no answer"), nil
	}
	return client.Answer(said), nil
}

// who is the agent that asks.
func who(i *client.Interaction) string {
	if len(i.AgentPath) == 0 {
		return "agent"
	}
	return Line(i.AgentPath[len(i.AgentPath)-1], maxName)
}
