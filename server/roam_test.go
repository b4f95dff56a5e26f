package server_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// plainExecute begins a turn as a client does that knows nothing of attaching.
func plainExecute() *agentdv1.RunRequest {
	msg := execute()
	msg.GetExecute().OnDisconnect = 0
	return msg
}

// knowing begins a turn as a client does that knows how to attach.
func knowing() *agentdv1.RunRequest {
	msg := plainExecute()
	msg.GetExecute().IdempotencyKey = "k"
	return msg
}

// running is a client's stream of Run.
type running struct {
	t             *testing.T
	run           *connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse]
	session, turn string
	said          string
	last          int64
	failed        *agentdv1.RunResponse_ErrorResponse
	end           *agentdv1.RunResponse_EndResponse
}

// begin opens a stream.
func begin(ctx context.Context, t *testing.T, at *peerServer, first *agentdv1.RunRequest) *running {
	t.Helper()
	r := &running{t: t, run: at.runs.Run(ctx)}
	if err := r.run.Send(first); err != nil {
		t.Fatal(err)
	}
	return r
}

// until receives until a message is one that is wanted, or the stream's last.
func (r *running) until(wanted func(*agentdv1.RunResponse) bool) bool {
	r.t.Helper()
	for {
		m, err := r.run.Receive()
		if err != nil {
			return false
		}
		if seq := m.GetSeq(); seq > 0 {
			if seq < r.last || seq == r.last && m.GetToolCall() == nil { // a call is offered again
				r.t.Errorf("position %d after %d", seq, r.last)
			}
			r.last, r.turn = seq, m.GetTurnId()
		}
		r.session = cmp.Or(r.session, m.GetExecute().GetSessionId(), m.GetOutputChunk().GetSessionId())
		r.said += m.GetOutputChunk().GetContent()
		if m.GetError() != nil {
			r.failed = m.GetError()
		}
		if m.GetEnd() != nil {
			r.end = m.GetEnd()
		}
		if wanted(m) {
			return true
		}
		if m.GetEnd() != nil {
			return false
		}
	}
}

// untilCall receives until the client is asked for its tool.
func (r *running) untilCall() {
	r.t.Helper()
	if !r.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil }) {
		r.t.Fatalf("no call after %q, %v, %v", r.said, r.failed, r.end)
	}
}

// answer gives the result of the tool.
func (r *running) answer() {
	r.t.Helper()
	if err := r.run.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{
		ToolCallResponse: &agentdv1.RunRequest_ToolCallResponse{ToolCallId: "c-" + r.turn, SessionId: r.session,
			Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: `"ok"`}},
	}}); err != nil && !errors.Is(err, context.Canceled) {
		r.t.Logf("send: %v", err)
	}
}

// finish answers and receives the rest.
func (r *running) finish() {
	r.t.Helper()
	r.answer()
	r.until(func(*agentdv1.RunResponse) bool { return false })
	_ = r.run.CloseRequest()
	if r.said != "one moment. done" || r.failed != nil || !r.end.GetCompleted() {
		r.t.Errorf("it says %q and ends %v, %v", r.said, r.end, r.failed)
	}
}

// fence has the session go from a to b without a's doing.
func fence(a *peerServer, session string) {
	a.owns.Drain()
	claims := a.m.Held()
	if claims[session] == 0 {
		panic("the server does not hold the session that it has")
	}
	a.group.Orphan(session)
	a.m.LostAt(claims)
}

// drain stops a. stopped is closed when nothing of it runs any more.
func drain(t *testing.T, a *peerServer) <-chan struct{} {
	t.Helper()
	a.owns.Drain()
	a.srv.Drain()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if err := a.m.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	return stopped
}

// TestRunGoesOn has the session of a stream's turn go to another server, and the stream go on.
func TestRunGoesOn(t *testing.T) {
	for name, first := range map[string]func() *agentdv1.RunRequest{"plain": plainExecute, "knows to attach": knowing} {
		t.Run("fenced, "+name, func(t *testing.T) {
			all := peers(t, engine{run: askThenSay}, 2)
			r := begin(t.Context(), t, all[0], first())
			r.untilCall()
			fence(all[0], r.session)
			r.finish()
			if owned := all[0].owns.Fenced(); owned > 0 {
				t.Errorf("%d appends were fenced", owned)
			}
		})
	}
	t.Run("drained, plain", func(t *testing.T) {
		all := peers(t, engine{run: askThenSay}, 2)
		r := begin(t.Context(), t, all[0], plainExecute())
		r.untilCall()
		<-drain(t, all[0])
		r.finish()
	})
	t.Run("drained, observer of another server's", func(t *testing.T) {
		all := peers(t, engine{run: askThenSay}, 3)
		r := begin(t.Context(), t, all[0], plainExecute())
		r.untilCall()
		w, err := all[1].calls.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{
			SessionId: r.session, Observe: true,
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = w.Close() }()
		<-drain(t, all[0])
		r.finish()
		said := ""
		for w.Receive() {
			said += w.Msg().GetEvent().GetOutputChunk().GetContent()
			if e := w.Msg().GetEvent().GetError(); e != nil {
				t.Error(e)
			}
		}
		if w.Err() != nil || said != "one moment. done" {
			t.Errorf("the observer reads %q, %v", said, w.Err())
		}
	})
}

// TestDrainTellsClients has a server stop whose client knows how to attach: it is told, and goes on elsewhere.
func TestDrainTellsClients(t *testing.T) {
	for _, forwarded := range []bool{false, true} {
		name := map[bool]string{false: "the owner stops", true: "the server of the client stops"}[forwarded]
		t.Run(name, func(t *testing.T) {
			all := peers(t, engine{run: askThenSay}, 2)
			at, next := all[0], all[1]
			var r *running
			if forwarded {
				made, err := next.calls.CreateTurn(t.Context(),
					connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: knowing().GetExecute()}))
				if err != nil {
					t.Fatal(err)
				}
				turn := made.Msg.GetTurn()
				r = begin(t.Context(), t, at, attachTo(&running{session: turn.GetSessionId(), turn: turn.GetId()}))
			} else {
				r = begin(t.Context(), t, at, knowing())
			}
			r.untilCall()
			<-drain(t, at)
			r.until(func(*agentdv1.RunResponse) bool { return false })
			if r.failed.GetCode() != agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE ||
				!strings.Contains(r.failed.GetMessage(), "attach again") {
				t.Fatalf("the client reads %v, %v", r.failed, r.end)
			}
			said := r.said
			r = begin(t.Context(), t, next, attachTo(r))
			r.said = said
			r.untilCall()
			r.finish()
		})
	}
}

// another is a request of another key.
func another(msg *agentdv1.RunRequest) *agentdv1.RunRequest {
	msg.GetExecute().IdempotencyKey = "another"
	return msg
}

// attachTo attaches behind what a client has.
func attachTo(r *running) *agentdv1.RunRequest {
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{Attach: &agentdv1.AttachRequest{
		SessionId: r.session, TurnId: r.turn, AfterSeq: &r.last, ToolNames: []string{"tool"},
	}}}
}

// TestDrainBeginsElsewhere asks a server that stops for what another one can do.
func TestDrainBeginsElsewhere(t *testing.T) {
	all := peers(t, engine{run: askThenSay}, 2)
	long := begin(t.Context(), t, all[0], knowing()) // keeps the connection
	long.untilCall()
	stopped := drain(t, all[0])
	r := begin(t.Context(), t, all[0], plainExecute())
	r.untilCall()
	r.finish()
	<-stopped
	made, err := all[0].calls.CreateTurn(t.Context(),
		connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: plainExecute().GetExecute()}))
	if err != nil {
		t.Fatal(err)
	}
	if address, _ := all[0].group.OwnerOf(made.Msg.GetTurn().GetSessionId()); !strings.HasSuffix(all[1].url, address) {
		t.Errorf("the turn is at %q, want %q", address, all[1].url)
	}
	told := begin(t.Context(), t, all[0], another(knowing()))
	told.until(func(*agentdv1.RunResponse) bool { return false })
	if told.failed.GetCode() != agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE || told.turn == "" {
		t.Errorf("a client that can go elsewhere reads %v of turn %q", told.failed, told.turn)
	}
	told.failed = nil
	said := told.said
	told = begin(t.Context(), t, all[1], attachTo(told))
	told.said = said
	told.untilCall()
	told.finish()
	all[0].srv.End()
	last := begin(t.Context(), t, all[0], plainExecute())
	last.until(func(*agentdv1.RunResponse) bool { return false })
	if last.failed.GetCode() != agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE {
		t.Errorf("after the end the client reads %v", last.failed)
	}
}

// TestStaleOwner asks a server for what comes behind a position that it does not know: another one has taken the session
// and written to it.
func TestStaleOwner(t *testing.T) {
	all := peers(t, engine{run: askThenSay}, 2)
	a, b := all[0], all[1]
	r := begin(t.Context(), t, a, knowing())
	r.untilCall()
	a.owns.Drain()
	a.group.Orphan(r.session)
	w, err := b.calls.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{
		SessionId: r.session, TurnId: r.turn, ToolNames: []string{"tool"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	answered := int64(0)
	for answered == 0 && w.Receive() {
		switch m := w.Msg().GetEvent(); {
		case m.GetToolCall() != nil:
			_, err := b.calls.SubmitToolResults(t.Context(), connect.NewRequest(&agentdv1.SubmitToolResultsRequest{
				SessionId: r.session, TurnId: r.turn, Results: []*agentdv1.RunRequest_ToolCallResponse{{
					ToolCallId: "c-" + r.turn, SessionId: r.session,
					Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: `"ok"`},
				}},
			}))
			if err != nil {
				t.Fatal(err)
			}
		case m.GetToolCallAnswered() != nil:
			answered = m.GetSeq()
		}
	}
	for name, observe := range map[string]bool{"attaches": false, "observes": true} {
		late, err := a.calls.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{
			SessionId: r.session, TurnId: r.turn, AfterSeq: &answered, Observe: observe,
		}))
		if err != nil {
			t.Fatal(err)
		}
		said, ended := "", false
		for late.Receive() {
			m := late.Msg().GetEvent()
			said += m.GetOutputChunk().GetContent()
			ended = ended || m.GetEnd().GetCompleted()
			if m.GetError() != nil {
				t.Errorf("who %s reads %v", name, m.GetError())
			}
		}
		if err := late.Err(); err != nil || said != "done" || !ended {
			t.Errorf("who %s reads %q, %v, %v", name, said, ended, err)
		}
		_ = late.Close()
	}
}

// TestLeavesReachTheOwner has a client leave whose turn another server has.
func TestLeavesReachTheOwner(t *testing.T) {
	for name, leave := range map[string]struct {
		does func(r *running, reset func())
		want string
	}{
		"resets": {func(r *running, reset func()) {
			reset()
			_ = r.run.CloseResponse()
		}, "reset its stream"},
		"closes its side": {func(r *running, _ func()) {
			if err := r.run.CloseRequest(); err != nil {
				r.t.Error(err)
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			all := peers(t, engine{run: askThenSay}, 2)
			ctx, reset := context.WithCancel(t.Context())
			defer reset()
			r := begin(ctx, t, all[0], plainExecute())
			r.untilCall()
			w, err := all[1].calls.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{
				SessionId: r.session, Observe: true,
			}))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = w.Close() }()
			fence(all[0], r.session)
			for _, address := "", ""; address == ""; { // until b has it
				address, _ = all[0].group.OwnerOf(r.session)
			}
			leave.does(r, reset)
			var end *agentdv1.RunResponse_EndResponse
			for w.Receive() {
				if w.Msg().GetEvent().GetEnd() != nil {
					end = w.Msg().GetEvent().GetEnd()
				}
			}
			if end == nil || !strings.Contains(end.GetReason(), leave.want) || end.GetCompleted() != (leave.want == "") {
				t.Errorf("the turn ends %v, %v", end, w.Err())
			}
		})
	}
}
