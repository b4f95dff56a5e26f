package session

import (
	"context"
	"slices"
	"strconv"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/record"
)

// specOf returns the tree and the tools that a request is to run.
func (m *Manager) specOf(ctx context.Context, s *live.Session, req *Request) (*record.Spec, error) {
	switch {
	case req.AgentRef != nil:
		spec, _, err := m.registered(ctx, req.AgentRef, false)
		if err != nil {
			return nil, err
		}
		own := slices.DeleteFunc(spec.Tools, func(t *agentdv1.Tool) bool {
			return slices.ContainsFunc(req.Tools, func(o *agentdv1.Tool) bool { return o.GetName() == t.GetName() })
		})
		spec.Tools = slices.Concat(own, req.Tools)
		return spec, nil
	case req.Agent != nil:
		return &record.Spec{Agent: req.Agent, Tools: req.Tools}, nil
	}
	spec, err := s.RepeatSpec()
	if err == nil || fault.As(err).Code != fault.Invalid {
		return spec, err
	}
	info, infoErr := m.lists.Known(ctx, s.Key()) // no tree has run yet
	switch {
	case infoErr != nil && fault.As(infoErr).Code != fault.SessionNotFound:
		return nil, infoErr
	case info.Agent == "":
		return nil, err
	}
	name, version, ok := (&index.Session{Info: info}).MadeWith()
	if !ok { // not reached: pinned has written it
		return nil, fault.Errorf(fault.Internal, "session %q: its agent is %q", s.ID(), info.Agent)
	}
	spec, _, err = m.registered(ctx, &agentdv1.AgentRef{Name: name, Version: version}, true)
	return spec, err
}

// pinned is store.NewSession.Agent for a version of an agent.
func pinned(ref *agentdv1.AgentRef) string {
	return ref.GetName() + "@" + strconv.FormatInt(ref.GetVersion(), 10)
}

// keptAgent is Config.Agent.
type keptAgent func(context.Context, *agentdv1.AgentRef, bool) (*record.Spec, *agentdv1.AgentRef, error)

// registered returns an agent that the server keeps, with its name and its version. A session that was made with it
// may run it when it is archived.
func (m *Manager) registered(
	ctx context.Context, ref *agentdv1.AgentRef, made bool,
) (*record.Spec, *agentdv1.AgentRef, error) {
	if m.agent == nil {
		return nil, nil, fault.Errorf(fault.Precondition, "this server keeps no agents: send the tree").
			Breaking("agent_ref", fault.RuleExcluded)
	}
	return m.agent(ctx, ref, made)
}
