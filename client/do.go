package client

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// maxResultBytes bounds the text that [Client.Do] collects.
const maxResultBytes = 64 << 20

// Result is a whole turn.
type Result struct {
	// SessionID names the session; see [WithSessionID].
	SessionID string
	// Text is what all agents said, one after the other in the order in which
	// they first spoke, with an empty line between them. Of a tree with one
	// agent it is exactly the model's text.
	Text string
	// Thoughts is the same of their thinking.
	Thoughts string
	// Agents holds the texts by agent, in the order in which they first spoke.
	Agents []AgentText
	// State is the session's state as far as the server told of it; numbers are
	// float64.
	State map[string]any
	// Usage is what the turn used; nil if the server did not come to say it.
	Usage *agentdv1.UsageSummary
	// Completed is true when the agent tree finished naturally.
	Completed bool
	// Reason is why the turn ended, when it did not end by itself.
	Reason string
}

// AgentText is what one agent said in a turn.
type AgentText struct {
	// Path runs from the root of the tree to the agent.
	Path []string
	// Text is the model's text.
	Text string
	// Thoughts is the model's thinking.
	Thoughts string
}

// Do is [Client.Run] for callers who want the whole turn at once. The result is
// never nil: with an error it holds what came before it. At most 64 MiB of text
// are collected; a turn that says more is cancelled with LIMIT_EXCEEDED.
func (c *Client) Do(ctx context.Context, agent *agentdv1.Agent, prompt string, opts ...RunOption) (*Result, error) {
	col := collector{result: &Result{State: make(map[string]any)}}
	for event, err := range c.Run(ctx, agent, prompt, opts...) {
		if err == nil {
			err = col.add(event)
		}
		if err != nil {
			return col.finish(err), err
		}
	}
	return col.finish(nil), nil
}

// collector puts a Result together.
type collector struct {
	result *Result
	agents []*agentTexts // in the order in which they first spoke
	bytes  int
}

type agentTexts struct {
	path           []string
	text, thoughts strings.Builder
}

func (c *collector) add(event *Event) error {
	switch {
	case event.Started != nil:
		c.result.SessionID = event.Started.SessionID
	case event.OutputChunk != nil:
		return c.addChunk(event.OutputChunk)
	case event.StateUpdate != nil:
		maps.Copy(c.result.State, event.StateUpdate.Delta)
	case event.End != nil:
		c.result.Completed = event.End.Completed
		c.result.Reason = event.End.Reason
		c.result.Usage = event.End.UsageSummary
	}
	return nil
}

func (c *collector) addChunk(chunk *OutputChunk) error {
	c.bytes += len(chunk.Content)
	if c.bytes > maxResultBytes {
		err := errorf(ErrLimitExceeded, "the turn said more than %d bytes, which is what client.Do collects; use client.Run", maxResultBytes)
		err.SessionID = c.result.SessionID
		return err
	}
	i := slices.IndexFunc(c.agents, func(a *agentTexts) bool { return slices.Equal(a.path, chunk.AgentPath) })
	if i < 0 {
		i = len(c.agents)
		c.agents = append(c.agents, &agentTexts{path: chunk.AgentPath})
	}
	if chunk.IsThought {
		c.agents[i].thoughts.WriteString(chunk.Content)
	} else {
		c.agents[i].text.WriteString(chunk.Content)
	}
	return nil
}

func (c *collector) finish(err error) *Result {
	var texts, thoughts []string
	for _, a := range c.agents {
		agent := AgentText{Path: a.path, Text: a.text.String(), Thoughts: a.thoughts.String()}
		c.result.Agents = append(c.result.Agents, agent)
		if agent.Text != "" {
			texts = append(texts, agent.Text)
		}
		if agent.Thoughts != "" {
			thoughts = append(thoughts, agent.Thoughts)
		}
	}
	c.result.Text = strings.Join(texts, "\n\n")
	c.result.Thoughts = strings.Join(thoughts, "\n\n")
	if failure, ok := errors.AsType[*Error](err); ok {
		c.result.Usage = failure.Usage
		if failure.SessionID != "" {
			c.result.SessionID = failure.SessionID
		}
	}
	return c.result
}
