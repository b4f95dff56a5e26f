// Package peer is the client of each server that is measured, and the judge of what they hear. A client costs as
// little as it can; what it takes is not counted. It knows neither workloads nor processes.
package peer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/apzuk3/agentd/bench/internal/script"
)

// Server is a server under load.
type Server interface {
	// Begin begins a conversation.
	Begin() Conversation
}

// Conversation is a session of one user; its turns run one after another.
type Conversation interface {
	// Turn runs one turn to its end.
	Turn(ctx context.Context, t Turn) (Heard, error)
}

// Turn is a script and what the client does meanwhile.
type Turn struct {
	script.Script
	// Heartbeat is how often the client says that it lives, if it can.
	Heartbeat time.Duration
	// Waiting is called when all tool calls of a round have been asked for, in place of answering them, and may be
	// called by several goroutines. On servers that run tools themselves it is called when the calls are heard of.
	Waiting func()
	// Answers is how many calls are answered nevertheless before Waiting is called.
	Answers int
	// Cancel has the client cancel the turn at the first piece of text. Only agentd can.
	Cancel bool
}

// Heard is what a client has heard of a turn.
type Heard struct {
	// Text is all of it, piece after piece, and Whole what the server says it is, if it does.
	Text  string
	Whole *string
	// came says when which part of the text came.
	came []arrival
	// ToolCalls and ModelCalls are how many there were, as far as the server says.
	ToolCalls, ModelCalls int
	Usage                 script.Usage
	// Session is the session of the turn, on agentd.
	Session string
	// Canceled and Ended are when the client canceled the turn and when it heard the end, and Aborted how many model
	// calls agentd has aborted.
	Canceled, Ended time.Time
	Aborted         int
}

// arrival is when the text had so many bytes.
type arrival struct {
	bytes int
	at    time.Time
}

// say adds what a message said.
func (h *Heard) say(text string) {
	h.Text += text
	h.came = append(h.came, arrival{len(h.Text), time.Now()})
}

// Check returns what is wrong with what was heard, and how long each piece was under way if they have their times.
func (t Turn) Check(h Heard) ([]time.Duration, error) {
	text := h.Text
	var late []time.Duration
	var errs []error
	if t.Stamped {
		plain, stamps, err := script.Strip(text)
		if err != nil {
			return nil, err
		}
		// A message may have several pieces.
		came, size := h.came, len(text)/max(len(stamps), 1)
		for i, sent := range stamps {
			for came[0].bytes < (i+1)*size {
				came = came[1:]
			}
			late = append(late, came[0].at.Sub(sent))
		}
		text = plain
	}
	plain := t.Script
	plain.Stamped = false
	if want := plain.Text(); text != want {
		errs = append(errs, fmt.Errorf("the text is wrong: %s", difference(text, want)))
	}
	if h.Whole != nil && *h.Whole != h.Text {
		errs = append(errs, fmt.Errorf("the whole text is not its pieces: %s", difference(*h.Whole, h.Text)))
	}
	if got, want := h.ToolCalls, t.ToolCalls(); got != want {
		errs = append(errs, fmt.Errorf("there were %d tool calls, not %d", got, want))
	}
	if got, want := h.ModelCalls, t.ModelCalls(); got != want {
		errs = append(errs, fmt.Errorf("there were %d model calls, not %d", got, want))
	}
	if got, want := h.Usage, t.TurnUsage(); got != want {
		errs = append(errs, fmt.Errorf("usage is %+v, not %+v", got, want))
	}
	return late, errors.Join(errs...)
}

// difference says where two texts begin to differ.
func difference(got, want string) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	return fmt.Sprintf("%d bytes, not %d; from byte %d on %.30q, not %.30q", len(got), len(want), i, got[i:], want[i:])
}

// http1 is a transport with as many connections as there are requests at a time.
func http1() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1 << 16, DisableCompression: true}}
}
