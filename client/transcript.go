package client

import (
	"slices"
	"strings"
)

// maxTranscriptBytes bounds what a [Transcript] holds, and so what [Client.Do] collects.
const maxTranscriptBytes = 64 << 20

// Message is what an agent said in one response of one model call.
type Message struct {
	// ID names the message, as in [OutputChunk]; empty for all text of an agent that is of
	// no message.
	ID string
	// AgentPath runs from the root of the tree to the agent.
	AgentPath []string
	// Text is the model's text, and Thoughts its thinking, so far.
	Text, Thoughts string
	// Completed is true once nothing of it is retracted any more; see [MessageCompleted].
	Completed bool
}

// Transcript parts what agents say into messages, and drops what is retracted. The zero
// value is empty and ready for use, for the events of one turn or of all turns of a
// session in order. It must not be used concurrently.
type Transcript struct {
	messages []*draft      // in the order in which they began
	agents   []*agentTexts // in the order in which they first spoke
	bytes    int           // of all texts
}

// agentTexts is what one agent said.
type agentTexts struct {
	path     []string
	messages []*draft // in the order in which they began
	byID     map[string]*draft
	open     *draft // the one that is not finished; nil: all are
}

// draft is one message, or all text that is of none.
//
// A message is finished when the server has moved on: it said so, another message of
// the same agent has begun, its model call was over, the agent's last chunk or a call
// of it came, the state changed, or a chunk said when it happened, as only text that is
// complete does. Of agents that speak at the same time one may have changed the state
// while the other was speaking; so a retract also has each message, finished or
// not, start over if it is ever said again.
type draft struct {
	id             string
	path           []string
	text, thoughts strings.Builder
	completed      bool
	restarts       bool // the next chunk replaces what there is
}

// Add takes up the next event. More than 64 MiB of text are refused with
// LIMIT_EXCEEDED.
func (t *Transcript) Add(event *Event) error {
	switch d := event.Data.(type) {
	case *OutputChunk:
		return t.addChunk(d, !event.Time.IsZero())
	case *MessageCompleted:
		a := t.agent(d.AgentPath)
		if m := a.byID[d.MessageID]; m != nil {
			m.completed = true
			if a.open == m {
				a.open = nil
			}
		}
	case *MessageRetracted:
		t.retract(d.MessageID)
	case *StateUpdate:
		for _, a := range t.agents {
			a.open = nil
		}
	case *ToolCall:
		t.finish(d.AgentPath)
	case *ToolCallAnnounced:
		t.finish(d.AgentPath)
	case *ModelCallEnded:
		t.finish(d.AgentPath)
	}
	return nil
}

// Messages returns what was said, message by message in the order in which they began.
func (t *Transcript) Messages() []Message {
	var out []Message
	for _, m := range t.messages {
		if m.text.Len()+m.thoughts.Len() > 0 {
			out = append(out, m.message())
		}
	}
	return out
}

// Text returns what all agents said, one after the other in the order in which they
// first spoke, with an empty line between them. Of a tree with one agent it is exactly
// the model's text.
func (t *Transcript) Text() string { return t.join((*draft).said) }

// Thoughts is [Transcript.Text] of what models thought.
func (t *Transcript) Thoughts() string { return t.join((*draft).thought) }

// Agents returns what was said by agent, in the order in which they first spoke.
func (t *Transcript) Agents() []AgentText {
	var out []AgentText
	for _, a := range t.agents {
		out = append(out, AgentText{Path: a.path, Text: a.join((*draft).said), Thoughts: a.join((*draft).thought)})
	}
	return out
}

func (m *draft) said() string    { return m.text.String() }
func (m *draft) thought() string { return m.thoughts.String() }

func (m *draft) message() Message {
	return Message{
		ID: m.id, AgentPath: slices.Clone(m.path), Text: m.said(), Thoughts: m.thought(), Completed: m.completed,
	}
}

func (a *agentTexts) join(what func(*draft) string) string {
	var out strings.Builder
	for _, m := range a.messages {
		out.WriteString(what(m))
	}
	return out.String()
}

func (t *Transcript) join(what func(*draft) string) string {
	var out []string
	for _, a := range t.agents {
		if text := a.join(what); text != "" {
			out = append(out, text)
		}
	}
	return strings.Join(out, "\n\n")
}

// addChunk adds a piece of text; whole says that it ends its message.
func (t *Transcript) addChunk(chunk *OutputChunk, whole bool) error {
	a := t.agent(chunk.AgentPath)
	if chunk.Content != "" {
		m := t.message(a, chunk.MessageID)
		if m.restarts {
			t.drop(m)
		}
		if t.bytes+len(chunk.Content) > maxTranscriptBytes {
			return errorf(ErrLimitExceeded, "the turn said more than %d bytes, "+
				"which is what client.Do, client.Collect and a client.Transcript hold; take the events one by one",
				maxTranscriptBytes)
		}
		a.open = m
		if whole {
			a.open = nil
		}
		t.bytes += len(chunk.Content)
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
func (t *Transcript) agent(path []string) *agentTexts {
	i := slices.IndexFunc(t.agents, func(a *agentTexts) bool { return slices.Equal(a.path, path) })
	if i < 0 {
		i = len(t.agents)
		t.agents = append(t.agents, &agentTexts{path: slices.Clone(path), byID: make(map[string]*draft)})
	}
	return t.agents[i]
}

// message returns a message of an agent, a new one if need be.
func (t *Transcript) message(a *agentTexts, id string) *draft {
	m := a.byID[id]
	if m == nil {
		m = &draft{id: id, path: a.path}
		a.byID[id] = m
		a.messages = append(a.messages, m)
		t.messages = append(t.messages, m)
	}
	return m
}

// finish says that an agent has called a tool, or its model call is over, which
// ends its message.
func (t *Transcript) finish(path []string) {
	for _, a := range t.agents {
		if slices.Equal(a.path, path) {
			a.open = nil
		}
	}
}

// retract drops a message, or with an empty id those that are not finished.
// Text that is of no message stays.
func (t *Transcript) retract(id string) {
	for _, a := range t.agents {
		for _, m := range a.messages {
			switch {
			case m.id == "":
			case m.id == id, id == "" && m == a.open:
				t.drop(m)
			case id == "" && !m.completed:
				m.restarts = true
			}
		}
	}
}

// drop empties a message; what it says next is all it says.
func (t *Transcript) drop(m *draft) {
	t.bytes -= m.text.Len() + m.thoughts.Len()
	m.text.Reset()
	m.thoughts.Reset()
	m.restarts, m.completed = false, false
}
