// Package gated is a part of agentd, not an API: how the tools of the packages below client ask the gate.
//
// It knows what a call is and what the gate is, and no tool.
package gated

import (
	"context"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/permit"
)

// Check asks the gate about a request of the call whose handler runs: its session and, below the root of the tree, its
// agent are those of the request.
func Check(ctx context.Context, gate *permit.Gate, r permit.Request) error {
	call := client.CallFrom(ctx)
	r.Session = call.SessionID()
	if path := call.AgentPath(); len(path) > 1 {
		r.Source = path[len(path)-1]
	}
	if child := call.Child(); child != "" {
		r.Source = child
	}
	return gate.Check(ctx, r)
}
