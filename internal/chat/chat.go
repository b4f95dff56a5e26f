// Package chat is a part of agentd, not an API: a conversation, a turn a line, or on a screen.
//
// What models say goes to one place and all else to another, so that the text can be piped on. A
// line that begins with / is a command: one of the chat's own, or a prompt that the project has in
// .agents/commands. A turn that fails ends nothing.
//
// On a terminal a [Chat.Screen] takes the place of the lines: it prints what is complete, and below it shows what goes
// on. Nothing that somebody else has written reaches the terminal unless it was cleaned.
package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/apzuk3/agentd/client/skills"
	"github.com/apzuk3/agentd/client/terminal"
	"github.com/apzuk3/agentd/internal/cli"
)

const (
	// twice is how soon a second interrupt has to come to leave the chat.
	twice = time.Second
	// cancelTime bounds how long a cancel may take.
	cancelTime = time.Minute
)

// errLeft is why a turn is followed no longer.
var errLeft = errors.New("left")

// Chat is one conversation. One goroutine at a time may use it.
type Chat struct {
	// Start makes a turn with its tools, for a prompt.
	Start func() *cli.Turn
	// Prompt is what each turn has, but for its text. The session of the first turn is continued.
	Prompt cli.Prompt
	// Attach names a session whose running turn is followed first; "" for none.
	Attach string
	// Lines are what is typed.
	Lines Lines
	// Out gets what models say, Info all else.
	Out, Info io.Writer
	// Colors are allowed.
	Colors bool
	// Interrupts come from the keyboard.
	Interrupts <-chan os.Signal
	// Root is the project's folder.
	Root string
	// Model is shown with what was used.
	Model string
	// Modes changes what tools may do; nil where there are none.
	Modes Modes
	// Skills can be loaded by their names; nil: there are none.
	Skills *skills.Set

	// Conn is the daemon, for what a screen does besides turns.
	Conn *cli.Conn
	// Serve is called before a turn that was made by Start is followed; may be nil.
	Serve func(*cli.Turn)
	// Notes is what a screen shows besides; may be nil.
	Notes *Notes
	// Prompts are those of MCP servers; nil: there are none.
	Prompts Prompts

	totals     totals
	transcript transcript
	last       time.Time // of the last interrupt
	left       bool
	show       func(text string) // says what is no part of the conversation; nil: Info gets it
}

// Lines reads what a person types, or an input that is no terminal.
type Lines interface {
	// Line returns the next line; io.EOF at the end of the input, the cause of ctx's end when it ends.
	Line(ctx context.Context) (string, error)
}

// Modes is the gate, as far as a person changes it.
type Modes interface {
	Mode() string
	SetMode(mode string) error
	Replan(session string)
}

// Run talks until the person leaves or the input ends. Its error is that of a failed write.
func (c *Chat) Run() error {
	c.begin()
	if c.Attach != "" {
		c.Prompt.Session = c.Attach
		c.turn("", true)
	}
	for !c.left {
		line, err := c.read()
		if err != nil || c.left {
			break
		}
		text, ok := c.command(strings.TrimSpace(line))
		if ok && text != "" {
			c.turn(text, false)
		}
	}
	return c.end()
}

// Once runs one turn, and reports whether it has completed.
func (c *Chat) Once(text string) (completed bool, err error) {
	c.begin()
	completed = c.turn(text, false)
	return completed, c.end()
}

func (c *Chat) begin() {
	c.transcript.begin(c.Root, c.Model)
}

// end says what was used.
func (c *Chat) end() error {
	if err := c.transcript.save(&c.totals); err != nil {
		c.sayf("the transcript could not be written: %v", err)
	}
	_, err := fmt.Fprintln(c.Info, c.totals.summary(c.Model))
	return err
}

func (c *Chat) sayf(format string, args ...any) {
	text := cli.Clean(fmt.Sprintf(format, args...))
	if c.show != nil {
		c.show(text)
		return
	}
	_, _ = fmt.Fprintln(c.Info, text) // the last line fails, too
}

// read returns the next line. An interrupt drops what was typed; a second one soon behind it leaves.
func (c *Chat) read() (string, error) {
	for {
		ctx, cancel := context.WithCancelCause(context.Background())
		type read struct {
			line string
			err  error
		}
		got := make(chan read, 1)
		go func() { // ends with the line, or with ctx
			line, err := c.Lines.Line(ctx)
			got <- read{line, err}
		}()
		select {
		case t := <-got:
			cancel(nil)
			return t.line, t.err
		case s := <-c.Interrupts:
			cancel(errLeft)
			<-got
			if c.interrupted(s) {
				return "", errLeft
			}
		}
	}
}

// interrupted notes a signal, and reports whether the person leaves: by a second interrupt within a second, or
// because the terminal or the system ends the program.
func (c *Chat) interrupted(s os.Signal) bool {
	now := time.Now()
	c.left = s != os.Interrupt || now.Sub(c.last) < twice
	c.last = now
	if !c.left {
		c.sayf("press Ctrl+C again within 1s to exit")
	}
	return c.left
}

// turn runs a turn, or follows the one that runs, and reports whether it has completed.
func (c *Chat) turn(text string, attach bool) (completed bool) {
	turn := c.Start()
	if c.Serve != nil {
		c.Serve(turn)
	}
	screen := newScreen(c.Out, c.Info, c.Colors)
	turn.Screen = screen
	prompt := c.Prompt
	prompt.Text = text
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	type ended struct {
		ending *cli.Ending
		err    error
	}
	done := make(chan ended, 1)
	go func() { // ends with the turn, or with ctx
		var e ended
		if attach {
			e.ending, e.err = turn.Attach(ctx, c.Attach)
		} else {
			e.ending, e.err = turn.Start(ctx, prompt)
		}
		done <- e
	}()
	canceled := make(chan struct{})
	close(canceled)
	for {
		select {
		case e := <-done:
			cancel(nil)
			<-canceled
			_ = screen.printer.Close() // the next write fails, too
			return c.note(turn, [2]string{text, screen.text.String()}, e.ending, e.err)
		case s := <-c.Interrupts:
			turn.Withdraw()
			if c.interrupted(s) {
				cancel(errLeft)
				continue
			}
			select {
			case <-canceled:
				canceled = make(chan struct{})
				go func(over chan struct{}) { // ends with the call
					defer close(over)
					call, stop := context.WithTimeout(ctx, cancelTime)
					defer stop()
					_ = turn.Cancel(call, "interrupted at the terminal") // the turn's end says what came of it
				}(canceled)
			default: // it is being canceled
			}
		}
	}
}

// note notes what came of a turn, and what was said in it: by the person, and by agents.
func (c *Chat) note(turn *cli.Turn, said [2]string, ending *cli.Ending, err error) (completed bool) {
	if id := turn.Session(); id != "" {
		c.Prompt.Session = id
	}
	switch {
	case errors.Is(err, errLeft):
		c.sayf("left the turn; agentd chat --attach %s follows it", c.Prompt.Session)
	case err != nil:
		c.sayf("%v", err)
	default:
		completed = ending.End.GetCompleted() && ending.Err == nil
		if !completed {
			c.sayf("%s", ending.Summary())
		}
		c.totals.add(ending)
	}
	c.transcript.add(said[0], said[1])
	if err := c.transcript.save(&c.totals); err != nil {
		c.sayf("the transcript could not be written: %v", err)
	}
	return completed
}

// typed are the lines of an input.
type typed struct {
	person *terminal.Prompter
	prompt string
}

// Typed returns the lines that a person types behind a prompt.
func Typed(p *terminal.Prompter) Lines { return typed{p, "> "} }

// Piped returns the lines of an input that is no terminal.
func Piped(in io.Reader) Lines { return typed{terminal.New(in, io.Discard), ""} }

func (t typed) Line(ctx context.Context) (string, error) { return t.person.Line(ctx, t.prompt) }
