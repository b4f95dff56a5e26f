package server_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/server"
)

// TestAttachments: an attachment that no client has resolved is refused by the path of
// its agent and by its name, on both services; a resolved one that is still set runs.
func TestAttachments(t *testing.T) {
	f := serve(t, engine{run: talk}, server.Config{})
	s := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
	below := func(child *agentdv1.Agent) *agentdv1.Agent {
		return &agentdv1.Agent{Name: "root", AgentType: &agentdv1.Agent_Loop{Loop: &agentdv1.LoopAgent{Agents: []*agentdv1.Agent{
			{Name: "mid", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "echo", SubAgents: []*agentdv1.Agent{child}}}},
		}}}}
	}
	for name, tc := range map[string]struct {
		include, tools []string
		says           string // "" when it runs
	}{
		"all, raw":             {nil, nil, "no tool_names"},
		"all, resolved":        {nil, []string{"search"}, ""},
		"some, raw":            {[]string{"search"}, nil, `"search"`},
		"some, half resolved":  {[]string{"search", "open"}, []string{"search", "own"}, `"open"`},
		"some, resolved":       {[]string{"search", "open"}, []string{"own", "open", "search"}, ""},
		"some, with a prefix":  {[]string{"search"}, []string{"github__search"}, ""},
		"another tool's begin": {[]string{"search"}, []string{"search_all"}, `"search"`},
	} {
		t.Run(name, func(t *testing.T) {
			req := execute()
			req.GetExecute().Agent = below(&agentdv1.Agent{Name: "leaf", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{
				Model: "echo", ToolNames: tc.tools,
				McpAttachments: []*agentdv1.McpAttachment{{McpName: "github", IncludeToolNames: tc.include}},
			}}})
			c := f.open(t.Context(), t)
			c.send(req)
			_, err := s.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: req.GetExecute()}))
			if tc.says == "" {
				if c.toEnd(); err != nil {
					t.Errorf("CreateTurn: %v", err)
				}
				return
			}
			e := c.rest()[0].GetError()
			if e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE || connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Fatalf("Run: %v, CreateTurn: %v", e, err)
			}
			for _, want := range []string{`"root/mid/leaf"`, `"github"`, "mcp_attachments[0]", tc.says} {
				if !strings.Contains(e.GetMessage(), want) || !strings.Contains(err.Error(), want) {
					t.Errorf("Run: %s, CreateTurn: %v, want %s", e.GetMessage(), err, want)
				}
			}
		})
	}
}
