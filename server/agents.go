package server

import (
	"context"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
)

// agents keeps the agent trees of callers. *agents.Registry implements it.
type agents interface {
	Apply(
		ctx context.Context, req *agentdv1.ApplyAgentRequest, metadata string,
	) (_ *agentdv1.RegisteredAgent, made bool, err error)
	Get(ctx context.Context, ref *agentdv1.AgentRef) (*agentdv1.RegisteredAgent, error)
	List(
		ctx context.Context, req *agentdv1.ListAgentsRequest, limit int,
	) (all []*agentdv1.RegisteredAgent, next string, err error)
	Archive(ctx context.Context, name string) (*agentdv1.RegisteredAgent, error)
	Delete(ctx context.Context, name string) error
}

// agents returns what keeps the agents of callers.
func (s *sessionService) agents() (agents, error) {
	if all := s.now().Agents; all != nil {
		return all, nil
	}
	return nil, fault.Errorf(codePrecondition, "this server keeps no agents")
}

func (s *sessionService) ApplyAgent(
	ctx context.Context, r *connect.Request[agentdv1.ApplyAgentRequest],
) (*connect.Response[agentdv1.ApplyAgentResponse], error) {
	all, err := s.agents()
	if err != nil {
		return nil, err
	}
	metadata, e := metadataText(r.Msg.GetMetadata())
	if e != nil {
		return nil, e
	}
	if e := checkAttachments(r.Msg.GetAgent(), nil); e != nil {
		return nil, e
	}
	agent, made, err := all.Apply(ctx, r.Msg, metadata)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.ApplyAgentResponse{Agent: agent, Created: made}), nil
}

func (s *sessionService) GetAgent(
	ctx context.Context, r *connect.Request[agentdv1.GetAgentRequest],
) (*connect.Response[agentdv1.GetAgentResponse], error) {
	all, err := s.agents()
	if err != nil {
		return nil, err
	}
	agent, err := all.Get(ctx, r.Msg.GetAgentRef())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.GetAgentResponse{Agent: agent}), nil
}

func (s *sessionService) ListAgents(
	ctx context.Context, r *connect.Request[agentdv1.ListAgentsRequest],
) (*connect.Response[agentdv1.ListAgentsResponse], error) {
	all, err := s.agents()
	if err != nil {
		return nil, err
	}
	found, next, err := all.List(ctx, r.Msg, pageSize(r.Msg.GetPageSize()))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.ListAgentsResponse{Agents: found, NextPageToken: next}), nil
}

func (s *sessionService) ArchiveAgent(
	ctx context.Context, r *connect.Request[agentdv1.ArchiveAgentRequest],
) (*connect.Response[agentdv1.ArchiveAgentResponse], error) {
	all, err := s.agents()
	if err != nil {
		return nil, err
	}
	agent, err := all.Archive(ctx, r.Msg.GetName())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.ArchiveAgentResponse{Agent: agent}), nil
}

func (s *sessionService) DeleteAgent(
	ctx context.Context, r *connect.Request[agentdv1.DeleteAgentRequest],
) (*connect.Response[agentdv1.DeleteAgentResponse], error) {
	all, err := s.agents()
	if err != nil {
		return nil, err
	}
	if err := all.Delete(ctx, r.Msg.GetName()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.DeleteAgentResponse{}), nil
}
