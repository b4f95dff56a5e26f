package client

import (
	"errors"
	"sync"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Control ends or cancels the run to which [WithControl] gave it, from any
// goroutine. The zero value is ready for use; it serves one run at a time. What
// it asks for outlives a lost connection: it is asked again on the next one. With a
// run that observes (see [Observe]) each method returns FAILED_PRECONDITION.
type Control struct {
	mu  sync.Mutex // protects run
	run *run       // nil: none is running
}

// End asks the server to end the turn. [Event].End then echoes the reason, of
// at most 4,096 bytes, with Completed false.
func (c *Control) End(reason string) error {
	msg := &agentdv1.RunRequest_EndRequest{}
	if reason != "" {
		msg.Reason = &reason
	}
	return c.send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_End{End: msg}}, true)
}

// Cancel asks the server to stop the turn at once. [Event].End then has
// Completed false.
func (c *Control) Cancel() error {
	return c.send(cancelRequest(nil), true)
}

// CancelTool cancels one tool call, by the id of its [ToolCall]. The model sees
// a canceled tool and the turn continues. It waits while the run sends more than
// the server takes; a request that is lost with its connection is not repeated.
func (c *Control) CancelTool(id string) error {
	if id == "" {
		return errors.New("client.Control.CancelTool needs the id of a tool call")
	}
	return c.send(cancelRequest(&id), false)
}

func cancelRequest(id *string) *agentdv1.RunRequest {
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Cancel{
		Cancel: &agentdv1.RunRequest_CancelRequest{ToolCallId: id},
	}}
}

func (c *Control) send(msg *agentdv1.RunRequest, ends bool) error {
	c.mu.Lock()
	r := c.run
	c.mu.Unlock()
	if r == nil {
		return errors.New("client.Control: there is no run to control")
	}
	if r.rc.observe {
		return errorf(ErrPrecondition,
			"client.Control: a run that observes only watches; attach without client.Observe to change the turn")
	}
	if ends {
		return r.ask(msg)
	}
	return r.enqueue(msg)
}

// attach gives r to the control; a nil control takes it silently.
func (c *Control) attach(r *run) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.run = r
}

func (c *Control) detach(r *run) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run == r {
		c.run = nil
	}
}
