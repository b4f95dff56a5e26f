package client

import (
	"slices"
	"strings"
)

// collector puts a Result together. Text is kept by message, because messages
// can be retracted.
type collector struct {
	result *Result
	agents []*agentTexts // in the order in which they first spoke
	bytes  int           // of all texts
}

// agentTexts is what one agent said.
type agentTexts struct {
	path     []string
	messages []*messageText // in the order in which they began
	byID     map[string]*messageText
	open     *messageText // the one that is not finished; nil: all are
}

// messageText is one message, or all text that is of none.
//
// A message is finished when the server has moved on: another message of the
// same agent has begun, its model call was over, the agent's last chunk or a call
// of it came, the state
// changed, or a chunk said when it happened, as only text that is complete
// does. Of agents that speak at the same time one may have changed the state
// while the other was speaking; so a retract also has each message, finished or
// not, start over if it is ever said again.
type messageText struct {
	id             string
	text, thoughts strings.Builder
	restarts       bool // the next chunk replaces what there is
}

func (a *agentTexts) join(thoughts bool) string {
	var out strings.Builder
	for _, m := range a.messages {
		if thoughts {
			out.WriteString(m.thoughts.String())
		} else {
			out.WriteString(m.text.String())
		}
	}
	return out.String()
}

func (c *collector) add(event *Event) error {
	switch {
	case event.Queued != nil:
		c.result.SessionID = event.Queued.SessionID
	case event.Started != nil:
		c.result.SessionID = event.Started.SessionID
	case event.OutputChunk != nil:
		return c.addChunk(event)
	case event.MessageRetracted != nil:
		c.retract(event.MessageRetracted.MessageID)
	case event.StateUpdate != nil:
		for key, value := range event.StateUpdate.Delta {
			if value == nil {
				delete(c.result.State, key)
			} else {
				c.result.State[key] = value
			}
		}
		for _, a := range c.agents {
			a.open = nil
		}
	case event.ToolCall != nil:
		c.called(event.ToolCall.AgentPath)
	case event.ToolCallAnnounced != nil:
		c.called(event.ToolCallAnnounced.AgentPath)
	case event.ModelCallEnded != nil:
		c.called(event.ModelCallEnded.AgentPath)
	case event.ProviderToolsUsed != nil:
		c.result.ProviderToolsUsed = append(c.result.ProviderToolsUsed, event.ProviderToolsUsed)
	case event.End != nil:
		c.result.Completed = event.End.Completed
		c.result.Reason = event.End.Reason
		c.result.Usage = event.End.Usage
		c.result.Receipt = event.End.Receipt
		c.result.Structured = event.End.Structured
	}
	return nil
}

func (c *collector) addChunk(event *Event) error {
	chunk := event.OutputChunk
	a := c.agent(chunk.AgentPath)
	if chunk.Content != "" {
		m := a.message(chunk.MessageID)
		if m.restarts {
			c.drop(m)
		}
		a.open = m
		if !event.Time.IsZero() {
			a.open = nil
		}
		c.bytes += len(chunk.Content)
		if c.bytes > maxResultBytes {
			err := errorf(ErrLimitExceeded, "the turn said more than %d bytes, which is what client.Do collects; use client.Run", maxResultBytes)
			err.SessionID = c.result.SessionID
			return err
		}
		if chunk.IsThought {
			m.thoughts.WriteString(chunk.Content)
		} else {
			m.text.WriteString(chunk.Content)
		}
	}
	if chunk.Last {
		a.open = nil
	}
	return nil
}

// agent returns the texts of an agent.
func (c *collector) agent(path []string) *agentTexts {
	i := slices.IndexFunc(c.agents, func(a *agentTexts) bool { return slices.Equal(a.path, path) })
	if i < 0 {
		i = len(c.agents)
		c.agents = append(c.agents, &agentTexts{path: path, byID: make(map[string]*messageText)})
	}
	return c.agents[i]
}

// message returns a message of the agent, a new one if need be.
func (a *agentTexts) message(id string) *messageText {
	m := a.byID[id]
	if m == nil {
		m = &messageText{id: id}
		a.byID[id] = m
		a.messages = append(a.messages, m)
	}
	return m
}

// called says that an agent has called a tool, or its model call is over, which
// ends its message.
func (c *collector) called(path []string) {
	for _, a := range c.agents {
		if slices.Equal(a.path, path) {
			a.open = nil
		}
	}
}

// retract drops a message, or with an empty id those that are not finished.
// Text that is of no message stays.
func (c *collector) retract(id string) {
	for _, a := range c.agents {
		for _, m := range a.messages {
			switch {
			case m.id == "":
			case m.id == id, id == "" && m == a.open:
				c.drop(m)
			case id == "":
				m.restarts = true
			}
		}
	}
}

// drop empties a message; what it says next is all it says.
func (c *collector) drop(m *messageText) {
	c.bytes -= m.text.Len() + m.thoughts.Len()
	m.text.Reset()
	m.thoughts.Reset()
	m.restarts = false
}
