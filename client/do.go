package client

import (
	"context"
	"encoding/json"

	"google.golang.org/protobuf/proto"
)

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
	// State is the session's state as far as the server sent it; see [StateUpdate]
	// for the types of values. Keys that were removed are not in it.
	State map[string]any
	// ProviderToolsUsed is what the models' providers have run, and what messages cite,
	// in order.
	ProviderToolsUsed []*ProviderToolsUsed
	// Warnings are about what the server has left out of the request and of the results
	// of tool calls, in order; the first 256 of them.
	Warnings []Warning
	// Usage is what the turn used; nil if the server did not come to say it. See
	// [End].
	Usage *Usage
	// Completed is true when the agent tree finished naturally.
	Completed bool
	// Reason is why the turn ended, when it did not end by itself.
	Reason string
	// Receipt is what the end has stopped; nil when nobody ended or canceled the
	// turn.
	Receipt *CancelReceipt
	// Structured is as in [End].
	Structured json.RawMessage
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

// Do is [Client.Run] for callers who want the whole turn at once. What the
// server has retracted is not in the result. The result is
// never nil: with an error it holds what came before it. At most 64 MiB of text
// are collected; a turn that says more is canceled with LIMIT_EXCEEDED.
func (c *Client) Do(ctx context.Context, agent *Agent, prompt string, opts ...RunOption) (*Result, error) {
	return Collect(c.Run(ctx, agent, prompt, opts...))
}

// DoAs is [Client.Do] for callers that want the response as a T. An agent that may give
// the last response (the tree itself or agents that it may transfer to; of a [Sequential] the
// last) and has no output schema gets that of T; see [OutputSchemaOf]. The tree itself
// stays as it is. The error says why there is no T; the result is as that of Do.
func DoAs[T any](ctx context.Context, c *Client, agent *Agent, prompt string, opts ...RunOption) (T, *Result, error) {
	if agent != nil {
		schema, err := schemaText[T]()
		if err != nil {
			var none T
			return none, &Result{State: make(map[string]any)}, errorf(ErrInvalidRequest, "client.DoAs: %w", err)
		}
		if err := checkDepth(agent, 1); err != nil {
			var none T
			return none, &Result{State: make(map[string]any)}, err
		}
		agent = proto.CloneOf(agent)
		setSchema(agent, schema)
	}
	result, err := c.Do(ctx, agent, prompt, opts...)
	return decoded[T](result, err)
}

// setSchema gives a schema to the agents that may give the last response and have none.
func setSchema(agent *Agent, schema string) {
	if seq := agent.GetSequential().GetAgents(); len(seq) > 0 {
		setSchema(seq[len(seq)-1], schema)
	}
	llm := agent.GetLlm()
	if llm == nil {
		return
	}
	if llm.OutputSchema == nil {
		llm.OutputSchema = &schema
	}
	for _, sub := range llm.GetSubAgents() {
		setSchema(sub, schema)
	}
}

// decoded is the response of a turn as a T.
func decoded[T any](result *Result, err error) (T, *Result, error) {
	if err != nil {
		var none T
		return none, result, err
	}
	value, err := Structured[T](result.Structured)
	return value, result, err
}
