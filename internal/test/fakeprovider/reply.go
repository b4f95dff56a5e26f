package fakeprovider

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"

	"github.com/apzuk3/agentd/internal/test/providertest"
)

// Reply is what a call is answered. The zero value is an answer that says nothing.
type Reply struct {
	// Thoughts and Text are what the model thinks and says; each piece is an event.
	Thoughts, Text []string
	// Calls are the tool calls of the answer.
	Calls []providertest.ToolCall
	// Usage is what the provider reports.
	Usage providertest.Usage
	// Model is the model that the provider says it served; "" is "fake".
	Model string

	// Events are sent in place of the above, if there are any: pieces of an event
	// stream, as they are.
	Events []string

	// Handler, if it is not nil, answers the call. The other fields are not used.
	Handler http.Handler

	// Status, if it is not 0, refuses the call with Body, or with an error in the
	// wire's form that holds Message.
	Status        int
	Body, Message string
	// Header is added to the answer's.
	Header http.Header

	// Before, if it is not nil, is called before each event, with the number of those
	// that were sent. An error ends the answer there.
	Before func(ctx context.Context, sent int) error
	// CutAfter, if it is not nil, ends the body after so many bytes, as if it were
	// complete.
	CutAfter *int
	// Drop closes the connection where CutAfter says, or before the headers.
	Drop bool
	// Reset has the peer get a reset where the connection is dropped.
	Reset bool
	// Done, if it is not nil, is called at the end, with nil when all of the answer was
	// sent.
	Done func(err error)
}

var (
	errDropped = errors.New("the connection is dropped, as the script says")
	errCut     = errors.New("the answer is cut off, as the script says")
)

func (reply *Reply) send(w http.ResponseWriter, r *http.Request, wire providertest.Wire) error {
	if reply.Drop && reply.CutAfter == nil {
		return errDropped
	}
	maps.Copy(w.Header(), reply.Header)
	if reply.Status != 0 {
		return reply.refuse(w, wire)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	left := -1
	if reply.CutAfter != nil {
		left = *reply.CutAfter
	}
	flush := http.NewResponseController(w).Flush
	for i, event := range reply.events(wire) {
		if reply.Before != nil {
			if err := reply.Before(r.Context(), i); err != nil {
				return err
			}
		}
		cut := left >= 0 && left < len(event)
		if cut {
			event = event[:left]
		}
		if _, err := io.WriteString(w, event); err != nil {
			return err
		}
		if err := flush(); err != nil {
			return err
		}
		switch {
		case cut && reply.Drop:
			return errDropped
		case cut:
			return errCut
		case left >= 0:
			left -= len(event)
		}
	}
	return nil
}

func (reply *Reply) refuse(w http.ResponseWriter, wire providertest.Wire) error {
	body := []byte(reply.Body)
	if reply.Body == "" {
		body = providertest.ErrorBody(wire, reply.Status, "fake_error", reply.Message)
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(reply.Status)
	_, err := w.Write(body)
	return err
}

// events are the events of the answer, on a wire.
func (reply *Reply) events(wire providertest.Wire) []string {
	if len(reply.Events) > 0 {
		return reply.Events
	}
	events, _ := Render(wire, *reply)
	return events
}

// Render returns the events of a reply as a wire's provider sends them, and how many
// of their bytes come before the event that says why the model stopped: an answer
// that is cut off there is not complete.
func Render(wire providertest.Wire, reply Reply) (events []string, essential int) {
	if reply.Model == "" {
		reply.Model = "fake"
	}
	var said []string
	var end []string
	switch wire {
	case providertest.Anthropic:
		said, end = anthropicEvents(&reply)
	case providertest.Gemini:
		said, end = geminiEvents(&reply)
	case providertest.OpenAIResponses:
		said, end = responsesEvents(&reply)
	default:
		said, end = chatEvents(&reply)
	}
	for _, event := range said {
		essential += len(event)
	}
	return append(said, end...), essential
}
