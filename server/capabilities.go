package server

import (
	"cmp"
	"context"
	"slices"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// protocolPromptBytes is what ExecuteRequest.user_prompt may have at most,
// whatever a server allows.
const protocolPromptBytes = 1 << 20

func (s *sessionService) GetCapabilities(
	ctx context.Context, _ *connect.Request[agentdv1.GetCapabilitiesRequest],
) (*connect.Response[agentdv1.GetCapabilitiesResponse], error) {
	out := s.now().Capabilities(ctx)
	out.MaxPromptBytes = min(cmp.Or(out.GetMaxPromptBytes(), protocolPromptBytes), protocolPromptBytes)
	out.MaxMessageBytes = int64(s.now().MaxMessageBytes)
	out.Features = features
	return connect.NewResponse(out), nil
}

func (s *sessionService) ListModels(
	ctx context.Context, _ *connect.Request[agentdv1.ListModelsRequest],
) (*connect.Response[agentdv1.ListModelsResponse], error) {
	out := s.now().Models(ctx)
	slices.SortFunc(out.GetModels(), func(a, b *agentdv1.Model) int {
		return cmp.Or(cmp.Compare(a.GetProvider(), b.GetProvider()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return connect.NewResponse(out), nil
}
