package client

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// MCPServer is an MCP server that is reached by streamable HTTP; see [WithMCPServer].
type MCPServer struct {
	// Name names the server, also for the mcp_attachments of agents.
	Name string
	// URL is where it is, such as https://mcp.example.com/mcp.
	URL string
	// ToolPrefix begins the names of its tools: `prefix.tool`. Default: Name.
	ToolPrefix string
	// Headers are sent with each request to the server's host.
	Headers map[string]string
	// RequestTimeout bounds each request, calls of tools among them. Default 30 s.
	RequestTimeout time.Duration
}

// defaultMCPTimeout is the default of MCPServer.RequestTimeout.
const defaultMCPTimeout = 30 * time.Second

// WithMCPServer offers the tools of an MCP server to agents that name them in their tool_names, as `prefix.tool`, or
// attach the server by its name. Each run connects to the server and leaves it when it ends. A server that cannot
// be reached has no tools, which is logged at level warn.
//
// The program has to import client/mcp, which knows how to connect; without it each run fails. Package mcp has more:
// servers that are programs, a gate before their calls, one connection for many runs.
func WithMCPServer(s MCPServer) Option {
	return clientOption(func(c *config) {
		s.ToolPrefix = cmp.Or(s.ToolPrefix, s.Name)
		s.RequestTimeout = cmp.Or(s.RequestTimeout, defaultMCPTimeout)
		s.Headers = maps.Clone(s.Headers)
		switch {
		case s.Name == "" || s.URL == "":
			c.failf("client.WithMCPServer: want a name and a URL, got %q and %q", s.Name, s.URL)
		case s.RequestTimeout < 0 || s.RequestTimeout > maxToolTimeout:
			c.failf("client.WithMCPServer: %s: want a timeout of more than 0 and at most %s, got %s",
				s.Name, maxToolTimeout, s.RequestTimeout)
		case c.attachments[s.Name] != nil:
			c.failf("client.WithMCPServer: %s is attached already", s.Name)
		default:
			c.attachments[s.Name] = NewToolSet()
			c.mcpServers = append(c.mcpServers, s)
		}
	})
}

// MCPConnector connects to a server: it returns the tools of the server, and what ends the connection.
type MCPConnector func(context.Context, MCPServer) (*ToolSet, func() error, error)

var mcpConnector atomic.Pointer[MCPConnector]

// RegisterMCP sets how [WithMCPServer] connects. It is for package client/mcp, which calls it when it is imported.
func RegisterMCP(connect MCPConnector) { mcpConnector.Store(&connect) }

// withServers returns a client for one run, which has the tools of the MCP servers too, and what ends the connections
// to them.
func (c *Client) withServers(ctx context.Context) (*Client, func(), error) {
	if len(c.cfg.mcpServers) == 0 {
		return c, func() {}, nil
	}
	connect := mcpConnector.Load()
	if connect == nil {
		return nil, nil, errorf(ErrInvalidRequest,
			`client.WithMCPServer: the program has to import "github.com/apzuk3/agentd/client/mcp"`)
	}
	servers := c.cfg.mcpServers
	sets, ends := make([]*ToolSet, len(servers)), make([]func() error, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() {
			var err error
			if sets[i], ends[i], err = (*connect)(ctx, s); err != nil {
				c.cfg.logger.WarnContext(ctx, "an MCP server has no tools", "server", s.Name, "err", err)
			}
		})
	}
	all.Wait()
	run := *c
	run.tools, run.cfg.attachments = NewToolSet(), maps.Clone(c.cfg.attachments)
	tools, err := toolsOf([]*ToolSet{c.tools})
	for i, s := range servers {
		if err == nil && sets[i] != nil {
			run.cfg.attachments[s.Name] = sets[i]
			err = sets[i].copyTo(tools)
		}
	}
	run.tools.byName = tools
	end := func() {
		var all sync.WaitGroup
		for _, end := range ends {
			if end != nil {
				all.Go(func() { _ = end() })
			}
		}
		all.Wait()
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return &run, end, nil
}
