//go:build unix

package mcp_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
)

// TestWithMCPServer: agents name the tools of a server, or attach it; a server that is not there has none.
func TestWithMCPServer(t *testing.T) {
	f := newFront(t, "plain")
	log := filepath.Join(t.TempDir(), "log")
	script := `{"answers":[
		{"when":{"step":1,"has_tool":"own.wait"},"calls":[{"name":"own.wait","args":{"text":"` + log + `"}}]},
		{"when":{"step":1},"calls":[{"name":"own.echo","args":{"text":"hello"}}]},
		{"when":{},"text":"done"}]}`
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"m": script}})
	server := client.MCPServer{
		Name: "web", URL: "http://" + f.addr + "/mcp", ToolPrefix: "own", Headers: map[string]string{"X-Token": "t0ken-of-own"},
		RequestTimeout: 500 * time.Millisecond,
	}
	c := d.Client(client.WithMCPServer(server), client.WithMCPServer(client.MCPServer{Name: "gone", URL: "http://127.0.0.1:1/mcp"}))
	answered := func(agent *client.Agent) (out, failed string) {
		session := ""
		for event, err := range c.Run(t.Context(), agent, "go") {
			if err != nil {
				t.Fatal(err)
			}
			session = event.SessionID
			if a, ok := event.Data.(*client.ToolCallAnswered); ok {
				out, failed = a.Output, a.Error
			}
		}
		if session == "" {
			t.Error("there was no turn")
		}
		return out, failed
	}
	if out, failed := answered(client.LLM("a", "scripted/m", client.Tools("own.echo"))); out != "hello" {
		t.Errorf("by name: %q, %q", out, failed)
	}
	if h := <-f.headers; h.Get("X-Token") != "t0ken-of-own" {
		t.Errorf("a request has the headers %v", h)
	}
	if out, failed := answered(client.LLM("a", "scripted/m", client.AttachedTools("web", "own.echo"), client.AttachedTools("gone"))); out != "hello" {
		t.Errorf("attached: %q, %q", out, failed)
	}
	if out, failed := answered(client.LLM("a", "scripted/m", client.Tools("own.wait"))); !strings.Contains(failed, "has taken too long") {
		t.Errorf("a call that takes too long: %q, %q", out, failed)
	}
	for _, wrong := range []client.MCPServer{{Name: "a"}, {URL: "x"}, {Name: "a", URL: "x", RequestTimeout: -1}} {
		if _, err := d.Client(client.WithMCPServer(wrong)).Do(t.Context(), client.LLM("a", "echo"), "go"); err == nil {
			t.Errorf("%+v is taken", wrong)
		}
	}
}
