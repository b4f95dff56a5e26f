package agentd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/remote"
	"github.com/apzuk3/agentd/model"
)

// stream watches the turn of the present message. It connects when it is read: before the message is sent there is no
// such turn.
type stream struct {
	ctx    context.Context
	cancel context.CancelFunc
	d      *Driver
	s      remote.Session
	in     *connect.ServerStreamForClient[agentdv1.WatchTurnResponse]
	texts  map[string]*strings.Builder // of messages that are not complete
	failed *agentdv1.RunResponse_ErrorResponse
	queue  []remote.Event // that have been read
}

// maxOpen bounds the text of messages that are not complete, in bytes.
const maxOpen = 8 << 20

// Connect implements remote.Pusher.
func (d *Driver) Connect(ctx context.Context, s remote.Session) (remote.Stream, error) {
	inner, cancel := context.WithCancel(ctx)
	return &stream{ctx: inner, cancel: cancel, d: d, s: s, texts: map[string]*strings.Builder{}}, nil
}

// Close implements remote.Stream.
func (s *stream) Close() {
	s.cancel()
	if s.in != nil {
		_ = s.in.Close()
	}
}

// connect begins at the cursor.
func (s *stream) connect() error {
	req := &agentdv1.WatchTurnRequest{SessionId: s.s.ID, TurnId: turnID(s.s)}
	for _, t := range s.s.Spec.Tools {
		req.ToolNames = append(req.ToolNames, t.Name)
	}
	if after, err := strconv.ParseInt(s.s.Cursor, 10, 64); err == nil {
		req.AfterSeq = &after
	}
	in, err := s.d.stub.WatchTurn(s.ctx, connect.NewRequest(req))
	s.in = in
	return failed(s.ctx, err)
}

// Next implements remote.Stream.
func (s *stream) Next() (remote.Event, error) {
	if s.in == nil {
		if err := s.connect(); err != nil {
			return remote.Event{}, err
		}
	}
	for len(s.queue) == 0 {
		if !s.in.Receive() {
			err := s.in.Err()
			if err == nil || errors.Is(err, io.EOF) {
				err = connect.NewError(connect.CodeUnavailable, errors.New("the stream ended before the turn"))
			}
			return remote.Event{}, failed(s.ctx, err)
		}
		var err error
		if s.queue, err = s.read(s.in.Msg().GetEvent()); err != nil {
			return remote.Event{}, err
		}
	}
	ev := s.queue[0]
	s.queue = s.queue[1:]
	return ev, nil
}

// read translates an event.
func (s *stream) read(m *agentdv1.RunResponse) ([]remote.Event, error) {
	seq := strconv.FormatInt(m.GetSeq(), 10)
	out := remote.Event{Cursor: seq, Raw: rawOf(m)}
	switch r := m.GetResponse().(type) {
	case *agentdv1.RunResponse_OutputChunk_:
		return nil, s.chunk(r.OutputChunk)
	case *agentdv1.RunResponse_MessageRetracted:
		if id := r.MessageRetracted.GetMessageId(); id != "" {
			delete(s.texts, id)
		} else {
			clear(s.texts)
		}
		return nil, nil
	case *agentdv1.RunResponse_MessageCompleted:
		id := r.MessageCompleted.GetMessageId()
		out.ID = "message " + id
		if b := s.texts[id]; b != nil {
			out.Text = b.String()
		}
		delete(s.texts, id)
	case *agentdv1.RunResponse_ModelCallEnded:
		out.ID, out.Usage = "usage "+seq, usageOf(r.ModelCallEnded.GetUsage())
		out.Served = r.ModelCallEnded.GetServedModel()
	case *agentdv1.RunResponse_ProviderToolsUsed:
		return uses(r.ProviderToolsUsed, out), nil
	case *agentdv1.RunResponse_ToolCall:
		return s.calls(r.ToolCall.GetToolCallId(), out)
	case *agentdv1.RunResponse_Error:
		if m.GetSeq() > 0 {
			s.failed = r.Error
		}
		return nil, nil
	case *agentdv1.RunResponse_End:
		out.ID, out.Stop = "end "+seq, s.end(r.End)
	default:
		return nil, nil
	}
	return []remote.Event{out}, nil
}

// calls returns the calls that the turn waits for, and the boundary, when one of them comes: all calls of a response
// are asked at once, and an agent that waits does nothing else. One that has its result meanwhile is none.
func (s *stream) calls(id string, first remote.Event) ([]remote.Event, error) {
	resp, err := s.d.stub.GetTurn(s.ctx, connect.NewRequest(&agentdv1.GetTurnRequest{
		SessionId: s.s.ID, TurnId: turnID(s.s),
	}))
	if err != nil {
		return nil, failed(s.ctx, err)
	}
	pending := resp.Msg.GetTurn().GetPendingToolCalls()
	waits := func(c *agentdv1.RunResponse_ToolCallRequest) bool { return c.GetToolCallId() == id }
	if !slices.ContainsFunc(pending, waits) {
		return nil, nil
	}
	var out []remote.Event
	stop := &remote.Stop{Terminal: remote.RequiresAction, Reason: "it waits for tools"}
	for _, c := range pending {
		ev := remote.Event{ID: "call " + c.GetToolCallId(), Cursor: first.Cursor, Call: &remote.Call{
			ID: c.GetToolCallId(), Name: c.GetToolName(), Input: json.RawMessage(c.GetToolInput()),
		}}
		if c.GetToolCallId() == id {
			ev.Raw = first.Raw
		}
		out, stop.Calls = append(out, ev), append(stop.Calls, c.GetToolCallId())
	}
	return append(out, remote.Event{Stop: stop}), nil
}

// uses returns what the backend's provider has run.
func uses(p *agentdv1.ProviderToolsUsed, first remote.Event) []remote.Event {
	var out []remote.Event
	for i, u := range p.GetUses() {
		use := &remote.Use{
			ID: u.GetId(), Name: u.GetToolName(), Input: u.GetInput(), Output: u.GetOutput(), Error: u.GetError(),
		}
		out = append(out, remote.Event{ID: fmt.Sprintf("use %s %d", first.Cursor, i), Cursor: first.Cursor, Use: use})
	}
	if len(out) > 0 {
		out[0].Raw = first.Raw
	}
	return out
}

// end is what the end of the turn means.
func (s *stream) end(e *agentdv1.RunResponse_EndResponse) *remote.Stop {
	if e.GetCompleted() {
		return &remote.Stop{Terminal: remote.EndTurn, Reason: "the turn is over"}
	}
	why := cmp.Or(s.failed.GetMessage(), e.GetReason(), "no reason given")
	return &remote.Stop{Terminal: remote.Terminated, Reason: "the turn did not complete: " + remote.Cut(why)}
}

func usageOf(u *agentdv1.Usage) *model.Usage {
	return &model.Usage{
		Prompt: u.GetPromptTokens(), Completion: u.GetCompletionTokens(), Cached: u.GetCachedTokens(),
		CacheWrite: u.GetCacheWriteTokens(), Thoughts: u.GetThoughtsTokens(), Total: u.GetTotalTokens(),
	}
}

func rawOf(m *agentdv1.RunResponse) []byte {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return nil
	}
	return raw
}

func (s *stream) chunk(c *agentdv1.RunResponse_OutputChunk) error {
	if c.GetIsThought() || c.GetContent() == "" {
		return nil
	}
	b := s.texts[c.GetMessageId()]
	if b == nil {
		b = &strings.Builder{}
		s.texts[c.GetMessageId()] = b
	}
	if b.WriteString(c.GetContent()); b.Len() > maxOpen || len(s.texts) > 64 {
		return &remote.Error{Code: agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED, Message: "it says more than is read"}
	}
	return nil
}
