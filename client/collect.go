package client

import (
	"errors"
	"iter"
	"slices"
)

// Collect takes all events, such as those of [Client.Run] or [Client.Attach], and returns
// them as a whole turn; see [Client.Do]. The result is never nil: with an error it holds
// what came before it.
func Collect(events iter.Seq2[*Event, error]) (*Result, error) {
	col := collector{result: &Result{State: make(map[string]any)}}
	for event, err := range events {
		if err == nil {
			err = col.add(event)
		}
		if err != nil {
			return col.finish(err), err
		}
	}
	return col.finish(nil), nil
}

// TextOf yields the text of events, such as those of [Client.Run], piece by piece as it
// comes and without thoughts; last the error that the events end with. Of agents that
// speak at the same time the pieces are mixed, and text that is retracted comes again:
// [MessagesOf] does neither. Leaving the loop leaves that of the events.
func TextOf(events iter.Seq2[*Event, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for event, err := range events {
			switch {
			case err != nil:
				yield("", err)
				return
			case event.OutputChunk == nil, event.OutputChunk.IsThought, event.OutputChunk.Content == "":
			case !yield(event.OutputChunk.Content, nil):
				return
			}
		}
	}
}

// MessagesOf yields the messages of events, such as those of [Client.Run], each once and
// when it is complete; then those that the turn has not completed, and last the error
// that the events end with. Leaving the loop leaves that of the events.
func MessagesOf(events iter.Seq2[*Event, error]) iter.Seq2[*Message, error] {
	return func(yield func(*Message, error) bool) {
		var all Transcript
		give := func(m *draft) bool {
			if m == nil || m.text.Len()+m.thoughts.Len() == 0 {
				return true
			}
			message := m.message()
			all.drop(m)
			return yield(&message, nil)
		}
		rest := func() bool { return !slices.ContainsFunc(all.messages, func(m *draft) bool { return !give(m) }) }
		for event, err := range events {
			if err == nil {
				err = all.Add(event)
			}
			if err != nil {
				if rest() {
					yield(nil, err)
				}
				return
			}
			if d, ok := event.Data.(*MessageCompleted); ok && !give(all.agent(d.AgentPath).byID[d.MessageID]) {
				return
			}
		}
		rest()
	}
}

// collector puts a Result together.
type collector struct {
	result *Result
	said   Transcript
}

func (c *collector) add(event *Event) error {
	if event.SessionID != "" {
		c.result.SessionID = event.SessionID
	}
	switch d := event.Data.(type) {
	case *TurnStarted:
		c.warn(d.Warnings)
	case *ToolCallAnswered:
		c.warn(d.Warnings)
	case *StateUpdate:
		for key, value := range d.Delta {
			if value == nil {
				delete(c.result.State, key)
			} else {
				c.result.State[key] = value
			}
		}
	case *ProviderToolsUsed:
		c.result.ProviderToolsUsed = append(c.result.ProviderToolsUsed, d)
	case *End:
		c.result.Completed, c.result.Reason = d.Completed, d.Reason
		c.result.Usage, c.result.Receipt, c.result.Structured = d.Usage, d.Receipt, d.Structured
	}
	if err := c.said.Add(event); err != nil {
		if failure, ok := errors.AsType[*Error](err); ok {
			failure.SessionID = c.result.SessionID
		}
		return err
	}
	return nil
}

func (c *collector) warn(more []Warning) {
	more = more[:min(len(more), maxWarnings-len(c.result.Warnings))]
	c.result.Warnings = append(c.result.Warnings, more...)
}

func (c *collector) finish(err error) *Result {
	c.result.Agents, c.result.Text, c.result.Thoughts = c.said.Agents(), c.said.Text(), c.said.Thoughts()
	if failure, ok := errors.AsType[*Error](err); ok {
		c.result.Usage = failure.Usage
		if failure.SessionID != "" {
			c.result.SessionID = failure.SessionID
		}
	}
	return c.result
}
