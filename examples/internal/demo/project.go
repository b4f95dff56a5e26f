package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// asClock makes an example the MCP server of its own project.
const asClock = "AGENTD_EXAMPLE_AS_CLOCK"

// serveClock serves a tool on standard input and output, and reports whether this process is for that.
func serveClock() bool {
	if os.Getenv(asClock) == "" {
		return false
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "clock", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "now", Description: "Says what time it is"},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "noon"}}}, nil, nil
		})
	_ = s.Run(context.Background(), &mcp.StdioTransport{}) // the host is gone
	return true
}

// project makes a folder with an MCP server, which is this program.
func project() (string, error) {
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "agentd-example-*")
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf(`{"version": 1, "servers": {"clock": {"transport": "stdio", "command": %q, "env": {%q: "1"}}}}`,
		self, asClock)
	folder := filepath.Join(dir, ".agents")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return dir, err
	}
	return dir, os.WriteFile(filepath.Join(folder, "mcp.json"), []byte(text), 0o600)
}
