package managed

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

func (f *face) postEvents(r *http.Request) (any, error) {
	in, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	events, err := readEvents(in, "events")
	if err != nil {
		return nil, err
	}
	if len(events) == 0 {
		in.failf("events", "is missing or empty, want a list of events")
	}
	if err := in.done(); err != nil {
		return nil, err
	}
	s, _, err := f.session(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	out, err := f.post(r.Context(), s, events, r.Header.Get("Idempotency-Key"))
	if err != nil {
		return nil, err
	}
	return map[string]any{"data": out}, nil
}

// post does what events say, and returns them as they are now. It first looks whether each can be done, so that all
// of them are or none. Interrupts come first. key names the request, "" for none.
func (f *face) post(ctx context.Context, s *agentdv1.Session, events []incoming, key string) ([]*event, error) {
	p := &posting{face: f, session: s, key: key, open: map[string]*openCall{}}
	interrupted := slices.ContainsFunc(events, func(e incoming) bool { return e.kind == "user.interrupt" })
	for i := range events {
		if e := &events[i]; interrupted && e.of != "" {
			return nil, e.refusef("cannot be taken together with a user.interrupt, which ends all calls")
		}
		if err := p.check(ctx, &events[i]); err != nil {
			return nil, err
		}
	}
	out := make([]*event, len(events))
	for _, interrupts := range []bool{true, false} {
		for i := range events {
			e := &events[i]
			if (e.kind == "user.interrupt") != interrupts {
				continue
			}
			var err error
			if out[i], err = p.do(ctx, e, i); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// posting is one request with events.
type posting struct {
	*face
	session *agentdv1.Session
	key     string
	open    map[string]*openCall // by the id of the event
}

// openCall is a call that events of the request are about.
type openCall struct {
	call
	turn    string
	settled *event // its result, or the refusal; nil while there is none
	allowed *event // the confirmation; nil before it
	over    bool   // the turn has ended, or nobody waits for the call any more
}

// check looks whether an event can be done.
func (p *posting) check(ctx context.Context, e *incoming) error {
	switch e.kind {
	case "user.interrupt":
		return nil
	case "user.message":
		if p.session.GetState() == agentdv1.SessionState_SESSION_STATE_ARCHIVED {
			return e.refusef("cannot be taken: session %.80q is archived", p.session.GetId())
		}
		return nil
	}
	c, err := p.callOf(ctx, e)
	if err != nil {
		return err
	}
	named := "custom_tool_use_id"
	if e.kind != "user.custom_tool_result" {
		named = "tool_use_id"
	}
	switch {
	case c == nil:
		return badf("%s.%s is %.80q: the session has no such call", e.at, named, e.of)
	case (e.kind == "user.custom_tool_result") == c.gated:
		return badf("%s.%s is %.80q: a user.custom_tool_result is for an agent.custom_tool_use, "+
			"and a user.tool_result or user.tool_confirmation for an agent.tool_use", e.at, named, e.of)
	case e.kind == "user.tool_result" && c.asks != "" && c.allowed == nil:
		return badf("%s.%s is %.80q: the call waits for a user.tool_confirmation", e.at, named, e.of)
	case e.kind == "user.tool_confirmation" && c.allowed == nil && c.settled == nil && !c.over:
		if e.allow { // a result of the same request may follow
			c.allowed = &event{}
		}
	case e.kind == "user.tool_confirmation":
		return nil // compared with the first one
	case c.over && c.settled == nil:
		return badf("%s.%s is %.80q: nobody waits for a result of it any more", e.at, named, e.of)
	}
	return nil
}

// do does what an event says, and returns the event as it is stored.
func (p *posting) do(ctx context.Context, e *incoming, n int) (*event, error) {
	switch e.kind {
	case "user.message":
		return p.message(ctx, e, n)
	case "user.interrupt":
		return p.interrupt(ctx)
	case "user.tool_confirmation":
		return p.confirm(ctx, e)
	}
	if c := p.open[e.of]; !c.gated && c.asks != "" {
		return p.answer(ctx, e, c)
	}
	return p.result(ctx, e)
}

// newTurnID names a turn, so that its first event has its id before it is recorded.
func newTurnID() string { return "m-" + strings.ToLower(rand.Text()) }

// message starts a turn, or queues it.
func (p *posting) message(ctx context.Context, e *incoming, n int) (*event, error) {
	id := p.session.GetId()
	ex := &agentdv1.RunRequest_ExecuteRequest{
		SessionId: &id, TurnId: newTurnID(), UserPrompt: e.text, UserParts: e.parts, InitialStateJson: braces,
		OnBusy: agentdv1.OnBusy_ON_BUSY_WAIT,
	}
	if p.key != "" { // a repeat gets the turn that the first one has started
		ex.IdempotencyKey, ex.TurnId = "managed-agents "+p.key+" "+strconv.Itoa(n), ""
	}
	resp, err := p.env.Sessions.CreateTurn(ctx, connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ex}))
	if err != nil {
		return nil, err
	}
	t := resp.Msg.GetTurn()
	out := &event{
		id: promptID(id, t.GetId()), kind: e.kind, at: t.GetStartTime().AsTime(), queued: t.GetStartTime() == nil,
		fields: []field{{"content", e.content()}},
	}
	return out, nil
}

// interrupt cancels the turn that runs, or waits. Where none does there is nothing to interrupt: the event is not
// listed, but a client that was too late need not know that.
func (p *posting) interrupt(ctx context.Context) (*event, error) {
	idle := &event{
		id: idPrefix + "i" + strings.ToLower(rand.Text()), kind: "user.interrupt", at: time.Now(),
		fields: []field{{"session_thread_id", nil}},
	}
	turn := p.session.GetLastTurnId()
	if turn == "" {
		return idle, nil
	}
	last := p.session.GetLastSeq()
	_, err := p.env.Sessions.CancelTurn(ctx, connect.NewRequest(&agentdv1.CancelTurnRequest{
		SessionId: p.session.GetId(), TurnId: turn, Reason: "interrupted",
	}))
	if err != nil {
		return nil, err
	}
	found := idle
	err = p.eachOfTurn(ctx, p.session.GetId(), turn, &last, func(e *agentdv1.RunResponse) bool {
		if e.GetEnd().GetReceipt() != nil {
			found = &event{
				id: eventID(p.session.GetId(), e.GetSeq(), slotInterrupt), kind: idle.kind,
				at: e.GetTime().AsTime(), fields: idle.fields,
			}
		}
		return true
	})
	return found, err
}

// confirm says what a person has said to a call. The first word stands.
func (p *posting) confirm(ctx context.Context, e *incoming) (*event, error) {
	c := p.open[e.of]
	for _, first := range []*event{c.allowed, c.settled} {
		if first == nil || first.kind != e.kind {
			continue
		}
		if !first.is("result", map[bool]string{true: "allow", false: "deny"}[e.allow]) {
			return nil, e.refusef("cannot be taken: the call was decided otherwise before")
		}
		return first, nil
	}
	if c.over {
		return nil, e.refusef("cannot be taken: nobody waits for it any more")
	}
	r := &agentdv1.Resolution{IdempotencyKey: "managed-agents " + e.of}
	r.Decision = &agentdv1.Resolution_Approve{Approve: &agentdv1.Approval{}}
	if !e.allow {
		deny := &agentdv1.Denial{}
		if e.message != nil {
			deny.Reason = *e.message
		}
		r.Decision = &agentdv1.Resolution_Deny{Deny: deny}
	}
	return p.resolve(ctx, e, c, r)
}

// answer answers a question of a model.
func (p *posting) answer(ctx context.Context, e *incoming, c *openCall) (*event, error) {
	r := &agentdv1.Resolution{IdempotencyKey: "managed-agents " + e.of}
	r.Decision = &agentdv1.Resolution_Answer{Answer: e.text}
	if e.isError {
		r.Decision = &agentdv1.Resolution_Deny{Deny: &agentdv1.Denial{Reason: e.text}}
	}
	return p.resolve(ctx, e, c, r)
}

func (p *posting) resolve(
	ctx context.Context, e *incoming, c *openCall, r *agentdv1.Resolution,
) (*event, error) {
	_, err := p.env.Sessions.ResolveInteraction(ctx, connect.NewRequest(&agentdv1.ResolveInteractionRequest{
		SessionId: p.session.GetId(), InteractionId: c.asks, Resolution: r,
	}))
	if f := p.failureIf(err); f != nil && f.status == http.StatusConflict {
		return nil, e.refusef("cannot be taken: the call was decided otherwise before")
	}
	if err != nil {
		return nil, err
	}
	now, err := p.find(ctx, e.of)
	switch {
	case err != nil:
		return nil, err
	case now != nil && now.allowed != nil:
		return now.allowed, nil
	case now != nil && now.settled != nil:
		return now.settled, nil
	}
	return nil, e.refusef("cannot be taken: nobody waits for it any more")
}

// result gives the result of a call. The first one stands, an equal one is it.
func (p *posting) result(ctx context.Context, e *incoming) (*event, error) {
	c := p.open[e.of]
	res := &agentdv1.RunRequest_ToolCallResponse{ToolCallId: c.id, ToolName: c.name, Parts: e.parts}
	res.Result = &agentdv1.RunRequest_ToolCallResponse_Output{Output: e.text}
	if e.isError {
		res.Result = &agentdv1.RunRequest_ToolCallResponse_Error{Error: e.text}
	}
	resp, err := p.env.Sessions.SubmitToolResults(ctx, connect.NewRequest(&agentdv1.SubmitToolResultsRequest{
		SessionId: p.session.GetId(), TurnId: c.turn, Results: []*agentdv1.RunRequest_ToolCallResponse{res},
	}))
	if err != nil {
		return nil, err
	}
	for _, refused := range resp.Msg.GetRefused() {
		return nil, e.refusef("was refused: %s", strings.ReplaceAll(refused.GetError().GetMessage(), c.id, e.of))
	}
	now, err := p.find(ctx, e.of)
	if seq, _ := seqOf(p.session.GetId(), e.of); err == nil && now != nil && now.settled == nil && !now.over {
		now, err = p.awaitResult(ctx, c.turn, seq)
	}
	switch {
	case err != nil:
		return nil, err
	case now == nil || now.settled == nil:
		return nil, e.refusef("cannot be taken: nobody waits for it any more")
	}
	return now.settled, nil
}

// callOf returns the call that an event is about, nil if there is none.
func (p *posting) callOf(ctx context.Context, e *incoming) (*openCall, error) {
	if c, ok := p.open[e.of]; ok {
		return c, nil
	}
	c, err := p.find(ctx, e.of)
	if err == nil && c != nil {
		p.open[e.of] = c
	}
	return c, err
}
