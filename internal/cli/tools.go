package cli

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/toolcmd"
)

// AddTool adds a tool to a set whose calls run a program. The declaration says how long a
// call may take.
func AddTool(to *client.ToolSet, declared *agentdv1.Tool, program toolcmd.Command) error {
	run := func(ctx context.Context, input json.RawMessage) (string, error) {
		call, program := client.CallFrom(ctx), program
		program.Env = append(slices.Clip(program.Env),
			"AGENTD_SESSION_ID="+call.SessionID(), "AGENTD_TOOL_CALL_ID="+call.ID())
		if parent, state := call.Trace(); parent != "" {
			program.Env = append(program.Env, "TRACEPARENT="+parent, "TRACESTATE="+state)
		}
		return toolcmd.Run(ctx, program, string(input))
	}
	return client.AddRawTool(to, declared.GetName(), declared.GetDescription(), run, ToolOptions(declared)...)
}

// ToolOptions are what a declaration says of a tool besides its name and description.
func ToolOptions(declared *agentdv1.Tool) (opts []client.ToolOption) {
	if declared.InputSchema != nil {
		opts = append(opts, client.ToolSchema(declared.GetInputSchema()))
	}
	if d := declared.GetTimeout(); d != nil {
		opts = append(opts, client.ToolTimeout(d.AsDuration()))
	}
	if declared.GetNeedsApproval() {
		opts = append(opts, client.NeedsApproval())
	}
	if declared.GetDeferred() {
		opts = append(opts, client.Deferred())
	}
	if e := declared.GetEffect(); e != 0 {
		opts = append(opts, client.ToolEffect(e))
	}
	return opts
}
