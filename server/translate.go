package server

import (
	"fmt"
	"math"
	"net/http"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// keysOf takes the caller's own keys out of the request's headers: that of a
// provider is in X-Agentd-Provider-Api-Key, whether or not there is one.
func keysOf(h http.Header) session.Keys {
	keys := session.Keys{}
	for header := range h {
		name, ours := strings.CutPrefix(header, "X-Agentd-")
		name, aKey := strings.CutSuffix(name, "-Api-Key")
		if key := strings.TrimSpace(h.Get(header)); key != "" && ours && aKey && name != "" &&
			len(name) <= maxProviderName {
			keys[strings.ToLower(name)] = session.Secret(key)
		}
	}
	return keys
}

// maxProviderName bounds the name of a provider in a header, in bytes.
const maxProviderName = 64

// isEmpty reports whether a message names a session and holds nothing to start a turn
// with.
func isEmpty(ex *agentdv1.RunRequest_ExecuteRequest) bool {
	return ex.GetSessionId() != "" && ex.GetUserPrompt() == "" && len(ex.GetUserParts()) == 0 && ex.GetAgent() == nil &&
		ex.GetAgentRef() == nil
}

// attachment is the common part of AttachRequest and WatchTurnRequest, without the
// position.
type attachment interface {
	GetSessionId() string
	GetTurnId() string
	GetToolNames() []string
	GetObserve() bool
}

// attachOf translates a message that attaches to a turn; at is the path of its
// fields.
func attachOf(at string, m attachment, after *int64, h http.Header) (session.AttachRequest, *fault.Error) {
	if n := len(m.GetToolNames()); n > 0 && m.GetObserve() {
		return session.AttachRequest{}, fault.Errorf(codeInvalid,
			"%sobserve together with %d tool_names: a client that only watches is asked for none", at, n).
			Breaking(at+"tool_names", fault.RuleExcluded)
	}
	return session.AttachRequest{
		SessionID: m.GetSessionId(), TurnID: m.GetTurnId(), After: after,
		Tools: m.GetToolNames(), Keys: keysOf(h), Observe: m.GetObserve(),
	}, nil
}

// requestOf translates the message that starts a turn.
func requestOf(ex *agentdv1.RunRequest_ExecuteRequest, h http.Header) (session.Request, *fault.Error) {
	switch {
	case ex.GetCreate() && ex.GetSessionId() == "":
		return session.Request{}, fault.Errorf(codeInvalid,
			"execute.create without session_id: say under which id the session is to be made, "+
				"or leave out both for one that the server names").
			Breaking("execute.session_id", fault.RuleRequired)
	case ex.GetCreate() && ex.GetFork():
		return session.Request{}, fault.Errorf(codeInvalid,
			"execute.create together with fork: only a session that there is can be forked").
			Breaking("execute.create", fault.RuleExcluded).Breaking("execute.fork", fault.RuleExcluded)
	case ex.GetDisconnectGrace() != nil && ex.GetOnDisconnect() != cancelTurn:
		return session.Request{}, fault.Errorf(codeInvalid,
			"execute.disconnect_grace is for on_disconnect ON_DISCONNECT_CANCEL, received %v", ex.GetOnDisconnect()).
			Breaking("execute.disconnect_grace", fault.RuleExcluded)
	}
	if e := checkAttachments(ex.GetAgent(), nil); e != nil {
		return session.Request{}, e
	}
	state, err := stateOf("execute.initial_state", ex.GetInitialState(), ex.GetInitialStateJson(), new(maxValues))
	if err != nil {
		return session.Request{}, err
	}
	req := session.Request{
		SessionID:    ex.GetSessionId(),
		TurnID:       ex.GetTurnId(),
		Create:       ex.GetCreate(),
		Agent:        ex.GetAgent(),
		AgentRef:     ex.GetAgentRef(),
		Tools:        ex.GetTools(),
		Prompt:       ex.GetUserPrompt(),
		Parts:        ex.GetUserParts(),
		Instruction:  ex.GetInstruction(),
		InitialState: state,
		StateField:   stateField("initial_state", ex.GetInitialStateJson()),
		Keys:         keysOf(h),
		OnDisconnect: record.OnDisconnect{
			Cancel: ex.GetOnDisconnect() == cancelTurn,
			Grace:  ex.GetDisconnectGrace().AsDuration(),
		},
		OnBusy:      ex.GetOnBusy(),
		Budget:      budgetOf(ex.GetBudget()),
		ToolTimeout: ex.GetToolTimeout().AsDuration(),
		Raw:         ex.GetRawPayloads(),
		PlanMode:    ex.GetPlanMode(),
		Mode:        ex.GetInstructionMode(),
		Seed:        ex.GetSeedMessages(),
		Fork:        ex.GetFork(),
		Labels:      ex.GetLabels(),
		Author:      ex.GetAuthor(),
		Metadata:    ex.GetMetadata(),
	}
	if ex.GetSessionBudget() != nil {
		b := budgetOf(ex.GetSessionBudget())
		req.SessionBudget = &b
	}
	if key := ex.GetIdempotencyKey(); key != "" {
		req.Once = onceOf(key, ex)
	}
	return req, nil
}

func budgetOf(b *agentdv1.Budget) record.Budget {
	return record.Budget{
		ModelCalls: b.GetModelCalls(),
		Tokens:     b.GetTokens(),
		Cost:       record.BudgetUSD(b.GetCostUsd()),
		Wall:       b.GetWallTime().AsDuration(),
	}
}

// toolResultOf translates the result of a tool call. With an error it still names the
// call. left is how many values the request may still hold.
func toolResultOf(r *agentdv1.RunRequest_ToolCallResponse, left *int) (session.ClientResult, *fault.Error) {
	state, err := stateOf("state_delta", r.GetStateDelta(), r.GetStateDeltaJson(), left)
	if err != nil {
		return session.ClientResult{CallID: r.GetToolCallId()}, err
	}
	a := session.ClientResult{
		CallID: r.GetToolCallId(), Parts: r.GetParts(),
		State: state, StateField: stateField("state_delta", r.GetStateDeltaJson()),
	}
	switch result := r.GetResult().(type) {
	case *agentdv1.RunRequest_ToolCallResponse_Output:
		a.Output = &result.Output
	case *agentdv1.RunRequest_ToolCallResponse_Error:
		a.Error = &result.Error
	}
	return a, nil
}

// jsonTwin is what the name of a field ends with that has as JSON text what another one
// has as a Struct.
const jsonTwin = "_json"

// stateField is the one of two fields that has the state.
func stateField(field, text string) string {
	if text != "" {
		return field + jsonTwin
	}
	return field
}

// stateOf translates state that is in one of two fields, field and its twin; nil for
// none. The binary form of a Struct can hold numbers that JSON, and so the log, cannot.
func stateOf(field string, s *structpb.Struct, text string, left *int) (map[string]any, *fault.Error) {
	if text != "" {
		return stateText(field, field+jsonTwin, s != nil, text, left)
	}
	if len(s.GetFields()) == 0 {
		return nil, nil
	}
	if where, bad := notFinite(structpb.NewStructValue(s)); bad {
		return nil, fault.Errorf(codeInvalid, "%s%s is not a finite number, which JSON cannot hold", field, where).
			Breaking(field+where, fault.RuleRange)
	}
	return s.AsMap(), nil
}

// stateText translates state that is JSON text.
func stateText(field, twin string, both bool, text string, left *int) (map[string]any, *fault.Error) {
	if both {
		return nil, fault.Errorf(codeInvalid, "%s and %s say the same thing in two forms: send one of them", field,
			twin).
			Breaking(field, fault.RuleExcluded).Breaking(twin, fault.RuleExcluded)
	}
	value, err := jsonText(twin, text, left)
	if err != nil {
		return nil, err
	}
	state, ok := value.(map[string]any)
	if !ok {
		return nil, fault.Errorf(codeInvalid, "%s is no JSON object: %s", twin, quote(text)).
			Breaking(twin, fault.RuleFormat)
	}
	return state, nil
}

// notFinite returns the path of a number that is not finite.
func notFinite(v *structpb.Value) (where string, bad bool) {
	switch k := v.GetKind().(type) {
	case *structpb.Value_NumberValue:
		return "", math.IsNaN(k.NumberValue) || math.IsInf(k.NumberValue, 0)
	case *structpb.Value_StructValue:
		for name, e := range k.StructValue.GetFields() {
			if where, bad := notFinite(e); bad {
				return "[" + quote(name) + "]" + where, true
			}
		}
	case *structpb.Value_ListValue:
		for i, e := range k.ListValue.GetValues() {
			if where, bad := notFinite(e); bad {
				return fmt.Sprintf("[%d]%s", i, where), true
			}
		}
	}
	return "", false
}

// sessionIDOf is the session a message names, "" for none.
func sessionIDOf(msg *agentdv1.RunRequest) string {
	switch r := msg.GetRequest().(type) {
	case *agentdv1.RunRequest_Heartbeat:
		return r.Heartbeat.GetSessionId()
	case *agentdv1.RunRequest_ToolCallResponse_:
		return r.ToolCallResponse.GetSessionId()
	case *agentdv1.RunRequest_End:
		return r.End.GetSessionId()
	case *agentdv1.RunRequest_Cancel:
		return r.Cancel.GetSessionId()
	case *agentdv1.RunRequest_InteractionResponse:
		return r.InteractionResponse.GetSessionId()
	case *agentdv1.RunRequest_InteractionRequest:
		return r.InteractionRequest.GetSessionId()
	default:
		return ""
	}
}

// fieldOf is the member of RunRequest that a message sets, "" for none.
func fieldOf(msg *agentdv1.RunRequest) string {
	m := msg.ProtoReflect()
	member := m.WhichOneof(m.Descriptor().Oneofs().ByName("request"))
	if member == nil {
		return ""
	}
	return string(member.Name())
}

// nameOf is a message's kind as the protocol calls it.
func nameOf(msg *agentdv1.RunRequest) string {
	switch msg.GetRequest().(type) {
	case *agentdv1.RunRequest_Execute:
		return "ExecuteRequest"
	case *agentdv1.RunRequest_Attach:
		return "AttachRequest"
	case *agentdv1.RunRequest_Heartbeat:
		return "HeartbeatRequest"
	case *agentdv1.RunRequest_ToolCallResponse_:
		return "ToolCallResponse"
	case *agentdv1.RunRequest_End:
		return "EndRequest"
	case *agentdv1.RunRequest_Cancel:
		return "CancelRequest"
	case *agentdv1.RunRequest_InteractionResponse:
		return "InteractionResponse"
	case *agentdv1.RunRequest_InteractionRequest:
		return "RaiseInteractionRequest"
	default:
		return "a message without a request"
	}
}
