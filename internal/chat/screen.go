package chat

import (
	"io"
	"strings"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/console"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

const (
	// maxHeld is how many events wait while a person is asked.
	maxHeld = 4096
	// maxText is how much of what was said in a turn the transcript has, in bytes.
	maxText = 1 << 20
)

// screen shows a turn. It is a cli.Screen.
type screen struct {
	printer *console.Printer
	text    strings.Builder // what was said
	holding bool
	held    []*agentdv1.RunResponse
}

func newScreen(out, info io.Writer, colors bool) *screen {
	return &screen{printer: console.New(out, info, console.WithColor(colors))}
}

// Event shows an event. What is too much to be kept behind a question is shown below it.
func (s *screen) Event(event *agentdv1.RunResponse) error {
	if !s.holding {
		return s.show(event)
	}
	if s.held = append(s.held, event); len(s.held) <= maxHeld {
		return nil
	}
	return s.showHeld()
}

func (s *screen) show(event *agentdv1.RunResponse) error {
	if c := event.GetOutputChunk(); c != nil && !c.GetIsThought() && s.text.Len()+len(c.GetContent()) <= maxText {
		s.text.WriteString(c.GetContent())
	}
	return s.printer.Print(client.EventOf(event))
}

func (s *screen) showHeld() (err error) {
	for _, event := range s.held {
		err = s.show(event)
	}
	s.held = nil
	return err
}

// Hold keeps events while a person is asked.
func (s *screen) Hold(hold bool) error {
	if s.holding = hold; hold {
		return s.printer.Close()
	}
	return s.showHeld()
}
