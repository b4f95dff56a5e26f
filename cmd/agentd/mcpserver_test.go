package main

import (
	"context"
	"os"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// asMCP makes the test binary be an MCP server.
const asMCP = "AGENTD_TEST_AS_MCP"

// serveMCP serves two tools on standard input and output.
func serveMCP() {
	type in struct {
		Text string `json:"text"`
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "words", Version: "1"}, nil)
	for name, change := range map[string]func(string) string{"shout": strings.ToUpper, "whisper": strings.ToLower} {
		sdk.AddTool(s, &sdk.Tool{Name: name, Description: "Says it otherwise"},
			func(_ context.Context, _ *sdk.CallToolRequest, in in) (*sdk.CallToolResult, any, error) {
				return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: change(in.Text)}}}, nil, nil
			})
	}
	if err := s.Run(context.Background(), &sdk.StdioTransport{}); err != nil {
		os.Exit(1)
	}
}
