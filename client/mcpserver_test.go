package client_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/client"
)

// TestMCPServerNeedsItsPackage: package client knows no MCP.
func TestMCPServerNeedsItsPackage(t *testing.T) {
	c := client.New("http://127.0.0.1:1", client.WithMCPServer(client.MCPServer{Name: "web", URL: "http://127.0.0.1:1/mcp"}))
	_, err := c.Do(t.Context(), client.LLM("a", "echo"), "go")
	if !errors.Is(err, client.ErrInvalidRequest) || !strings.Contains(err.Error(), `import "github.com/apzuk3/agentd/client/mcp"`) {
		t.Errorf("got %v", err)
	}
}
