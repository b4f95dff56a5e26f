package mcpserve

import (
	"context"
	"errors"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/permit"
	"github.com/apzuk3/agentd/client/terminal"
)

// maxQuestion bounds what a question shows, in characters.
const maxQuestion = 4000

// errMute says that the host has no way to ask its person.
var errMute = errors.New("the MCP host cannot ask a person: it has no elicitation")

// AskApproval is that of permit.Prompter: it asks the person of the host whose call runs the tool.
func (s *Server) AskApproval(ctx context.Context, r permit.PromptRequest) (permit.Decision, error) {
	c := callOf(ctx)
	if c == nil || !c.asks() {
		return permit.Deny, permit.ErrNoPrompter
	}
	does := map[string]string{"r": "read", "w": "write", "x": "run", "n": "reach"}[r.Access]
	text := fmt.Sprintf("%s wants to %s: %s", r.ToolName, does, r.Detail)
	if r.Source != "" {
		text = "[" + r.Source + "] " + text
	}
	values := []string{"deny", "once", "session", "session_tool"}
	titles := []string{"no", "yes, once", "yes, this for the session", "yes, all of this tool for the session"}
	if r.Verb != "" {
		values, titles = append(values, "session_verb"), append(titles, "yes, each "+r.Verb+" for the session")
	}
	if r.PersistKey != "" {
		values, titles = append(values, "always"), append(titles, "yes, this always")
	}
	said, err := c.ask(ctx, text, choice(values, titles))
	if err != nil {
		return permit.Deny, err
	}
	key, _ := said[decision].(string)
	return decisions[key], nil
}

// decision is the field of a choice; decisions are what the gate is told.
const decision = "decision"

var decisions = map[string]permit.Decision{
	"once": permit.Once, "session": permit.Session, "session_tool": permit.SessionTool,
	"session_verb": permit.SessionVerb, "always": permit.Always,
}

// Prompt is that of client.Prompter: it asks the person of the host what the turn asks.
func (c *call) Prompt(ctx context.Context, in *client.Interaction) (*client.Resolution, error) {
	if !c.asks() {
		return client.Deny(errMute.Error()), nil
	}
	if in.Kind == client.InteractionApproval {
		text := fmt.Sprintf("%s wants to call %s with %s", name(in.AgentPath), in.ToolName, in.ToolInput)
		if in.N > 0 && in.Question != "" { // of a tool that runs
			text = in.ToolName + " asks: " + in.Question
		}
		said, err := c.ask(ctx, text, choice([]string{"deny", "approve"}, []string{"no", "yes"}))
		switch {
		case err != nil:
			return nil, err
		case said[decision] == "approve":
			return client.Approve(), nil
		}
		return client.Deny("the person at the MCP host has said no"), nil
	}
	text := in.Question
	if len(in.Choices) > 0 {
		text += " (" + strings.Join(in.Choices, " | ") + ")"
	}
	if in.Refused != nil {
		text += "\nThe answer before was refused: " + in.Refused.Message
	}
	said, err := c.ask(ctx, text, map[string]any{
		"type": "object", "required": []string{"answer"},
		"properties": map[string]any{"answer": map[string]any{"type": "string", "title": "Your answer"}},
	})
	if err != nil {
		return nil, err
	}
	if answer, ok := said["answer"].(string); ok {
		return client.Answer(answer), nil
	}
	return client.Deny("the person at the MCP host has given no answer"), nil
}

// asks reports whether the host can ask a person.
func (c *call) asks() bool {
	p := c.host.InitializeParams()
	return p != nil && p.Capabilities != nil && p.Capabilities.Elicitation != nil &&
		(p.Capabilities.Elicitation.Form != nil || p.Capabilities.Elicitation.URL == nil)
}

// ask has the host ask its person; without an answer it returns nil. It ends with ctx.
func (c *call) ask(ctx context.Context, text string, schema any) (map[string]any, error) {
	about, stop := context.WithCancelCause(c.ctx)
	defer stop(nil)
	unwatch := context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })
	defer unwatch()
	said, err := c.host.Elicit(about, &sdk.ElicitParams{
		Message: terminal.Line(text, maxQuestion), RequestedSchema: schema,
	})
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("the MCP host has not asked its person: %w", err)
	case said.Action != "accept":
		return nil, nil //nolint:nilnil // no answer, which is no error
	}
	return said.Content, nil
}

// choice is a schema whose one field is one of some values.
func choice(values, titles []string) map[string]any {
	return map[string]any{
		"type": "object", "required": []string{decision},
		"properties": map[string]any{decision: map[string]any{
			"type": "string", "title": "May it?", "enum": values, "enumNames": titles,
		}},
	}
}
