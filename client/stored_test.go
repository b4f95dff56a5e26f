package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// placed gives a message a position.
func placed(seq int64, m *agentdv1.RunResponse) *agentdv1.RunResponse {
	m.Seq, m.TurnId = seq, "turn"
	return m
}

func callMsg(id, tool string) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCall{ToolCall: &agentdv1.RunResponse_ToolCallRequest{
		SessionId: session, ToolCallId: id, ToolName: tool, ToolInput: "{}", AgentPath: []string{"root"},
	}}}
}

func refusalMsg(code agentdv1.ErrorCode, call string) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Error{Error: &agentdv1.RunResponse_ErrorResponse{
		SessionId: session, Code: code, Message: "no room", ToolCallId: call,
	}}}
}

// A result that the server refuses without settling the call is reported as a refusal
// and replaced by an error, once. No result is reported but the stored one, and a refusal
// of the error is not reported.
func TestRefusedResultIsReplacedOnce(t *testing.T) {
	for _, refusedTwice := range []bool{false, true} {
		url := serve(t, func(_ context.Context, s *peer) error {
			started := &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Execute{Execute: &agentdv1.RunResponse_ExecuteResponse{SessionId: session}}}
			if err := steps(
				func() error { return s.send(placed(10, started)) },
				func() error { return s.send(placed(20, callMsg("c", "work"))) },
			); err != nil {
				return err
			}
			first, err := s.toolResult()
			if err != nil {
				return err
			}
			if err := s.send(refusalMsg(agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED, "c")); err != nil {
				return err
			}
			second, err := s.toolResult()
			if err != nil {
				return err
			}
			if first.GetOutput() != "done" || !strings.Contains(second.GetError(), "its result was refused") || !strings.Contains(second.GetError(), "no room") {
				return fmt.Errorf("answered with %v, then %v", first, second)
			}
			if refusedTwice {
				if err := s.send(refusalMsg(agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "c")); err != nil {
					return err
				}
			}
			end := &agentdv1.RunResponse_EndResponse{SessionId: session, Completed: true}
			return steps(
				func() error { return s.send(placed(30, resultMsg(second))) },
				func() error {
					return s.send(placed(40, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_End{End: end}}))
				},
				func() error { _, err := s.receive(); return err },
			)
		})
		c := dial(t, url)
		mustAdd(t, client.AddTool(c, "work", "works", func(context.Context, struct{}) (any, error) { return "done", nil }))
		var reported []string
		for event, err := range c.Run(t.Context(), llm("work"), "hi") {
			switch {
			case err != nil:
				t.Fatal(err)
			case event.Error != nil:
				reported = append(reported, event.Error.Message)
			case as[*client.ToolCallAnswered](event) != nil:
				reported = append(reported, "result "+as[*client.ToolCallAnswered](event).Output+as[*client.ToolCallAnswered](event).Error)
			}
		}
		if len(reported) != 2 || reported[0] != "no room" || !strings.Contains(reported[1], "result the tool ran, but its result was refused") {
			t.Errorf("the caller is told %q", reported)
		}
	}
}

// A result that the server cannot take now is no refusal: the client comes back, repeats
// the same result, and reports nothing.
func TestUnacceptedResultIsSentAgain(t *testing.T) {
	var streams, ran atomic.Int32
	started := func() *agentdv1.RunResponse {
		return placed(10, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Execute{Execute: &agentdv1.RunResponse_ExecuteResponse{SessionId: session}}})
	}
	url := serve(t, func(_ context.Context, s *peer) error {
		stream := streams.Add(1)
		if stream == 1 {
			if err := s.send(started()); err != nil {
				return err
			}
		} else if s.attach.GetAfterSeq() != 20 {
			return fmt.Errorf("stream %d begins with %v and %v", stream, s.execute, s.attach)
		}
		if err := s.send(placed(20, callMsg("c", "work"))); err != nil {
			return err
		}
		said, err := s.toolResult()
		if err != nil {
			return err
		}
		if stream < 3 && said.GetOutput() == "done" {
			refusal := refusalMsg(agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE, "c")
			refusal.GetError().Retryable = true
			if err := s.send(refusal); err != nil {
				return err
			}
			if said, err = s.toolResult(); err != nil { // the client leaves
				return err
			}
		}
		end := &agentdv1.RunResponse_EndResponse{SessionId: session, Completed: true}
		return steps(
			func() error { return s.send(placed(30, resultMsg(said))) },
			func() error {
				return s.send(placed(40, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_End{End: end}}))
			},
			func() error { _, err := s.receive(); return err },
		)
	})
	c := dial(t, url, quick)
	mustAdd(t, client.AddTool(c, "work", "works", func(context.Context, struct{}) (any, error) { ran.Add(1); return "done", nil }))
	var reported []string
	for event, err := range c.Run(t.Context(), llm("work"), "hi") {
		switch {
		case err != nil:
			t.Fatal(err)
		case event.Error != nil:
			reported = append(reported, "error "+event.Error.Message)
		case as[*client.ToolCallAnswered](event) != nil:
			reported = append(reported, "result "+as[*client.ToolCallAnswered](event).Output+as[*client.ToolCallAnswered](event).Error)
		}
	}
	if len(reported) != 1 || reported[0] != "result done" || streams.Load() != 3 || ran.Load() != 1 {
		t.Errorf("told %q after %d streams, the tool ran %d times", reported, streams.Load(), ran.Load())
	}
}

// A call that nobody serves is reported once, though the client comes back, and once more
// when it loses its client a second time.
func TestUnservedCallsAreReported(t *testing.T) {
	expires := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	unserved := func(id string) *agentdv1.RunResponse {
		return &agentdv1.RunResponse{TurnId: "turn", Response: &agentdv1.RunResponse_ToolCallUnserved{ToolCallUnserved: &agentdv1.ToolCallUnserved{
			SessionId: session, ToolCallId: id, ToolName: "look", AgentPath: []string{"root"}, ExpireTime: timestamppb.New(expires),
		}}}
	}
	l := newTurnLog(t, func(l *turnLog) { l.say("m", "one") })
	l.hook = func(_ context.Context, stream int, s *peer) (bool, error) {
		says := [][]string{{"1"}, {"1", "2", "2"}, {"2", "2"}}[stream-1]
		if stream == 1 {
			if err := l.sendTwo(s); err != nil {
				return true, err
			}
		}
		for _, id := range says {
			if err := s.send(unserved(id)); err != nil {
				return true, err
			}
		}
		if stream < 3 {
			return true, errors.New("the stream breaks")
		}
		l.finish(true, "")
		return false, nil
	}
	var ids []string
	for event, err := range dial(t, host(t, l), quick).Run(t.Context(), llm(), "hi") {
		if err != nil {
			t.Fatal(err)
		}
		if u := as[*client.ToolCallUnserved](event); u != nil {
			ids = append(ids, u.ID)
			if u.Name != "look" || len(u.AgentPath) != 1 || !u.ExpireTime.Equal(expires) || event.Seq != 0 {
				t.Errorf("told %+v", u)
			}
		}
	}
	if got := strings.Join(ids, " "); got != "1 2 2 2" {
		t.Errorf("told of %s", got)
	}
}

// Null in a state update removes the key, for tools and in what Do returns.
func TestStateKeysAreRemoved(t *testing.T) {
	null := structpb.NewNullValue()
	update := func(fields map[string]*structpb.Value) *agentdv1.RunResponse {
		return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_StateUpdate_{StateUpdate: &agentdv1.RunResponse_StateUpdate{
			SessionId: session, StateDelta: &structpb.Struct{Fields: fields},
		}}}
	}
	url := serve(t, func(_ context.Context, s *peer) error {
		return steps(
			s.started,
			func() error { return s.state(t, map[string]any{"a": 1, "b": 2}) },
			func() error { return s.send(update(map[string]*structpb.Value{"a": null})) },
			func() error { return s.call("c", "look", "{}") },
			func() error {
				m, err := s.toolResult()
				if err == nil && (m.GetOutput() != "false true false" || m.GetStateDeltaJson() != `{"b":null}`) {
					err = fmt.Errorf("answered with %v", m)
				}
				return err
			},
			func() error { return s.end(true, "") },
		)
	})
	c := dial(t, url)
	mustAdd(t, client.AddTool(c, "look", "looks", func(ctx context.Context, _ struct{}) (any, error) {
		call := client.CallFrom(ctx)
		_, a := call.State("a")
		_, b := call.State("b")
		if err := call.SetState("b", nil); err != nil {
			return nil, err
		}
		_, gone := call.State("b")
		return fmt.Sprint(a, b, gone), nil
	}))
	result, err := c.Do(t.Context(), llm("look"), "hi")
	if err != nil || len(result.State) != 1 || result.State["b"] != 2.0 {
		t.Errorf("got %v, %v", result.State, err)
	}
}

// A session id that is to be made is said to be so, on each attempt to start, and
// never where the turn is attached to.
func TestSessionOrNew(t *testing.T) {
	l := newTurnLog(t, func(l *turnLog) {
		l.say("m", "one")
		l.finish(true, "")
	})
	l.cut = func(stream, sent int) bool { return stream == 1 && sent == 1 }
	c := dial(t, host(t, l), quick)
	if _, err := c.Do(t.Context(), llm(), "hi", client.WithSessionOrNew("mine")); err != nil {
		t.Fatal(err)
	}
	first, second := l.streams[0].execute, l.streams[1].attach
	if !first.GetCreate() || first.GetSessionId() != "mine" || second.GetSessionId() != session {
		t.Errorf("sent %v, then %v", first, second)
	}
	if _, err := c.Do(t.Context(), llm(), "hi", client.WithSessionOrNew("")); !errors.Is(err, client.ErrInvalidRequest) {
		t.Errorf("no id: %v", err)
	}
}
