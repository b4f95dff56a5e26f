package session

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/tracecontext"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/prompt"
	"github.com/apzuk3/agentd/session/internal/shared"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
)

func newTurnStarted(spec *record.Spec, req Request) (*record.TurnStarted, error) {
	agent, err := protojson.Marshal(spec.Agent)
	if err != nil {
		return nil, fault.Errorf(fault.Invalid, "agent: %v", err)
	}
	started := &record.TurnStarted{
		Prompt:        spec.Prompt,
		Parts:         spec.Parts,
		Before:        spec.Before,
		After:         spec.After,
		Agent:         agent,
		OnDisconnect:  req.OnDisconnect,
		OwnKeys:       slices.Sorted(maps.Keys(req.Keys)),
		Budget:        req.Budget,
		SessionBudget: req.SessionBudget,
		ToolTimeout:   req.ToolTimeout,
		Raw:           spec.Raw,
		PlanMode:      spec.PlanMode,
		Mode:          spec.Mode,
		Seed:          req.Seed,
		Author:        req.Author,
		Metadata:      req.Metadata,
		By:            req.by.ID,
		Trace:         req.trace,
		Warnings:      req.warnings,
		Alone:         loneAgent(spec.Agent),
	}
	for _, tool := range spec.Tools {
		data, err := protojson.Marshal(tool)
		if err != nil {
			return nil, fault.Errorf(fault.Invalid, "tool %q: %v", tool.GetName(), err)
		}
		started.Tools = append(started.Tools, json.RawMessage(data))
	}
	started.State, started.Temp = map[string]any{}, map[string]any{}
	for k, v := range req.InitialState {
		if shared.ScopeOf(k) == shared.Temp {
			started.Temp[k] = v
		} else {
			started.State[k] = v
		}
	}
	return started, nil
}

// Request asks for a turn.
type Request struct {
	// SessionID names an existing session; "" starts a new one.
	SessionID string
	// TurnID is the id of the new turn; for "" the manager makes one. An id that the
	// session already has is a CONFLICT.
	TurnID string
	// Create makes the session that SessionID names, if there is none.
	Create bool
	// Agent is the agent tree, and AgentRef names one that the server keeps. Without both the last tree and tools
	// of an existing session run again, or the agent that it was made with.
	Agent    *agentdv1.Agent
	AgentRef *agentdv1.AgentRef
	// Tools are what the client offers. They take the place of those of AgentRef with the same names.
	Tools []*agentdv1.Tool
	// Prompt is the text of the user, and Parts are the rest of the prompt. One of
	// them is not empty.
	Prompt string
	Parts  record.Parts
	// Instruction is appended to that of each agent, for this turn, or goes where Mode says.
	Instruction string
	Mode        agentdv1.InstructionMode
	// Seed is the history that a new session begins with, oldest first.
	Seed []*agentdv1.SeedMessage
	// Fork has the turn run on a fork of the session that SessionID names.
	Fork bool
	// Labels are set on the session. Those of a new one, or of a fork, are these alone.
	Labels map[string]string
	// Author is who the turn is for, as the caller says, and Metadata are for its tools alone.
	Author   string
	Metadata map[string]string
	// InitialState are keys to set before the turn runs. Numbers may be of type
	// json.Number, which keeps their digits.
	InitialState map[string]any
	// StateField is the name of InitialState in errors and warnings; "" is initial_state.
	StateField string
	// Keys are the caller's own provider keys.
	Keys Keys
	// OnDisconnect says what happens to the turn when its last client leaves. By
	// default it continues, and waits when it needs a client.
	OnDisconnect record.OnDisconnect
	// OnBusy says what happens when the session already runs a turn.
	OnBusy agentdv1.OnBusy
	// Budget is what the turn may spend.
	Budget record.Budget
	// SessionBudget, if set, is what the session may spend from its beginning. If the
	// session has a budget of its own, this one only tightens it, for this turn. If it
	// has none, this one also applies to later turns, until a request brings another.
	SessionBudget *record.Budget
	// ToolTimeout is how long a client may take for a call of a tool that has no
	// timeout of its own; 0 is the server's default.
	ToolTimeout time.Duration
	// Raw asks for a RawPayload of each try of a model call of the turn.
	Raw bool
	// PlanMode keeps tools of the turn that change something from being asked for.
	PlanMode bool
	// by is who sends the request, trace what it is part of, and warnings are what Start left out of it. Start sets
	// them.
	by       principal.Principal
	trace    tracecontext.Context
	warnings []record.Warning
	// goal, if not nil, is one that begins, without its id and without Turn but for the budget.
	goal *record.GoalStarted
	// Once, if it has a key, keeps the request from starting a second turn.
	Once Once
}

// warnRaw is the code of a warning: a principal that is no operator asked for raw payloads of a server with
// an instruction of its own, which a provider may repeat.
const warnRaw = "raw_payloads_ignored"

func (m *Manager) checkRequest(req Request) error {
	if err := m.limits().CheckPrompt(req.Prompt, req.Parts); err != nil {
		return err
	}
	switch {
	case req.TurnID != "" && !idPattern.MatchString(req.TurnID):
		return fault.Errorf(fault.Invalid,
			"turn_id: an id that the caller chooses has 1 to 128 of A-Z, a-z, 0-9 and . _ : @ -, "+
				"a letter or a digit first (received %q)", req.TurnID).
			Breaking("turn_id", fault.RuleFormat)
	case len(req.Instruction) > m.limits().MaxPromptBytes:
		return fault.Errorf(fault.LimitExceeded, "instruction has %d bytes, at most %d are allowed",
			len(req.Instruction), m.limits().MaxPromptBytes).
			Breaking("instruction", fault.RuleRange).
			Over("instruction_bytes", m.limits().MaxPromptBytes, len(req.Instruction))
	case req.Agent != nil && req.AgentRef != nil:
		return fault.Errorf(fault.Invalid, "agent together with agent_ref: send the tree, or name one that there is").
			Breaking("agent", fault.RuleExcluded).Breaking("agent_ref", fault.RuleExcluded)
	case !req.bringsAgent() && req.SessionID == "":
		return fault.Errorf(fault.Invalid, "agent is missing: a new session needs an agent tree").
			Breaking("agent", fault.RuleRequired)
	case !req.bringsAgent() && len(req.Tools) > 0:
		return fault.Errorf(fault.Invalid,
			"tools without agent: send the agent tree too, or neither to run the session's last ones again").
			Breaking("agent", fault.RuleRequired)
	}
	if err := m.checkConversation(&req); err != nil {
		return err
	}
	if err := req.Budget.Check("budget"); err != nil {
		return err
	}
	if req.SessionBudget != nil {
		if err := req.SessionBudget.Check("session_budget"); err != nil {
			return err
		}
	}
	if len(req.InitialState) > 0 {
		data, err := logjson.Marshal(req.InitialState)
		if err != nil {
			return fault.Errorf(fault.Invalid, "%s: %v", req.StateField, err).Breaking(req.StateField, fault.RuleFormat)
		}
		if n := len(data); n > m.limits().MaxStateBytes {
			return fault.Errorf(fault.LimitExceeded, "%s takes %d bytes as JSON, at most %d are allowed",
				req.StateField, n, m.limits().MaxStateBytes).
				Breaking(req.StateField, fault.RuleRange).Over("initial_state_bytes", m.limits().MaxStateBytes, n)
		}
	}
	return nil
}

// bringsAgent reports whether the request says which tree runs.
func (req *Request) bringsAgent() bool { return req.Agent != nil || req.AgentRef != nil }

// prompt returns the request as a session takes it. Its spec has passed Runner.Check.
func (req *Request) prompt(spec *record.Spec) (prompt.Prompt, error) {
	started, err := newTurnStarted(spec, *req)
	if err != nil {
		return prompt.Prompt{}, err
	}
	return prompt.Prompt{
		ID: req.TurnID, By: req.by, Spec: spec, Started: started, Keys: req.Keys, OnBusy: req.OnBusy,
		Labels: req.Labels, Goal: req.begins(started), Key: req.Once.names(req.by.Key()+scopeTurn, "", ""),
	}, nil
}

// loneAgent returns the start of the agent of a tree of one LLM agent, nil for any other tree.
func loneAgent(tree *agentdv1.Agent) *record.AgentChange {
	llm := tree.GetLlm()
	if llm == nil || len(llm.GetSubAgents())+len(llm.GetAgentTools()) > 0 {
		return nil
	}
	return &record.AgentChange{Path: []string{tree.GetName()}, Kind: record.LLMAgent, Model: llm.GetModel()}
}
