package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

const (
	// maxHeld is how many events wait while a person is asked, maxWaiting how many
	// bytes of agents that speak at the same time as another one.
	maxHeld    = 4096
	maxWaiting = 64 << 10
	// maxDetail is how many characters of arguments or an error are shown.
	maxDetail = 160
)

// Clean makes a text one that a terminal only shows: no control characters but
// line ends and tabs.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069') {
			return -1
		}
		return r
	}, s)
}

// line is Clean on one line, cut.
func line(s string, limit int) string {
	s = strings.Join(strings.Fields(Clean(s)), " ")
	if r := []rune(s); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return s
}

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

	err      error
	holding  bool
	held     []*agentdv1.RunResponse // while a person is asked
	speaking *piece                  // the last one that was shown of an agent that goes on; nil for none
	named    string                  // path of the agent that was named last
	open     bool                    // the last line has no end
	dim      bool                    // what is shown is a thought
	others   []*piece                // text of agents that wait
}

// piece is text that waits.
type piece struct {
	path    []string
	message string
	content string
	thought bool
	note    bool // content is lines about the message before it
	last    bool // the agent says no more
	done    bool // its message is finished
}

// Event shows one event. What is too much to be kept behind a question is shown
// below it, in order.
func (s *Text) Event(event *agentdv1.RunResponse) error {
	if !s.holding {
		s.event(event)
		return s.err
	}
	if s.held = append(s.held, event); len(s.held) > maxHeld {
		s.open = true // the prompt's line
		s.newline()
		s.showHeld()
		s.sayf("? the question above still waits for an answer")
	}
	return s.err
}

func (s *Text) showHeld() {
	for _, event := range s.held {
		s.event(event)
	}
	s.held = nil
}

// Hold keeps events, or shows those that were kept.
func (s *Text) Hold(hold bool) error {
	if hold {
		s.newline()
	}
	s.holding = hold
	if !hold {
		s.showHeld()
		s.named = ""
	}
	return s.err
}

func (s *Text) event(event *agentdv1.RunResponse) {
	switch {
	case event.GetOutputChunk() != nil:
		c := event.GetOutputChunk()
		s.chunk(&piece{path: c.GetAgentPath(), message: c.GetMessageId(), content: Clean(c.GetContent()), thought: c.GetIsThought(), last: c.GetLast()})
	case event.GetToolCall() != nil:
		c := event.GetToolCall()
		s.finished(c.GetAgentPath())
		s.sayf("→ %s %s", c.GetToolName(), line(c.GetToolInput(), maxDetail))
	case event.GetToolCallAnnounced() != nil:
		c := event.GetToolCallAnnounced()
		s.finished(c.GetAgentPath())
		s.sayf("→ %s %s (not run here)", c.GetToolName(), line(c.GetToolInput(), maxDetail))
	case event.GetToolCallUnserved() != nil:
		s.sayf("… %s", unserved(event.GetToolCallUnserved()))
	case event.GetToolCallAnswered() != nil:
		if r := event.GetToolCallAnswered(); r.GetError() != "" {
			s.sayf("✗ %s: %s", r.GetToolName(), line(r.GetError(), maxDetail))
		}
	case event.GetToolCallCanceled() != nil:
		s.sayf("✗ tool call cancelled: %s", line(event.GetToolCallCanceled().GetReason(), maxDetail))
	case event.GetInteractionRequested() != nil:
		i := event.GetInteractionRequested().GetInteraction()
		s.finished(i.GetAgentPath())
		if s.Asks {
			return
		}
		what := "asks: " + line(i.GetQuestion(), maxDetail)
		if i.GetKind() == agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL {
			what = fmt.Sprintf("asks to call %s %s", i.GetToolName(), line(i.GetToolInput(), maxDetail))
		}
		s.sayf("? %s %s", speaker(i.GetAgentPath()), what)
	case event.GetInteractionResolved() != nil:
		s.sayf("! %s", resolution(event.GetInteractionResolved().GetInteraction()))
	case event.GetMessageRetracted() != nil:
		s.retract(event.GetMessageRetracted())
	case event.GetModelCallRetried() != nil:
		r := event.GetModelCallRetried()
		s.sayf("↻ %s: the model call failed (%s), trying again in %s", speaker(r.GetAgentPath()), codeName(r.GetCode()), duration(r.GetWait().AsDuration()))
	case event.GetModelCallFellBack() != nil:
		f := event.GetModelCallFellBack()
		s.sayf("↻ %s: %s", speaker(f.GetAgentPath()), line(fellBack(f), 2*maxDetail))
	case event.GetHistoryCompacted() != nil:
		c := event.GetHistoryCompacted()
		s.sayf("… %s: %s", speaker(c.GetAgentPath()), compacted(c))
	case event.GetProviderToolsUsed() != nil:
		p := event.GetProviderToolsUsed()
		s.chunk(&piece{path: p.GetAgentPath(), message: p.GetMessageId(), content: provided(p), note: true, last: true})
	case event.GetModelCallEnded() != nil:
		s.finished(event.GetModelCallEnded().GetAgentPath())
		if s.speaking == nil {
			s.newline()
		}
	case event.GetTurnQueued() != nil:
		s.sayf("… waiting for the session's running turn, %d more before", event.GetTurnQueued().GetAhead())
	case event.GetMessageInjected() != nil:
		m := event.GetMessageInjected()
		s.sayf("> %s", line(m.GetContent()+files(m.GetParts()), maxDetail))
	case event.GetError() != nil, event.GetEnd() != nil:
		s.release()
		s.newline()
	case event.GetStateUpdate() != nil:
		s.release()
	}
}

// retract drops text of unfinished messages: of the one that is named, or of all.
// What has been shown cannot be taken back, only told.
func (s *Text) retract(r *agentdv1.MessageRetracted) {
	void := func(p *piece) bool {
		return !p.done && (r.GetMessageId() == "" || p.message == r.GetMessageId())
	}
	s.others = slices.DeleteFunc(s.others, void)
	if s.speaking != nil && void(s.speaking) {
		s.sayf("↻ the model is asked again; its text starts over")
		s.named = ""
		s.release()
	}
}

// chunk shows a piece of text, or has it wait while another agent speaks.
func (s *Text) chunk(p *piece) {
	for _, o := range s.others { // the message before it is finished
		o.done = o.done || slices.Equal(o.path, p.path) && (p.last || o.message != p.message)
	}
	if s.speaking != nil && !slices.Equal(s.speaking.path, p.path) {
		p.done = p.last
		s.others = append(s.others, p)
		size := 0
		for _, o := range s.others {
			size += len(o.content)
		}
		if size > maxWaiting {
			s.release()
		}
		return
	}
	s.show(p)
	s.speaking = p
	if p.last {
		s.release()
	}
}

// show writes a piece.
func (s *Text) show(p *piece) {
	if p.content == "" || p.thought && !s.Thoughts {
		return
	}
	if p.note {
		s.newline()
		s.write(s.style("2", p.content))
		return
	}
	path := strings.Join(p.path, "/")
	content := p.content
	if s.named != path {
		s.newline()
		s.write(s.style("1", speaker(p.path)+":") + " ")
		s.named, s.open = path, false
		content = strings.TrimLeft(content, "\n")
	} else if !s.open || s.dim != p.thought {
		if s.dim != p.thought {
			s.newline()
		}
		content = strings.TrimLeft(content, "\n")
	}
	s.dim = p.thought
	if content == "" {
		return
	}
	s.open = !strings.HasSuffix(content, "\n")
	if p.thought {
		content = s.style("2", content)
	}
	s.write(content)
}

// finished says that an agent has said its message.
func (s *Text) finished(path []string) {
	for _, o := range s.others {
		o.done = o.done || slices.Equal(o.path, path)
	}
	if s.speaking != nil && slices.Equal(s.speaking.path, path) {
		s.release()
	}
}

// release has those speak who wait, in the order in which they began. The last one
// goes on speaking if its message is not finished.
func (s *Text) release() {
	s.speaking = nil
	waiting := s.others
	s.others = nil
	for len(waiting) > 0 {
		path, last := waiting[0].path, waiting[0]
		var rest []*piece
		for _, p := range waiting {
			if slices.Equal(p.path, path) {
				s.show(p)
				last = p
			} else {
				rest = append(rest, p)
			}
		}
		if len(rest) == 0 && !last.done {
			s.speaking = last
		}
		waiting = rest
	}
}

// sayf writes a line of its own.
func (s *Text) sayf(format string, args ...any) {
	s.newline()
	s.write(s.style("2", Clean(fmt.Sprintf(format, args...))) + "\n")
}

func (s *Text) newline() {
	if s.open {
		s.write("\n")
		s.open = false
	}
}

// style wraps a text that is clean.
func (s *Text) style(code, text string) string {
	if !s.Colors {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *Text) write(text string) {
	if s.err == nil {
		_, s.err = io.WriteString(s.Out, text)
	}
}

// resolution says what has become of an interaction.
func resolution(i *agentdv1.Interaction) string {
	what := "the question"
	if i.GetToolName() != "" {
		what = "the call of " + Clean(i.GetToolName())
	}
	switch d := i.GetResolution().GetDecision().(type) {
	case *agentdv1.Resolution_Approve:
		if d.Approve.ToolInput != nil {
			return what + " was approved with other arguments: " + line(d.Approve.GetToolInput(), maxDetail)
		}
		return what + " was approved"
	case *agentdv1.Resolution_Deny:
		if d.Deny.GetReason() != "" {
			return what + " was denied: " + line(d.Deny.GetReason(), maxDetail)
		}
		return what + " was denied"
	case *agentdv1.Resolution_Answer:
		return what + " was answered: " + line(d.Answer, maxDetail)
	}
	return what + " is no longer asked"
}
