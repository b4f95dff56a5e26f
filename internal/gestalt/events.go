package gestalt

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	gestaltv1 "github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1"
)

const (
	// source names who makes the events.
	source = "agentd"
	// numberPage is how many events of the daemon are numbered at once.
	numberPage = 1000
	// maxEvents is how many events a list has at most, also where the host sets no limit.
	maxEvents = 1000

	visiblePublic, visiblePrivate = "public", "private"
)

// ListTurnEvents returns the events of a turn after a number, the oldest first.
func (p *Provider) ListTurnEvents(
	ctx context.Context, r *connect.Request[gestaltv1.ListTurnEventsRequest],
) (*connect.Response[gestaltv1.ListTurnEventsResponse], error) {
	subject, err := subjectOf(r.Msg.GetSubject())
	if err == nil {
		err = checkLimit(r.Msg.GetLimit())
	}
	if err != nil {
		return nil, err
	}
	if r.Msg.GetAfterSeq() < 0 {
		return nil, invalidf("after_seq is %d, want at least 0", r.Msg.GetAfterSeq())
	}
	t, err := p.turn(ctx, subject, r.Msg.GetTurnId())
	if err != nil {
		return nil, err
	}
	if err := p.number(ctx, t); err != nil {
		return nil, err
	}
	limit := int(r.Msg.GetLimit())
	if limit == 0 || limit > maxEvents {
		limit = maxEvents
	}
	events, err := p.store.Events(ctx, t.ID, r.Msg.GetAfterSeq(), limit)
	if err != nil {
		return nil, p.stored(ctx, err)
	}
	out, size := &gestaltv1.ListTurnEventsResponse{}, 0
	for i := range events {
		// A reply is one message; the rest comes with the next request.
		if size += len(events[i].Data); size > maxReply/2 && i > 0 {
			break
		}
		e := &gestaltv1.AgentTurnEvent{}
		p.decode(events[i].Data, e)
		out.Events = append(out.Events, e)
	}
	return connect.NewResponse(out), nil
}

// number gives numbers to the events of a turn that have none yet. Whoever asks for events does so; of two at once one
// writes, and the other one reads again.
func (p *Provider) number(ctx context.Context, t *Turn) error {
	for t.Phase == Running || t.Phase == Over {
		more, err := p.numberSome(ctx, t)
		if errors.Is(err, ErrMoved) {
			var now *Turn
			if now, err = p.store.Turn(ctx, t.ID); err == nil {
				t.Position = now.Position
				continue
			}
		}
		if err != nil {
			if _, ok := errors.AsType[*connect.Error](err); ok {
				return err
			}
			return p.stored(ctx, err)
		}
		if !more {
			return nil
		}
	}
	return nil
}

// numberSome numbers a page of events and reports whether there are more.
func (p *Provider) numberSome(ctx context.Context, t *Turn) (more bool, err error) {
	req := &agentdv1.ListTurnEventsRequest{
		SessionId: t.SessionID, TurnId: t.ID, PageSize: numberPage, Display: true,
	}
	if t.Position > 0 {
		req.AfterSeq = new(t.Position)
	}
	reply, err := p.sessions.ListTurnEvents(ctx, as(t.Subject, req))
	if missing(err) && t.Phase == Running { // it is being made
		return false, nil
	}
	if err != nil {
		return false, p.passed(ctx, err)
	}
	to := reply.Msg.GetNextAfterSeq()
	if len(reply.Msg.GetEvents()) == 0 || to <= t.Position {
		return false, nil
	}
	n := &numbering{p: p, t: t, contents: p.now().settings.contents}
	if n.last, err = p.store.LastEvent(ctx, t.ID); err != nil {
		return false, err
	}
	for _, e := range reply.Msg.GetEvents() {
		if err := n.take(ctx, e); err != nil {
			return false, err
		}
	}
	if err := p.store.AddEvents(ctx, t.ID, t.Position, to, n.events()); err != nil {
		return false, err
	}
	t.Position = to
	return reply.Msg.GetMore(), nil
}

// numbering makes events of the host of a page of those of the daemon. One goroutine owns it.
type numbering struct {
	p        *Provider
	t        *Turn
	contents bool  // private events have theirs
	last     int64 // the number of the last event
	out      []*gestaltv1.AgentTurnEvent
	messages []string // of out: the message that each is a piece of the text of
	// said is the text of the last one of out, if that is pieces of a text.
	said strings.Builder
}

// add adds an event; message is the one that it is a piece of the text of, "" for another event.
func (n *numbering) add(e *gestaltv1.AgentTurnEvent, message string) {
	n.settle()
	n.said.Reset()
	n.last++
	e.Id, e.TurnId, e.Seq, e.Source = fmt.Sprintf("%s:%d", n.t.ID, n.last), n.t.ID, n.last, source
	if e.GetCreatedAt() == nil {
		e.CreatedAt = timestamppb.Now()
	}
	if e.GetData() == nil {
		e.Data = &structpb.Struct{}
	}
	n.out, n.messages = append(n.out, e), append(n.messages, message)
}

// settle gives the last event the text of its pieces so far.
func (n *numbering) settle() {
	if n.said.Len() > 0 {
		last := n.out[len(n.out)-1]
		last.Data, last.Display.Text = texts(map[string]string{"text": n.said.String()}), n.said.String()
	}
}

// events are the events as the store has them.
func (n *numbering) events() []Event {
	n.settle()
	out := make([]Event, 0, len(n.out))
	for i, e := range n.out {
		data, err := proto.Marshal(e)
		if err != nil { // not reached: their texts were checked when they came
			n.p.log.Error("an event cannot be encoded", "error", err.Error())
		}
		out = append(out, Event{Seq: e.GetSeq(), Message: n.messages[i], Data: data})
	}
	return out
}

// take adds what the host is told of an event of the daemon.
func (n *numbering) take(ctx context.Context, e *agentdv1.RunResponse) error {
	out := &gestaltv1.AgentTurnEvent{Visibility: visiblePublic, CreatedAt: e.GetTime(), Display: displayOf(e)}
	switch r := e.GetResponse().(type) {
	case *agentdv1.RunResponse_Execute:
		out.Type = "turn.started"
	case *agentdv1.RunResponse_OutputChunk_:
		if r.OutputChunk.GetContent() != "" {
			n.piece(out, r.OutputChunk)
			return nil
		}
		n.rest(out, e)
	case *agentdv1.RunResponse_MessageCompleted:
		if r.MessageCompleted.GetTextBytes() == 0 {
			n.rest(out, e)
			break
		}
		text, err := n.text(ctx, r.MessageCompleted)
		if err != nil {
			return err
		}
		out.Type, out.Data, out.Display.Text = "assistant.completed", texts(map[string]string{"text": text}), text
	case *agentdv1.RunResponse_ToolCall:
		n.started(out, r.ToolCall)
	case *agentdv1.RunResponse_ToolCallAnnounced:
		n.started(out, r.ToolCallAnnounced)
	case *agentdv1.RunResponse_ToolCallAnswered:
		n.answered(out, r.ToolCallAnswered)
	case *agentdv1.RunResponse_InteractionRequested:
		out.Type = "interaction.requested"
		n.asks(out, r.InteractionRequested.GetInteraction())
	case *agentdv1.RunResponse_InteractionResolved:
		out.Type = "interaction.resolved"
		n.asks(out, r.InteractionResolved.GetInteraction())
	case *agentdv1.RunResponse_End:
		if err := n.end(ctx, out); err != nil {
			return err
		}
	default:
		n.rest(out, e)
	}
	if out.GetType() != "" {
		n.add(out, "")
	}
	return nil
}

// displayOf is what the daemon says of how an event is shown.
func displayOf(e *agentdv1.RunResponse) *gestaltv1.AgentTurnDisplay {
	d := e.GetDisplay()
	return &gestaltv1.AgentTurnDisplay{
		Kind:  strings.ToLower(strings.TrimPrefix(d.GetKind().String(), "KIND_")),
		Phase: strings.ToLower(strings.TrimPrefix(d.GetPhase().String(), "PHASE_")),
		Ref:   strings.TrimPrefix(d.GetRef(), "tool:"),
	}
}

// piece adds a piece of a message's text, or of a thought; pieces that follow each other become one.
func (n *numbering) piece(e *gestaltv1.AgentTurnEvent, c *agentdv1.RunResponse_OutputChunk) {
	message, text := c.GetMessageId(), c.GetContent()
	e.Type = "agent.message.delta"
	if c.GetIsThought() {
		e.Type, e.Visibility, message = "agent.reasoning.delta", visiblePrivate, ""
		if !n.contents {
			text = ""
		}
	}
	if i := len(n.out) - 1; i < 0 || n.out[i].GetType() != e.GetType() ||
		n.out[i].GetDisplay().GetRef() != e.GetDisplay().GetRef() {
		n.add(e, message)
	}
	n.said.WriteString(text)
}

// text is the text of a message that is complete. What was said before it was retracted comes first among its pieces.
func (n *numbering) text(ctx context.Context, m *agentdv1.MessageCompleted) (string, error) {
	n.settle()
	var b strings.Builder
	known, err := n.p.store.Pieces(ctx, n.t.ID, m.GetMessageId())
	if err != nil {
		return "", err
	}
	for i := range known {
		e := &gestaltv1.AgentTurnEvent{}
		n.p.decode(known[i].Data, e)
		b.WriteString(e.GetData().GetFields()["text"].GetStringValue())
	}
	for i, e := range n.out {
		if n.messages[i] == m.GetMessageId() {
			b.WriteString(e.GetData().GetFields()["text"].GetStringValue())
		}
	}
	text := b.String()
	return text[max(0, len(text)-int(m.GetTextBytes())):], nil
}

// started is about a tool call that begins.
func (n *numbering) started(e *gestaltv1.AgentTurnEvent, c interface {
	GetToolCallId() string
	GetToolName() string
	GetToolInput() string
},
) {
	e.Type, e.Display.Label = "tool.started", c.GetToolName()
	e.Data = texts(map[string]string{"tool_call_id": c.GetToolCallId(), "tool_name": c.GetToolName()})
	if n.contents {
		e.Visibility = visiblePrivate
		e.Data.Fields["arguments"] = valueOf(c.GetToolInput())
		e.Display.Input = e.Data.Fields["arguments"]
	}
}

// answered is about the result of a tool call.
func (n *numbering) answered(e *gestaltv1.AgentTurnEvent, a *agentdv1.ToolCallAnswered) {
	e.Type, e.Display.Label = "tool.completed", a.GetToolName()
	e.Data = texts(map[string]string{"tool_call_id": a.GetToolCallId(), "tool_name": a.GetToolName()})
	failed, isFailed := a.GetResult().(*agentdv1.ToolCallAnswered_Error)
	if isFailed {
		e.Type = "tool.failed"
	}
	if !n.contents {
		return
	}
	e.Visibility = visiblePrivate
	if isFailed {
		e.Display.Error = structpb.NewStringValue(failed.Error)
		e.Data.Fields["error"] = e.Display.Error
		return
	}
	e.Display.Output = valueOf(a.GetOutput())
	e.Data.Fields["output"] = e.Display.Output
}

// asks is about a question to a person.
func (n *numbering) asks(e *gestaltv1.AgentTurnEvent, in *agentdv1.Interaction) {
	e.Data = texts(map[string]string{"interaction_id": interactionID(in)})
	e.Display.Ref, e.Display.Label = interactionID(in), "interaction"
}

// end is about the end of the turn, as the daemon reports the turn.
func (n *numbering) end(ctx context.Context, e *gestaltv1.AgentTurnEvent) error {
	d, err := n.p.daemonTurn(ctx, n.t)
	if err != nil {
		return n.p.passed(ctx, err)
	}
	e.Display.Label = "turn"
	switch d.GetStatus() {
	case agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED:
		e.Type, e.Display.Phase = "turn.completed", "completed"
	case agentdv1.TurnStatus_TURN_STATUS_CANCELED:
		e.Type, e.Data = "turn.canceled", texts(map[string]string{"reason": d.GetStatusMessage()})
		e.Display.Phase, e.Display.Text = "canceled", d.GetStatusMessage()
	default:
		e.Type, e.Data = "turn.failed", texts(map[string]string{"error": d.GetStatusMessage()})
		e.Display.Phase, e.Display.Text = "failed", d.GetStatusMessage()
		e.Display.Error = structpb.NewStringValue(d.GetStatusMessage())
	}
	return nil
}

// rest is about anything else. It is all contents, so there is nothing of it without them.
func (n *numbering) rest(e *gestaltv1.AgentTurnEvent, m *agentdv1.RunResponse) {
	set := m.ProtoReflect().WhichOneof(m.ProtoReflect().Descriptor().Oneofs().ByName("response"))
	if !n.contents || set == nil {
		return
	}
	e.Type, e.Visibility = "agentd."+string(set.Name()), visiblePrivate
	data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m.ProtoReflect().Get(set).Message().Interface())
	if err == nil {
		e.Data = &structpb.Struct{}
		err = protojson.Unmarshal(data, e.Data)
	}
	if err != nil { // it nests more than the host's form can
		e.Data = nil
	}
}

// texts is an object of texts.
func texts(of map[string]string) *structpb.Struct {
	out := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for key, text := range of {
		out.Fields[key] = structpb.NewStringValue(text)
	}
	return out
}
