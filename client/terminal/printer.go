package terminal

import (
	"cmp"
	"fmt"
	"io"
	"iter"

	"github.com/apzuk3/agentd/client"
)

const (
	// maxWaiting is how many bytes wait of agents that speak at the same time as
	// another one.
	maxWaiting = 64 << 10
	// maxDetail is how many characters of arguments or an error are shown.
	maxDetail = 160
	// maxSources is how many sources of a response are listed.
	maxSources = 50
	// maxURI is how many characters of a URI are shown: a shorter one is none.
	maxURI = 4096
)

// Printer shows a turn to people: what agents say as it comes, everything else as
// one line. Agents that speak at the same time are shown one after the other. What
// models and tools have written cannot drive the terminal. It must not be used
// concurrently.
type Printer struct {
	// Out is a terminal, or a file.
	Out io.Writer
	// Colors allows bold and dim.
	Colors bool
	// Thoughts shows what models think, too.
	Thoughts bool
	// HideQuestions leaves out what people are asked, for programs whose [Prompter]
	// shows it on the same terminal.
	HideQuestions bool

	err      error
	speaking *piece   // the last one that was shown of an agent that continues; nil for none
	named    string   // path of the agent that was named last
	open     bool     // the last line has no end
	dim      bool     // what is shown is a thought
	others   []*piece // text of agents that wait
}

// PrintAll prints events, such as those of client.Run, and returns the error with which
// they end, or that of the writer.
func (s *Printer) PrintAll(events iter.Seq2[*client.Event, error]) error {
	for event, err := range events {
		if err == nil {
			err = s.Print(event)
		}
		if err != nil {
			_ = s.Break() // the error above counts
			return err
		}
	}
	return s.Break()
}

// Print shows one event. It returns the first error of the writer, also later.
func (s *Printer) Print(event *client.Event) error {
	switch d := event.Data.(type) {
	case *client.OutputChunk:
		s.chunk(&piece{
			path: d.AgentPath, message: d.MessageID, content: Clean(d.Content), thought: d.IsThought, last: d.Last,
		})
	case *client.MessageRetracted:
		s.retract(d)
	case *client.ModelCallEnded:
		s.finished(d.AgentPath)
		if s.speaking == nil {
			s.newline()
		}
	case *client.ProviderToolsUsed:
		s.chunk(&piece{path: d.AgentPath, message: d.MessageID, content: provided(d), note: true, last: true})
	case *client.StateUpdate:
		s.release()
	case *client.Error:
		_ = s.Break()
		s.sayf("✗ %s", Line(d.Error(), 2*maxDetail))
	case *client.End:
		_ = s.Break()
		if !d.Completed {
			s.sayf("■ stopped: %s", cmp.Or(Line(d.Reason, maxDetail), "canceled"))
		}
	default:
		s.tool(event)
	}
	return s.err
}

// tool shows what is about tools and people.
func (s *Printer) tool(event *client.Event) {
	switch d := event.Data.(type) {
	case *client.ToolCall:
		s.finished(d.AgentPath)
		s.sayf("→ %s %s", d.Name, Line(string(d.Input), maxDetail))
	case *client.ToolCallAnnounced:
		s.finished(d.AgentPath)
		s.sayf("→ %s %s (not run here)", d.Name, Line(string(d.Input), maxDetail))
	case *client.ToolCallUnserved:
		s.sayf("… no attached client has the tool %s", d.Name)
	case *client.ToolCallAnswered:
		if d.Error != "" {
			s.sayf("✗ %s: %s", d.Name, Line(d.Error, maxDetail))
		}
		s.warn(d.Warnings)
	case *client.ToolCallCanceled:
		s.sayf("✗ tool call canceled: %s", Line(d.Reason, maxDetail))
	case *client.InteractionRequested:
		s.finished(d.Interaction.AgentPath)
		if !s.HideQuestions {
			s.sayf("? %s %s", speaker(d.Interaction.AgentPath), asked(d.Interaction))
		}
	case *client.InteractionResolved:
		s.sayf("! %s", Outcome(d.Interaction))
	default:
		s.fact(event)
	}
}

// fact shows what is about model calls, prompts and the connection.
func (s *Printer) fact(event *client.Event) {
	switch d := event.Data.(type) {
	case *client.TurnStarted:
		s.warn(d.Warnings)
	case *client.ModelCallRetried:
		s.sayf("↻ %s: the model call failed (%v), trying again in %s", speaker(d.AgentPath), d.Code, rounded(d.Wait))
	case *client.ModelCallFellBack:
		failed, next := Line(d.Model, maxDetail), Line(d.NextModel, maxDetail)
		s.sayf("↻ %s: %s failed (%v), %s is called", speaker(d.AgentPath), failed, d.Code, next)
	case *client.HistoryCompacted:
		s.sayf("… %s: a summary stands for the beginning of the conversation", speaker(d.AgentPath))
	case *client.TurnQueued:
		s.sayf("… waiting for the session's running turn, %d more before", d.Ahead)
	case *client.MessageInjected:
		s.sayf("> %s", Line(d.Prompt+files(d.Parts), maxDetail))
	case *client.GoalEvent:
		if text := ChildLine(d); text != "" {
			s.sayf("%s", text)
		}
	case *client.ConnectionLost:
		s.sayf("↻ the connection is lost; trying to get it back")
	case *client.ConnectionRestored:
		s.sayf("↻ the connection is back")
	case *client.ConnectionAbandoned:
		s.sayf("✗ the connection did not come back in %s", rounded(d.After))
	}
}

// warn shows what of a request did not count.
func (s *Printer) warn(warnings []client.Warning) {
	for _, w := range warnings {
		s.sayf("⚠ %s", Line(w.Message, 2*maxDetail))
	}
}

// Line writes a line of its own.
func (s *Printer) Line(text string) error {
	s.sayf("%s", text)
	return s.err
}

// Break shows text that waits, and ends the line.
func (s *Printer) Break() error {
	s.release()
	s.newline()
	return s.err
}

// Pause ends the line and has the next text name its agent again: the program writes
// something else, such as a question.
func (s *Printer) Pause() error {
	s.newline()
	s.named = ""
	return s.err
}

// ChildLine is a line about a background agent: that it was spawned, what it reports, how it has ended and what it has
// cost; "" for anything else.
func ChildLine(e *client.GoalEvent) string {
	c := e.Child
	switch {
	case c == nil || c.Report == "started":
		return ""
	case e.Kind == client.GoalEventChildSpawned:
		return fmt.Sprintf("↪ %s spawned: %s", c.Name, Line(c.Goal, maxDetail))
	case c.Ended:
		return fmt.Sprintf("↪ %s %s: %s (%d turn(s), $%.4f)", c.Name, c.Report, Line(c.Text, maxDetail), c.Turns,
			c.CostUSD)
	default:
		return fmt.Sprintf("↪ %s %s: %s", c.Name, cmp.Or(c.Report, "alert"), Line(c.Text, maxDetail))
	}
}
