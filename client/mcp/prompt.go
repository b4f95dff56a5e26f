package mcp

import (
	"context"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/apzuk3/agentd/client"
)

// Prompts returns the prompts that the server has now, for commands that people give, such as /<server>:<prompt>.
// They must not be changed.
func (s *Server) Prompts() []*sdk.Prompt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list.prompts)
}

// Prompt renders a prompt of the server: what to say to an agent, and the files for [client.WithParts].
// A message of the prompt that is not the user's begins with its role.
func (s *Server) Prompt(ctx context.Context, name string, args map[string]string) (string, []client.Part, error) {
	var res *sdk.GetPromptResult
	err := s.request(ctx, true, func(ctx context.Context, c *conn) error {
		ctx, cancel := c.within(ctx, s.b.times.request)
		defer cancel()
		var err error
		res, err = c.session.GetPrompt(ctx, &sdk.GetPromptParams{Name: name, Arguments: args})
		return err
	})
	if err != nil {
		return "", nil, err
	}
	var texts []string
	var parts []client.Part
	for _, m := range res.Messages {
		if m == nil {
			continue
		}
		var c content
		c.add(m.Content)
		text := strings.Join(c.texts, "\n")
		if m.Role != "user" && text != "" {
			text = string(m.Role) + ": " + text
		}
		if text != "" {
			texts = append(texts, text)
		}
		parts = append(parts, c.parts...)
	}
	return strings.Join(texts, "\n\n"), parts, nil
}
