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
			s.b.notice(fmt.Sprintf("the MCP server %s asks a question, which is declined: nobody can be asked", s.Name))
		})
		return &sdk.ElicitResult{Action: "decline"}, nil
	}
	s.count(1)
	defer s.count(-1)
	about := ctx
	if client.CallFrom(ctx) == nil {
		about = s.onlyCall(ctx)
	}
	about, cancel := context.WithCancel(about)
	defer cancel()
	stop, stopToo := context.AfterFunc(ctx, cancel), context.AfterFunc(c.life, cancel)
	defer stop()
	defer stopToo()
	res, err := s.b.elicit(about, s.Name, r)
	if res == nil && err == nil {
		res = &sdk.ElicitResult{Action: "cancel"}
	}
	return res, err
}

// onlyCall returns the context of the tool call that is under way, if it is the only one, or else ctx.
func (s *Server) onlyCall(ctx context.Context) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.active) != 1 {
		return ctx
	}
	for w := range s.active {
		return w.ctx
	}
	return ctx
}

// count counts the questions that a person is being asked. The time of calls begins anew after the last.
func (s *Server) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.questions += n; s.questions > 0 {
		return
	}
	for w := range s.active {
		w.timer.Reset(w.limit)
	}
}

// asking reports whether a person is being asked.
func (s *Server) asking() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.questions > 0
}
