package cli

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// maxLine is the longest line that a person may type, in bytes.
const maxLine = 1 << 20

// Person is somebody at a terminal. One goroutine at a time may ask.
type Person struct {
	out   io.Writer
	lines *bufio.Scanner
	next  chan typed // the line that is being read; nil: none is
}

// typed is a line, or that there is none.
type typed struct {
	line string
	ok   bool
}

// NewPerson returns the person who reads out and types into in.
func NewPerson(in io.Reader, out io.Writer) *Person {
	p := &Person{out: out, lines: bufio.NewScanner(in)}
	p.lines.Buffer(nil, maxLine)
	return p
}

// errNobody says that nobody answers.
var errNobody = errors.New("nobody is there to answer")

// Ask shows a prompt and returns the line that follows, without white space around
// it. A question that ctx has ended leaves a goroutine that waits for the line,
// since reading a terminal cannot be interrupted; the next question takes it.
func (p *Person) Ask(ctx context.Context, prompt string) (string, error) {
	if p.next == nil {
		next := make(chan typed, 1)
		p.next = next
		go func() {
			ok := p.lines.Scan()
			next <- typed{p.lines.Text(), ok}
		}()
	}
	if _, err := io.WriteString(p.out, prompt); err != nil {
		return "", err
	}
	select {
	case t := <-p.next:
		p.next = nil
		if !t.ok {
			return "", errNobody
		}
		return strings.TrimSpace(t.line), nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// Confirm asks a question that is answered by yes or no; anything else is no.
func (p *Person) Confirm(ctx context.Context, question string) (bool, error) {
	line, err := p.Ask(ctx, question+" [y/N] ")
	return yes(line), err
}

func yes(s string) bool { return strings.EqualFold(s, "y") || strings.EqualFold(s, "yes") }

// questions puts the questions of a turn to its person, one after the other. The
// screen holds while one is open.
type questions struct {
	turn *Turn
	ctx  context.Context //nolint:containedctx // of the goroutine; ends with close
	stop context.CancelFunc
	wake chan struct{} // holds one signal: todo has grown
	done chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex // protects the fields below, and is held to show something
	todo   []*agentdv1.Interaction
	open   string // the id of the one that is asked; "" for none
	cancel context.CancelCauseFunc
}

// errElsewhere says that somebody else has answered.
var errElsewhere = errors.New("answered elsewhere")

func (t *Turn) questions(ctx context.Context) *questions {
	q := &questions{turn: t, wake: make(chan struct{}, 1), done: make(chan struct{})}
	q.ctx, q.stop = context.WithCancel(ctx)
	go q.loop()
	return q
}

func (q *questions) close() {
	q.stop()
	<-q.done
}

func (q *questions) show(event *agentdv1.RunResponse) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.turn.Screen.Event(event)
}

// ask has a question asked when those before it are answered. A turn has as many
// as it has tool calls.
func (q *questions) ask(i *agentdv1.Interaction) {
	if q.turn.Person == nil {
		q.leave(i)
		return
	}
	q.mu.Lock()
	q.todo = append(q.todo, i)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// leave says who may answer in this person's place.
func (q *questions) leave(i *agentdv1.Interaction) {
	q.turn.Note("the turn waits for a person: agentd interactions resolve %s %s approve|deny|answer", i.GetSessionId(), i.GetId())
}

// resolved takes a question back.
func (q *questions) resolved(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n, i := range q.todo {
		if i.GetId() == id {
			q.todo = append(q.todo[:n], q.todo[n+1:]...)
			return
		}
	}
	if q.open == id {
		q.cancel(errElsewhere)
	}
}

func (q *questions) loop() {
	defer close(q.done)
	for {
		select {
		case <-q.wake:
		case <-q.ctx.Done():
			return
		}
		for q.next() {
		}
	}
}

// next asks the first question that waits, if there is one.
func (q *questions) next() bool {
	q.mu.Lock()
	if len(q.todo) == 0 || q.ctx.Err() != nil {
		q.mu.Unlock()
		return false
	}
	i := q.todo[0]
	q.todo = q.todo[1:]
	ctx, cancel := context.WithCancelCause(q.ctx)
	defer cancel(nil)
	q.open, q.cancel = i.GetId(), cancel
	q.mu.Unlock()

	// What is read from the log may have been answered long ago.
	c := q.turn.Conn
	now, err := Persist(ctx, c, c.GetInteraction, &agentdv1.GetInteractionRequest{SessionId: i.GetSessionId(), InteractionId: i.GetId()})
	if err == nil && now.GetInteraction().GetStatus() == agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING {
		err = q.put(ctx, i)
	}
	q.mu.Lock()
	q.open = ""
	q.mu.Unlock()
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, errNobody):
		q.leave(i)
	default:
		q.turn.Note("%v", err)
	}
	return true
}

// put asks, and sends what the person says.
func (q *questions) put(ctx context.Context, i *agentdv1.Interaction) error {
	q.mu.Lock()
	err := q.turn.Screen.Hold(true)
	q.mu.Unlock()
	if err != nil {
		return err
	}
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if errors.Is(context.Cause(ctx), errElsewhere) {
			fmt.Fprintln(q.turn.Person.out, "("+errElsewhere.Error()+")")
		}
		_ = q.turn.Screen.Hold(false) // what cannot be written is told with the next event
	}()
	var r *agentdv1.Resolution
	if i.GetKind() == agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL {
		r, err = q.turn.Person.approval(ctx, i)
	} else {
		r, err = q.turn.Person.answer(ctx, i)
	}
	if err != nil {
		return err
	}
	r.IdempotencyKey = rand.Text()
	c := q.turn.Conn
	_, err = Persist(ctx, c, c.ResolveInteraction, &agentdv1.ResolveInteractionRequest{SessionId: i.GetSessionId(), InteractionId: i.GetId(), Resolution: r})
	return err
}

// approval asks whether a tool may be called.
func (p *Person) approval(ctx context.Context, i *agentdv1.Interaction) (*agentdv1.Resolution, error) {
	prompt := fmt.Sprintf("%s wants to call %s %s\nApprove? [y]es, [n]o, [e]dit the arguments: ", speaker(i.GetAgentPath()), Clean(i.GetToolName()), Clean(i.GetToolInput()))
	for {
		line, err := p.Ask(ctx, prompt)
		if err != nil {
			return nil, err
		}
		switch strings.ToLower(line) {
		case "y", "yes":
			return Approve(""), nil
		case "n", "no":
			reason, err := p.Ask(ctx, "Why? (may be empty) ")
			return Deny(reason), err
		case "e", "edit":
			input, err := p.arguments(ctx)
			return Approve(input), err
		}
		prompt = "Please answer y, n or e: "
	}
}

// arguments asks for a JSON object.
func (p *Person) arguments(ctx context.Context) (string, error) {
	prompt := "Arguments, a JSON object on one line: "
	for {
		line, err := p.Ask(ctx, prompt)
		if err != nil {
			return "", err
		}
		var object map[string]any
		if err = json.Unmarshal([]byte(line), &object); err == nil && object != nil {
			return line, nil
		}
		prompt = fmt.Sprintf("That is no JSON object (%v). Arguments: ", err)
	}
}

// answer asks a model's question.
func (p *Person) answer(ctx context.Context, i *agentdv1.Interaction) (*agentdv1.Resolution, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s asks: %s\n", speaker(i.GetAgentPath()), Clean(i.GetQuestion()))
	choices := i.GetChoices()
	for n, c := range choices {
		fmt.Fprintf(&b, "  %d. %s\n", n+1, Clean(c))
	}
	b.WriteString("Answer")
	if len(choices) > 0 {
		b.WriteString(", or the number of a choice")
	}
	b.WriteString(" (empty to give none): ")
	line, err := p.Ask(ctx, b.String())
	if err != nil {
		return nil, err
	}
	if n, err := strconv.Atoi(line); err == nil && n >= 1 && n <= len(choices) {
		line = choices[n-1]
	}
	if line == "" {
		return Deny("no answer"), nil
	}
	return Answer(line), nil
}

// Approve lets a tool be called; with input, with these arguments.
func Approve(input string) *agentdv1.Resolution {
	a := &agentdv1.Resolution_Approve{}
	if input != "" {
		a.ToolInput = &input
	}
	return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Approve_{Approve: a}}
}

// Deny refuses.
func Deny(reason string) *agentdv1.Resolution {
	return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Deny_{Deny: &agentdv1.Resolution_Deny{Reason: reason}}}
}

// Answer answers a question.
func Answer(text string) *agentdv1.Resolution {
	return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Answer{Answer: text}}
}
