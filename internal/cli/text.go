package cli

import (
	"io"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/terminal"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

const (
	// maxHeld is how many events wait while a person is asked.
	maxHeld = 4096
	// maxDetail is how many characters of arguments or an error are shown.
	maxDetail = 160
)

// Clean makes a text one that a terminal only shows: no control characters but
// line ends and tabs.
func Clean(s string) string { return terminal.Clean(s) }

// line is Clean on one line, cut.
func line(s string, limit int) string { return terminal.Line(s, limit) }

// speaker is the agent at the end of a path.
func speaker(path []string) string {
	if len(path) == 0 {
		return "agent"
	}
	return Clean(path[len(path)-1])
}

// Text shows a turn to people: what agents say as it comes, everything else as
// one line. Agents that speak at the same time are shown one after the other.
type Text struct {
	// Out is a terminal.
	Out io.Writer
	// Colors allows bold and dim.
	Colors bool
	// Thoughts shows what models think, too.
	Thoughts bool
	// Asks leaves out questions: whoever reads this is asked.
	Asks bool

	printer terminal.Printer
	holding bool
	held    []*agentdv1.RunResponse // while a person is asked
}

// Event shows one event. What is too much to be kept behind a question is shown
// below it, in order.
func (s *Text) Event(event *agentdv1.RunResponse) error {
	if !s.holding {
		return s.show(event)
	}
	if s.held = append(s.held, event); len(s.held) <= maxHeld {
		return nil
	}
	_ = s.shows().Line("") // the prompt's line; the printer remembers an error
	_ = s.showHeld()
	return s.printer.Line("? the question above still waits for an answer")
}

func (s *Text) showHeld() (err error) {
	for _, event := range s.held {
		err = s.show(event)
	}
	s.held = nil
	return err
}

// show has the printer show an event, and says itself what it knows more of.
func (s *Text) show(event *agentdv1.RunResponse) error {
	p := s.shows()
	switch r := event.GetResponse().(type) {
	case *agentdv1.RunResponse_Heartbeat:
		return nil
	case *agentdv1.RunResponse_Execute:
		if n := r.Execute.GetGoalTurn(); n > 0 {
			if err := p.Line("— turn " + number(n)); err != nil {
				return err
			}
		}
		return p.Print(client.EventOf(event))
	case *agentdv1.RunResponse_ToolCallUnserved:
		return p.Line("… " + unserved(r.ToolCallUnserved))
	case *agentdv1.RunResponse_ModelCallFellBack:
		f := r.ModelCallFellBack
		return p.Line("↻ " + speaker(f.GetAgentPath()) + ": " + line(fellBack(f), 2*maxDetail))
	case *agentdv1.RunResponse_HistoryCompacted:
		return p.Line("… " + speaker(r.HistoryCompacted.GetAgentPath()) + ": " + compacted(r.HistoryCompacted))
	case *agentdv1.RunResponse_Error, *agentdv1.RunResponse_End:
		return p.Break() // the last line of the turn says it
	default:
		return p.Print(client.EventOf(event))
	}
}

// Hold keeps events, or shows those that were kept.
func (s *Text) Hold(hold bool) error {
	s.holding = hold
	if hold {
		return s.shows().Pause()
	}
	return s.showHeld()
}

// shows is the printer, as the fields say.
func (s *Text) shows() *terminal.Printer {
	s.printer.Out, s.printer.Colors, s.printer.Thoughts, s.printer.HideQuestions = s.Out, s.Colors, s.Thoughts, s.Asks
	return &s.printer
}
