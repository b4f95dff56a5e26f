package daemon_test

import (
	"net"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/link"
)

// asksTwice speaks and asks for a tool, twice, and then speaks.
const asksTwice = `answers:
  - {when: {step: 1}, text: "one ", calls: [{name: look, args: {}}]}
  - {when: {step: 2}, text: "two ", calls: [{name: look, args: {}}]}
  - {when: {step: 3}, text: "three"}
`

// behindLink starts another daemon, which the others reach by a link alone.
func (r *replicas) behindLink() (*daemon.Daemon, *link.Link) {
	r.t.Helper()
	l, err := new(net.ListenConfig).Listen(r.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	way := link.New(r.t, l.Addr().String())
	return r.addAt(l, "http://"+way.Addr()), way
}

// asker has a turn of asksTwice at a daemon, whose client it is by single calls.
type asker struct {
	t    *testing.T
	at   agentdv1connect.SessionServiceClient
	turn *agentdv1.Turn
}

func newAsker(t *testing.T, d *daemon.Daemon) *asker {
	t.Helper()
	a := &asker{t: t, at: service(t, d)}
	a.turn = call(t, a.at.CreateTurn, &agentdv1.CreateTurnRequest{
		Execute: execute(llm("root", "scripted/asks", "look"), "go", tool("look", `{"type":"object"}`)).GetExecute(),
	}).GetTurn()
	return a
}

// answer gives the result of the call that the turn waits for.
func (a *asker) answer(id string) {
	a.t.Helper()
	call(a.t, a.at.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{
		SessionId: a.turn.GetSessionId(), TurnId: a.turn.GetId(),
		Results: []*agentdv1.RunRequest_ToolCallResponse{{
			ToolCallId: id, Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: `"seen"`},
		}},
	})
}

// read is what a client receives of a turn.
type read struct {
	t    *testing.T
	in   *connect.ServerStreamForClient[agentdv1.WatchTurnResponse]
	said string
	last int64
}

func newRead(t *testing.T, c agentdv1connect.SessionServiceClient, req *agentdv1.WatchTurnRequest) *read {
	t.Helper()
	in, err := c.WatchTurn(t.Context(), connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	return &read{t: t, in: in}
}

// until receives until a message is one that is wanted.
func (r *read) until(is func(*agentdv1.RunResponse) bool) *agentdv1.RunResponse {
	r.t.Helper()
	for r.in.Receive() {
		m := r.in.Msg().GetEvent()
		if m.GetError() != nil {
			r.t.Fatalf("the client reads %v", m.GetError())
		}
		if seq := m.GetSeq(); seq > 0 {
			if seq < r.last || seq == r.last && m.GetToolCall() == nil {
				r.t.Errorf("position %d after %d", seq, r.last)
			}
			r.last = seq
		}
		r.said += m.GetOutputChunk().GetContent()
		if is(m) {
			return m
		}
	}
	r.t.Fatalf("the stream ends with %v after %q", r.in.Err(), r.said)
	return nil
}

func (r *read) call() string {
	r.t.Helper()
	return r.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCallAnnounced() != nil }).
		GetToolCallAnnounced().GetToolCallId()
}

// TestObserverBehindCut: an observer whose daemon does not reach the owner, which lives and works, receives what is in
// the log, and the rest when the link is whole again: by one stream, each event once and in order.
func TestObserverBehindCut(t *testing.T) {
	t.Parallel()
	r := startReplicas(t, 1, daemon.Config{Scripts: map[string]string{"asks": asksTwice}})
	owner, way := r.behindLink()
	a := newAsker(t, owner)
	observes := &agentdv1.WatchTurnRequest{SessionId: a.turn.GetSessionId(), Observe: true}
	early := newRead(t, service(t, r.each[0]), observes)
	id := early.call()
	way.Cut()
	late := newRead(t, service(t, r.each[0]), observes)
	if got := late.call(); got != id {
		t.Errorf("behind the cut link call %q is announced, want %q", got, id)
	}
	a.answer(id)
	id = early.call()
	if got := late.call(); got != id {
		t.Errorf("behind the cut link call %q is announced, want %q", got, id)
	}
	way.Heal()
	a.answer(id)
	for _, w := range []*read{early, late} {
		w.until(func(m *agentdv1.RunResponse) bool { return m.GetEnd() != nil })
		if w.said != "one two three" {
			t.Errorf("the observer reads %q", w.said)
		}
	}
}

// TestClientBehindCut: a client that takes part in a turn by a daemon which does not reach the owner, which lives, goes on
// by its stream: the owner lets go of the session. So does a call. Nothing is done twice.
func TestClientBehindCut(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*link.Link){"cut": (*link.Link).Cut, "loses all": (*link.Link).Hold} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startReplicas(t, 1, daemon.Config{Scripts: map[string]string{"asks": asksTwice}})
			owner, way := r.behindLink()
			a := newAsker(t, owner)
			takes := &agentdv1.WatchTurnRequest{SessionId: a.turn.GetSessionId(), ToolNames: []string{"look"}}
			a.at = service(t, r.each[0])
			mine := newRead(t, a.at, takes)
			isCall := func(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil }
			id := mine.until(isCall).GetToolCall().GetToolCallId()
			observer := newRead(t, service(t, owner), &agentdv1.WatchTurnRequest{SessionId: a.turn.GetSessionId(), Observe: true})
			if got := observer.call(); got != id {
				t.Errorf("the observer sees the call %q, want %q", got, id)
			}
			cut(way)
			a.answerSoon(id)
			next := mine.until(func(m *agentdv1.RunResponse) bool { return isCall(m) && m.GetToolCall().GetToolCallId() != id }).
				GetToolCall().GetToolCallId()
			a.answer(next)
			for _, w := range []*read{mine, observer} {
				w.until(func(m *agentdv1.RunResponse) bool { return m.GetEnd() != nil })
				if w.said != "one two three" {
					t.Errorf("the client reads %q", w.said)
				}
			}
		})
	}
}

// answerSoon is answer, made again while it is refused with UNAVAILABLE.
func (a *asker) answerSoon(id string) {
	a.t.Helper()
	for {
		_, err := a.at.SubmitToolResults(a.t.Context(), connect.NewRequest(&agentdv1.SubmitToolResultsRequest{
			SessionId: a.turn.GetSessionId(), TurnId: a.turn.GetId(),
			Results: []*agentdv1.RunRequest_ToolCallResponse{{
				ToolCallId: id, Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: `"seen"`},
			}},
		}))
		if err == nil {
			return
		}
		if connect.CodeOf(err) != connect.CodeUnavailable {
			a.t.Fatal(err)
		}
	}
}
