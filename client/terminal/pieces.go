package terminal

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/client"
)

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

// retract drops text of unfinished messages: of the one that is named, or of all.
// What has been shown cannot be removed; the terminal prints a note.
func (s *Printer) retract(r *client.MessageRetracted) {
	void := func(p *piece) bool {
		return !p.done && (r.MessageID == "" || p.message == r.MessageID)
	}
	s.others = slices.DeleteFunc(s.others, void)
	if s.speaking != nil && void(s.speaking) {
		s.sayf("↻ the model is asked again; its text starts over")
		s.named = ""
		s.release()
	}
}

// chunk shows a piece of text, or has it wait while another agent speaks.
func (s *Printer) chunk(p *piece) {
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
func (s *Printer) show(p *piece) {
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
func (s *Printer) finished(path []string) {
	for _, o := range s.others {
		o.done = o.done || slices.Equal(o.path, path)
	}
	if s.speaking != nil && slices.Equal(s.speaking.path, path) {
		s.release()
	}
}

// release has those speak who wait, in the order in which they began. The last one
// continues speaking if its message is not finished.
func (s *Printer) release() {
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
func (s *Printer) sayf(format string, args ...any) {
	s.newline()
	s.write(s.style("2", Clean(fmt.Sprintf(format, args...))) + "\n")
}

func (s *Printer) newline() {
	if s.open {
		s.write("\n")
		s.open = false
	}
}

// style wraps a text that is clean.
func (s *Printer) style(code, text string) string {
	if !s.Colors {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *Printer) write(text string) {
	if s.err == nil {
		_, s.err = io.WriteString(s.Out, text)
	}
}
