package mcp

import (
	"context"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/apzuk3/agentd/client"
)

// Elicitor answers a question that a server asks: it accepts with content that fits the question's schema, declines, or
// cancels. It should return soon after its context ends. Within a tool call client.CallFrom finds the call in
// the context, unless several calls of the server are under way and the server does not say for which it asks.
type Elicitor func(ctx context.Context, server string, r *sdk.ElicitRequest) (*sdk.ElicitResult, error)

// elicit hands a question of the server on.
func (s *Server) elicit(ctx context.Context, c *conn, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
	if s.b.elicit == nil {
		s.b.declined.Do(func() {
			s.b.notice(fmt.Sprintf("the MCP server %s asks a question, which is declined: there is nobody to ask", s.Name))
		})
		return &sdk.ElicitResult{Action: "decline"}, nil
	}
	s.mu.Lock()
	s.questions++
	if client.CallFrom(ctx) == nil && len(s.active) == 1 {
		for call := range s.active {
			with, cancel := context.WithCancel(call.ctx)
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			ctx = with
		}
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.questions--
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	res, err := s.b.elicit(ctx, s.Name, r)
	if res == nil && err == nil {
		res = &sdk.ElicitResult{Action: "cancel"}
	}
	return res, err
}

// asking reports whether a person is being asked.
func (s *Server) asking() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.questions > 0
}
