package mcp

import (
	"context"

	"github.com/apzuk3/agentd/client"
)

//nolint:gochecknoinits // importing the package is how a program says that it wants MCP
func init() { client.RegisterMCP(connect) }

// connect is how [client.WithMCPServer] gets the tools of a server: without a gate, as the program has named
// the server itself, and without anybody to ask.
func connect(ctx context.Context, m client.MCPServer) (*client.ToolSet, func() error, error) {
	if err := checkURL(m.URL); err != nil {
		return nil, nil, err
	}
	b := newBuilder(nil, nil, []Option{OnNotice(func(string) {})})
	b.sep = "."
	b.times.request, b.times.call = m.RequestTimeout, m.RequestTimeout
	s := b.server(ctx, m.Name)
	s.prefix = m.ToolPrefix
	s.cfg = serverConfig{Transport: httpTransport, URL: m.URL, Headers: m.Headers}
	s.hidden = secrets{}
	for _, value := range m.Headers {
		s.hidden.add(value, "…")
	}
	s.start(nil)
	b.begin(ctx, []*Server{s})
	return s.set, s.Close, s.Err
}
