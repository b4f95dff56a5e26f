package adkbridge

import (
	"context"
	"errors"

	adksession "google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/session/record"
)

// An observer follows the run of a turn. The run announces each step before it takes
// it; it has no observer unless it is verified (see Verify and ModelCalls).
//
// The goroutine that takes a step calls the method, so agents below a parallel one
// call it at the same time. An error ends the run.
type observer interface {
	// modelCall announces a model call, before the instruction is filled in and before
	// the model is asked for anything.
	modelCall(ctx context.Context, c *callStep) error
	// response announces a response that the log holds, and what classify finds in it.
	// The observer does not change the response.
	response(m *agentModel, a *response, calls sorted) error
	// event announces an event that the engine appends. l is the event that the log
	// holds in its place; it is nil if the run is to append the event. The observer
	// changes neither. With errSkip the run leaves the event out and continues.
	event(l *loggedEvent, ev *adksession.Event, m *meta) error
	// agentChanged announces that an agent starts or ends. It is called with the
	// tracker's mu held.
	agentChanged(c record.AgentChange)
}

// errSkip is what an observer returns for an event that the run is to leave out.
var errSkip = errors.New("the run leaves this event out")

// callStep is a model call that a run has come to.
type callStep struct {
	m           *agentModel
	branch, key string
	config      *genai.GenerateContentConfig // the engine's, of this call alone; not to be changed
	logged      bool                         // the log holds the response
}
