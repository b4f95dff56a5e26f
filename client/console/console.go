// Package console prints turns to two places: what models say to one, so that it can be
// piped on, and all else to another, for a person:
//
//	err := console.WriteEvents(clnt.Run(ctx, agent, prompt), os.Stdout, os.Stderr)
//
// A tool call is a line `→ name(key=value, …)`, its result a line `← name(…)`; keys are
// sorted, values are JSON, cut at 80 characters. Nothing that a model or a tool has
// written moves the cursor or changes colors: see [terminal.Clean].
package console

import (
	"cmp"
	"encoding/json"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/mattn/go-isatty"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/terminal"
)

// maxValue is how many characters of a value are shown.
const maxValue = 80

// Option changes how events are printed.
type Option func(*Printer)

// WithColor prints text in green, calls in cyan and searches of providers in magenta; default false.
func WithColor(on bool) Option { return func(p *Printer) { p.color = on } }

// IsTerminal reports whether w is a terminal: a file that is one.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// WriteEvents prints the events of a run until it ends, and returns what it failed with, or why nothing could be
// written.
func WriteEvents(events iter.Seq2[*client.Event, error], out, info io.Writer, opts ...Option) error {
	p := New(out, info, opts...)
	for event, err := range events {
		if err != nil {
			return cmp.Or(p.Close(), err)
		}
		if err := p.Print(event); err != nil {
			return err
		}
	}
	return p.Close()
}

// Printer prints events. One goroutine at a time may use it.
type Printer struct {
	out, info io.Writer
	color     bool
	screen    bool // out is a terminal

	open   bool            // a line of out is not at its end
	called map[string]bool // calls that were shown; the runs bound them
	told   map[string]bool // results that were shown
	err    error           // the first failed write
}

// New returns a printer of text to out and of all else to info.
func New(out, info io.Writer, opts ...Option) *Printer {
	p := &Printer{out: out, info: info, screen: IsTerminal(out), called: map[string]bool{}, told: map[string]bool{}}
	for _, opt := range opts {
		opt(p)
	}
	return p
}

// Colors of a terminal.
const (
	green   = "\x1b[32m"
	cyan    = "\x1b[36m"
	magenta = "\x1b[35m"
	plain   = "\x1b[0m"
)

func (p *Printer) write(to io.Writer, text, color string) {
	if p.err != nil {
		return
	}
	if p.color && color != "" {
		text = color + text + plain
	}
	_, p.err = io.WriteString(to, text)
}

// Line prints a line for a person.
func (p *Printer) Line(text string) error {
	p.end()
	p.write(p.info, text+"\n", "")
	return p.err
}

// end ends the line of text that is open, if a person sees it: elsewhere the text is what the model has said, and no
// more.
func (p *Printer) end() {
	if p.open && p.screen {
		p.write(p.out, "\n", "")
	}
	p.open = false
}

// Close ends the line that is open, and returns the first error of a write.
func (p *Printer) Close() error {
	p.end()
	return p.err
}

// Print prints an event, or nothing: an end, a final text that was printed in pieces, a call that was shown before.
func (p *Printer) Print(event *client.Event) error {
	switch e := event.Data.(type) {
	case *client.OutputChunk:
		if text := terminal.Clean(e.Content); text != "" && !e.IsThought {
			p.write(p.out, text, green)
			p.open = !strings.HasSuffix(text, "\n")
		}
	case *client.ToolCall:
		p.once("→", p.called, e.ID, call(e.Name, e.Input))
	case *client.ToolCallAnswered:
		if e.Error != "" {
			p.once("←", p.told, e.ID, terminal.Line(e.Name, maxValue)+": error: "+terminal.Line(e.Error, 2*maxValue))
		} else {
			p.once("←", p.told, e.ID, call(e.Name, []byte(e.Output)))
		}
	case *client.MessageRetracted:
		return p.Line("(what was said last is void)")
	case *client.GoalEvent:
		if text := terminal.ChildLine(e); text != "" {
			return p.Line(text)
		}
	}
	return p.err
}

// call is a call or a result.
func call(name string, value []byte) string {
	return terminal.Line(name, maxValue) + "(" + pairs(value) + ")"
}

// once prints the line of a call or a result, unless it was.
func (p *Printer) once(arrow string, shown map[string]bool, id, text string) {
	if shown[id] {
		return
	}
	shown[id] = true
	p.end()
	p.write(p.info, arrow+" "+text, cyan)
	p.write(p.info, "\n", "")
}

// pairs are the members of a JSON object, or any other text itself.
func pairs(value []byte) string {
	var object map[string]json.RawMessage
	if json.Unmarshal(value, &object) != nil {
		return terminal.Line(string(value), maxValue)
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(object)) {
		out = append(out, terminal.Line(key, maxValue)+"="+terminal.Line(string(object[key]), maxValue))
	}
	return strings.Join(out, ", ")
}
