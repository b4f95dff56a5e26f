package gestalt

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	gestaltv1 "github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1"
)

// The host has an interaction by its id alone, so that begins with the turn's.
const idSeparator = ":"

func interactionID(in *agentdv1.Interaction) string { return in.GetTurnId() + idSeparator + in.GetId() }

// interaction returns an interaction of a subject, and its turn.
func (p *Provider) interaction(ctx context.Context, subject, id string) (*Turn, *agentdv1.Interaction, error) {
	none := notFoundf("there is no interaction %.300q", id)
	at := strings.LastIndex(id, idSeparator)
	if at < 1 || at+1 == len(id) {
		return nil, nil, none
	}
	t, err := p.turn(ctx, subject, id[:at])
	if connect.CodeOf(err) == connect.CodeNotFound {
		return nil, nil, none
	}
	if err != nil {
		return nil, nil, err
	}
	reply, err := p.sessions.GetInteraction(ctx, as(subject, &agentdv1.GetInteractionRequest{
		SessionId: t.SessionID, InteractionId: id[at+1:],
	}))
	switch {
	case missing(err), err == nil && reply.Msg.GetInteraction().GetTurnId() != t.ID:
		return nil, nil, none
	case err != nil:
		return nil, nil, p.passed(ctx, err)
	}
	return t, reply.Msg.GetInteraction(), nil
}

// kinds are the types of interactions.
var kinds = map[agentdv1.InteractionKind]gestaltv1.AgentInteractionType{
	agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL:      approval,
	agentdv1.InteractionKind_INTERACTION_KIND_CLARIFICATION: clarification,
	agentdv1.InteractionKind_INTERACTION_KIND_INPUT:         input,
}

const (
	approval      = gestaltv1.AgentInteractionType_AGENT_INTERACTION_TYPE_APPROVAL
	clarification = gestaltv1.AgentInteractionType_AGENT_INTERACTION_TYPE_CLARIFICATION
	input         = gestaltv1.AgentInteractionType_AGENT_INTERACTION_TYPE_INPUT
)

// states are those of interactions.
var states = map[agentdv1.InteractionStatus]gestaltv1.AgentInteractionState{
	agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING:  stillPending,
	agentdv1.InteractionStatus_INTERACTION_STATUS_RESOLVED: resolved,
	agentdv1.InteractionStatus_INTERACTION_STATUS_CANCELED: notAsked,
}

const (
	stillPending = gestaltv1.AgentInteractionState_AGENT_INTERACTION_STATE_PENDING
	resolved     = gestaltv1.AgentInteractionState_AGENT_INTERACTION_STATE_RESOLVED
	notAsked     = gestaltv1.AgentInteractionState_AGENT_INTERACTION_STATE_CANCELED
)

// interactionOf is an interaction as the host has it.
func interactionOf(in *agentdv1.Interaction) *gestaltv1.AgentInteraction {
	out := &gestaltv1.AgentInteraction{
		Id: interactionID(in), Type: kinds[in.GetKind()], State: states[in.GetStatus()],
		CreatedAt: in.GetCreateTime(), ResolvedAt: in.GetEndTime(), Resolution: resolutionOf(in),
		TurnId: in.GetTurnId(), SessionId: in.GetSessionId(),
	}
	if in.GetKind() == agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL {
		out.Title = "Approve " + in.GetToolName()
		out.Prompt = fmt.Sprintf("May the tool %s be called?", in.GetToolName())
		out.Request = &structpb.Struct{Fields: map[string]*structpb.Value{
			"tool_name": structpb.NewStringValue(in.GetToolName()), "arguments": valueOf(in.GetToolInput()),
		}}
		return out
	}
	out.Title, out.Prompt = "Question", in.GetQuestion()
	choices := &structpb.ListValue{}
	for _, c := range in.GetChoices() {
		choices.Values = append(choices.Values, structpb.NewStringValue(c))
	}
	out.Request = &structpb.Struct{Fields: map[string]*structpb.Value{
		"question": structpb.NewStringValue(in.GetQuestion()), "choices": structpb.NewListValue(choices),
	}}
	return out
}

// resolutionOf is what a person has said; nil if nobody has.
func resolutionOf(in *agentdv1.Interaction) *structpb.Struct {
	out := map[string]*structpb.Value{}
	switch d := in.GetResolution().GetDecision().(type) {
	case *agentdv1.Resolution_Approve:
		out["approved"] = structpb.NewBoolValue(true)
		if d.Approve.ToolInput != nil {
			out["arguments"] = valueOf(d.Approve.GetToolInput())
		}
	case *agentdv1.Resolution_Deny:
		out["approved"] = structpb.NewBoolValue(false)
		if d.Deny.GetReason() != "" {
			out["reason"] = structpb.NewStringValue(d.Deny.GetReason())
		}
	case *agentdv1.Resolution_Answer:
		out["answer"] = structpb.NewStringValue(d.Answer)
	default:
		return nil
	}
	return &structpb.Struct{Fields: out}
}

// valueOf is JSON text as a value, another text as itself.
func valueOf(text string) *structpb.Value {
	v := &structpb.Value{}
	if !json.Valid([]byte(text)) || protojson.Unmarshal([]byte(text), v) != nil {
		return structpb.NewStringValue(text)
	}
	return v
}

// GetInteraction returns an interaction.
func (p *Provider) GetInteraction(
	ctx context.Context, r *connect.Request[gestaltv1.GetInteractionRequest],
) (*connect.Response[gestaltv1.AgentInteraction], error) {
	subject, err := subjectOf(r.Msg.GetSubject())
	if err != nil {
		return nil, err
	}
	_, in, err := p.interaction(ctx, subject, r.Msg.GetInteractionId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(interactionOf(in)), nil
}

// ListInteractions lists the interactions of a turn, the newest first.
func (p *Provider) ListInteractions(
	ctx context.Context, r *connect.Request[gestaltv1.ListInteractionsRequest],
) (*connect.Response[gestaltv1.ListInteractionsResponse], error) {
	subject, err := subjectOf(r.Msg.GetSubject())
	if err != nil {
		return nil, err
	}
	t, err := p.turn(ctx, subject, r.Msg.GetTurnId())
	if err != nil {
		return nil, err
	}
	out := &gestaltv1.ListInteractionsResponse{}
	if t.Phase != Running && t.Phase != Over {
		return connect.NewResponse(out), nil
	}
	page := &agentdv1.ListInteractionsRequest{SessionId: t.SessionID, TurnId: t.ID, PageSize: listPage}
	for {
		reply, err := p.sessions.ListInteractions(ctx, as(subject, page))
		if missing(err) && t.Phase == Running { // it is being made
			return connect.NewResponse(out), nil
		}
		if err != nil {
			return nil, p.passed(ctx, err)
		}
		for _, in := range reply.Msg.GetInteractions() {
			out.Interactions = append(out.Interactions, interactionOf(in))
		}
		page.PageToken = reply.Msg.GetNextPageToken()
		if page.GetPageToken() == "" || len(out.GetInteractions()) >= maxListed {
			return connect.NewResponse(out), nil
		}
	}
}

// ResolveInteraction records what a person says, once.
func (p *Provider) ResolveInteraction(
	ctx context.Context, r *connect.Request[gestaltv1.ResolveInteractionRequest],
) (*connect.Response[gestaltv1.AgentInteraction], error) {
	subject, err := subjectOf(r.Msg.GetSubject())
	if err != nil {
		return nil, err
	}
	t, in, err := p.interaction(ctx, subject, r.Msg.GetInteractionId())
	if err != nil {
		return nil, err
	}
	if in.GetStatus() != agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING {
		return nil, preconditionf("interaction %q is not pending: it is %s", r.Msg.GetInteractionId(),
			strings.ToLower(strings.TrimPrefix(states[in.GetStatus()].String(), "AGENT_INTERACTION_STATE_")))
	}
	decision, err := decisionOf(in.GetKind(), r.Msg.GetResolution())
	if err != nil {
		return nil, err
	}
	reply, err := p.sessions.ResolveInteraction(ctx, as(subject, &agentdv1.ResolveInteractionRequest{
		SessionId: t.SessionID, InteractionId: in.GetId(), Resolution: decision,
	}))
	if err != nil {
		return nil, p.passed(ctx, err)
	}
	return connect.NewResponse(interactionOf(reply.Msg.GetInteraction())), nil
}

// decisionOf reads a resolution.
func decisionOf(kind agentdv1.InteractionKind, said *structpb.Struct) (*agentdv1.Resolution, error) {
	allowed := []string{"answer"}
	if kind == agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL {
		allowed = []string{"approved", "arguments", "reason"}
	}
	for _, key := range slices.Sorted(maps.Keys(said.GetFields())) {
		if !slices.Contains(allowed, key) {
			return nil, invalidf("resolution.%s is unknown: want %s", key, strings.Join(allowed, ", "))
		}
	}
	if kind != agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL {
		answer, ok := said.GetFields()["answer"].GetKind().(*structpb.Value_StringValue)
		if !ok {
			return nil, invalidf(`resolution: want {"answer": "…"}`)
		}
		return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Answer{Answer: answer.StringValue}}, nil
	}
	return approvalOf(said)
}

func approvalOf(said *structpb.Struct) (*agentdv1.Resolution, error) {
	approved, ok := said.GetFields()["approved"].GetKind().(*structpb.Value_BoolValue)
	if !ok {
		return nil, invalidf(`resolution: want {"approved": true or false}, and perhaps reason or arguments`)
	}
	reason, ok := said.GetFields()["reason"].GetKind().(*structpb.Value_StringValue)
	if !ok && said.GetFields()["reason"] != nil {
		return nil, invalidf("resolution.reason has to be a text")
	}
	arguments := said.GetFields()["arguments"]
	if arguments != nil && arguments.GetStructValue() == nil {
		return nil, invalidf("resolution.arguments has to be an object")
	}
	if !approved.BoolValue {
		if arguments != nil {
			return nil, invalidf("resolution.arguments: a tool that is not approved is not called")
		}
		deny := &agentdv1.Denial{}
		if reason != nil {
			deny.Reason = reason.StringValue
		}
		return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Deny{Deny: deny}}, nil
	}
	approve := &agentdv1.Approval{}
	if arguments != nil {
		text, err := jsonText(arguments)
		if err != nil {
			return nil, invalidf("resolution.arguments: %w", err)
		}
		approve.ToolInput = &text
	}
	return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Approve{Approve: approve}}, nil
}
