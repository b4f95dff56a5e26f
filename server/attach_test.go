package server_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
)

// attach is the message that attaches to a session's last turn, after what the
// client has: seq 0 is nothing, a negative one leaves the position out.
func attach(sessionID string, seq int64, tools ...string) *agentdv1.RunRequest {
	at := &agentdv1.AttachRequest{SessionId: sessionID, ToolNames: tools}
	if seq >= 0 {
		at.AfterSeq = &seq
	}
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{Attach: at}}
}

// drop lets go of a stream as a client does that has died.
func (c *conversation) drop(cancel context.CancelFunc) {
	cancel()
	_ = c.CloseRequest()
	_ = c.CloseResponse()
}

// endedEarly checks that a stream has ended before its turn, and why.
func endedEarly(t *testing.T, msgs []*agentdv1.RunResponse, code agentdv1.ErrorCode, text string) {
	t.Helper()
	if len(msgs) == 0 || slices.ContainsFunc(msgs, isEnd) {
		t.Fatalf("want a stream that ends without EndResponse, got %s", show(msgs))
	}
	last := msgs[len(msgs)-1]
	if e := last.GetError(); e.GetCode() != code || !strings.Contains(e.GetMessage(), text) || last.GetSeq() != 0 {
		t.Errorf("want %v with %q and no seq at last, got %s", code, text, show(msgs))
	}
}

// stillRuns checks that the turn that began with a message continues, and cancels it.
func (f *fixture) stillRuns(t *testing.T, first *agentdv1.RunResponse) {
	t.Helper()
	c := f.open(t.Context(), t)
	c.send(attach(first.GetExecute().GetSessionId(), -1))
	if second := c.next(); second.GetExecute() == nil || second.GetSeq() != first.GetSeq() || !second.GetReplayed() {
		t.Errorf("want the turn from its beginning, got %v", second)
	}
	c.send(cancelTurn())
	if e := lastOf(t, c.toEnd()); e.GetCompleted() || e.GetReason() != "cancelled by the client" {
		t.Errorf("the turn had ended before: %v", e)
	}
}

// gate is a turn in two parts.
func gate(open <-chan struct{}) engine {
	return engine{run: func(ctx context.Context, run *session.Run) error {
		if err := say(ctx, run, "m1", "one", " two"); err != nil {
			return err
		}
		select {
		case <-open:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return say(ctx, run, "m2", " three")
	}}
}

// A client that goes away and comes back misses nothing and repeats nothing.
func TestDropAndAttach(t *testing.T) {
	open := make(chan struct{})
	f := serve(t, gate(open), server.Config{})
	onEachWire(t, func(t *testing.T, opts []connect.ClientOption) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := f.open(ctx, t, opts...)
		c.send(withField(func(m *agentdv1.RunRequest) {
			m.GetExecute().OnDisconnect = agentdv1.OnDisconnect_ON_DISCONNECT_CONTINUE
		}))
		msgs := c.until(isText)
		id := msgs[0].GetExecute().GetSessionId()
		last := msgs[len(msgs)-1]
		c.drop(cancel)

		c = f.open(t.Context(), t, opts...)
		c.send(attach(id, last.GetSeq()))
		open <- struct{}{}
		rest := c.toEnd()
		if got := joined(append(msgs, rest...)); got != "one two three" {
			t.Errorf("text %q: %s%s", got, show(msgs), show(rest))
		}
		if !lastOf(t, rest).GetCompleted() {
			t.Error("the turn must complete")
		}
		seq := last.GetSeq()
		for _, m := range rest {
			if m.GetSeq() <= seq || m.GetTurnId() != last.GetTurnId() {
				t.Errorf("want rising positions of one turn, got %d after %d: %v", m.GetSeq(), seq, m)
			}
			seq = m.GetSeq()
		}
	})
}

// A client that has all events learns that it is attached, and is served.
func TestAttachedWithNothingMissed(t *testing.T) {
	onPipes(t, engine{run: hold}, server.Config{}, func(t *testing.T, f *fixture) {
		for name, opts := range wires {
			c := f.run(t, opts...)
			msgs := c.until(isSaid)
			d := f.open(t.Context(), t, opts...)
			d.send(attach(msgs[0].GetExecute().GetSessionId(), msgs[len(msgs)-1].GetSeq()))
			d.send(heartbeat())
			if m := d.next(); m.GetHeartbeat() == nil || m.GetSeq() != 0 {
				t.Errorf("%s: got %v, want a HeartbeatResponse without seq", name, m)
			}
			c.send(end("enough"))
			for _, c := range []*conversation{c, d} {
				if lastOf(t, c.toEnd()).GetReason() != "enough" {
					t.Errorf("%s: want the turn's end on both streams", name)
				}
			}
		}
	})
}

// The headers say that a client is attached, also when there is nothing to send.
func TestHeadersOfAnAttachedStream(t *testing.T) {
	f := serve(t, engine{run: hold}, server.Config{})
	c := f.run(t)
	msgs := c.until(isText)
	d := f.open(t.Context(), t)
	d.send(attach(msgs[0].GetExecute().GetSessionId(), msgs[len(msgs)-1].GetSeq()))
	if got := d.ResponseHeader().Get("Content-Type"); got != wireProto { // waits for the headers
		t.Errorf("content type %q", got)
	}
	c.send(cancelTurn())
	lastOf(t, c.toEnd())
	lastOf(t, d.toEnd())
}

func TestRefusedAttach(t *testing.T) {
	f := serve(t, engine{run: hold}, server.Config{})
	c := f.run(t)
	msgs := c.until(isText)
	id := msgs[0].GetExecute().GetSessionId()
	change := func(m *agentdv1.RunRequest, edit func(*agentdv1.RunRequest_ExecuteRequest)) *agentdv1.RunRequest {
		edit(m.GetExecute())
		return m
	}
	changed := func(edit func(*agentdv1.AttachRequest)) *agentdv1.RunRequest {
		m := attach(id, 0)
		edit(m.GetAttach())
		return m
	}
	// What attached once: a session and no prompt.
	bare := func(edit func(*agentdv1.RunRequest_ExecuteRequest)) *agentdv1.RunRequest {
		ex := &agentdv1.RunRequest_ExecuteRequest{SessionId: &id}
		edit(ex)
		return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: ex}}
	}
	for name, tc := range map[string]struct {
		msg  *agentdv1.RunRequest
		code agentdv1.ErrorCode
		text string
	}{
		"unknown session":   {attach("nobody", 0), agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND, "nobody"},
		"future position":   {attach(id, msgs[len(msgs)-1].GetSeq()+1<<40), codeInvalid, "after_seq"},
		"no session":        {attach("", 0), codeInvalid, "attach.session_id"},
		"unknown turn":      {changed(func(a *agentdv1.AttachRequest) { a.TurnId = "other" }), agentdv1.ErrorCode_ERROR_CODE_NOT_FOUND, "other"},
		"negative position": {changed(func(a *agentdv1.AttachRequest) { a.AfterSeq = new(int64(-1)) }), codeInvalid, "attach.after_seq"},
		"visibility":        {changed(func(a *agentdv1.AttachRequest) { a.Visibility = 9 }), codeInvalid, "attach.visibility"},
		"observe, tools": {changed(func(a *agentdv1.AttachRequest) {
			a.Observe, a.ToolNames = true, []string{"tool"}
		}), codeInvalid, "attach.observe"},
		"execute, a session alone": {bare(func(*agentdv1.RunRequest_ExecuteRequest) {}), codeInvalid, "attach"},
		"execute, tools": {bare(func(e *agentdv1.RunRequest_ExecuteRequest) {
			e.Tools = []*agentdv1.Tool{{Name: "tool", Description: "a tool"}}
		}), codeInvalid, "attach"},
		"execute, a turn": {bare(func(e *agentdv1.RunRequest_ExecuteRequest) { e.TurnId = "t" }), codeInvalid, "attach"},
		"execute, state": {bare(func(e *agentdv1.RunRequest_ExecuteRequest) {
			e.InitialState = &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewBoolValue(true)}}
		}), codeInvalid, "attach"},
		"agent, no prompt": {change(execute(), func(e *agentdv1.RunRequest_ExecuteRequest) {
			e.SessionId, e.UserPrompt = &id, ""
		}), codeInvalid, "prompt"},
		"grace without cancel": {change(execute(), func(e *agentdv1.RunRequest_ExecuteRequest) {
			e.DisconnectGrace = durationpb.New(time.Second)
		}), codeInvalid, "ON_DISCONNECT_CANCEL"},
		"grace of a week": {change(execute(), func(e *agentdv1.RunRequest_ExecuteRequest) {
			e.OnDisconnect, e.DisconnectGrace = agentdv1.OnDisconnect_ON_DISCONNECT_CANCEL, durationpb.New(7*24*time.Hour)
		}), codeInvalid, "execute.disconnect_grace"},
		"unknown on_disconnect": {change(execute(), func(e *agentdv1.RunRequest_ExecuteRequest) { e.OnDisconnect = 9 }), codeInvalid, "execute.on_disconnect"},
		"second turn":           {change(execute(), func(e *agentdv1.RunRequest_ExecuteRequest) { e.SessionId = &id }), agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY, id},
	} {
		t.Run(name, func(t *testing.T) {
			d := f.open(t.Context(), t)
			d.send(tc.msg)
			got := d.rest()
			if len(got) != 1 {
				t.Fatalf("want one ErrorResponse, got %s", show(got))
			}
			endedEarly(t, got, tc.code, tc.text)
		})
	}
	c.send(end("bye"))
	if lastOf(t, c.toEnd()).GetReason() != "bye" {
		t.Error("what was refused must not touch the turn")
	}
}

// What becomes of a turn whose last client is gone is the client's choice.
func TestOnDisconnect(t *testing.T) {
	cancel := func(grace time.Duration) *agentdv1.RunRequest {
		m := execute()
		m.GetExecute().OnDisconnect = agentdv1.OnDisconnect_ON_DISCONNECT_CANCEL
		if grace > 0 {
			m.GetExecute().DisconnectGrace = durationpb.New(grace)
		}
		return m
	}
	start := func(t *testing.T, f *fixture, m *agentdv1.RunRequest) (id string, drop func()) {
		ctx, stop := context.WithCancel(t.Context())
		c := f.open(ctx, t)
		c.send(m)
		msgs := c.until(isText)
		return msgs[0].GetExecute().GetSessionId(), func() { c.drop(stop) }
	}
	t.Run("cancel at once", func(t *testing.T) {
		onPipes(t, engine{run: hold}, server.Config{}, func(t *testing.T, f *fixture) {
			id, drop := start(t, f, cancel(0))
			drop()
			time.Sleep(time.Second)
			c := f.open(t.Context(), t)
			c.send(attach(id, -1))
			if e := lastOf(t, c.rest()); e.GetCompleted() || !strings.Contains(e.GetReason(), "disconnected") {
				t.Errorf("got %v, want cancelled because the client disconnected", e)
			}
		})
	})
	t.Run("cancel after a grace", func(t *testing.T) {
		onPipes(t, engine{run: hold}, server.Config{}, func(t *testing.T, f *fixture) {
			id, drop := start(t, f, cancel(time.Minute))
			drop()
			time.Sleep(50 * time.Second)
			ctx, stop := context.WithCancel(t.Context())
			c := f.open(ctx, t)
			c.send(attach(id, -1)) // comes back in time
			c.until(isSaid)
			time.Sleep(10 * time.Minute)
			c.send(heartbeat())
			if c.next().GetHeartbeat() == nil {
				t.Error("the turn must go on")
			}
			c.drop(stop)
			begin := time.Now()
			time.Sleep(10 * time.Second)
			watch := f.open(t.Context(), t)
			watch.send(attach(id, -1))
			watch.until(isText)
			if err := watch.CloseRequest(); err != nil {
				t.Fatal(err)
			}
			_ = watch.CloseResponse()
			time.Sleep(2 * time.Minute)
			c = f.open(t.Context(), t)
			c.send(attach(id, -1))
			msgs := c.rest()
			lastOf(t, msgs)
			took := msgs[len(msgs)-1].GetTime().AsTime().Sub(begin)
			if took < 70*time.Second || took > 75*time.Second {
				t.Errorf("cancelled %v after the first drop, want 10s and then the grace of 1m", took)
			}
		})
	})
}

// When a turn is suspended, its streams end without EndResponse.
func TestSuspend(t *testing.T) {
	f := serve(t, engine{run: hold}, server.Config{})
	c := f.run(t)
	c.until(isText)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		f.stop()
	}()
	msgs := c.until(isError)
	endedEarly(t, append(msgs, c.rest()...), codeUnavailable, "attach again")
	if !msgs[len(msgs)-1].GetError().GetRetryable() {
		t.Error("want a retryable error")
	}
	<-stopped
}

// A request that is repeated with its key follows the turn that it has started, and
// receives calls of the turn's tools.
func TestRepeatedStart(t *testing.T) {
	f := serve(t, engine{run: func(ctx context.Context, run *session.Run) error {
		_, err := ask(ctx, run, "c1-"+run.TurnID())
		return err
	}}, server.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	start := execute()
	start.GetExecute().IdempotencyKey = "key " + t.Name()
	lost := f.open(ctx, t)
	lost.send(start)
	first := lost.until(isCall)
	lost.drop(cancel)
	c := f.open(t.Context(), t)
	c.send(start)
	second := c.until(isCall)
	if second[0].GetExecute() == nil || second[0].GetSeq() != first[0].GetSeq() || second[0].GetTurnId() != first[0].GetTurnId() {
		t.Errorf("the repeat begins with %v, the first request with %v", second[0], first[0])
	}
	c.send(toolResult(second[len(second)-1].GetToolCall().GetToolCallId(), "yes"))
	if !lastOf(t, c.toEnd()).GetCompleted() {
		t.Error("want the turn's end")
	}
	other := execute()
	other.GetExecute().IdempotencyKey, other.GetExecute().UserPrompt = start.GetExecute().GetIdempotencyKey(), "something else"
	c = f.open(t.Context(), t)
	c.send(other)
	endedEarly(t, c.rest(), agentdv1.ErrorCode_ERROR_CODE_CONFLICT, "idempotency_key")
}

// TestSecondAttach: a stream has one turn, however it has got it.
func TestSecondAttach(t *testing.T) {
	f := serve(t, engine{run: hold}, server.Config{})
	c := f.run(t)
	id := c.until(isText)[0].GetExecute().GetSessionId()
	d := f.open(t.Context(), t)
	d.send(attach(id, -1))
	d.until(isText)
	for _, stream := range []*conversation{c, d} {
		for name, m := range map[string]*agentdv1.RunRequest{"AttachRequest": attach(id, -1), "ExecuteRequest": execute()} {
			stream.send(m)
			refused := stream.until(isError)
			if e := refused[len(refused)-1].GetError(); e.GetCode() != codeInvalid || !strings.Contains(e.GetMessage(), name) {
				t.Errorf("a second %s: %v", name, e)
			}
		}
	}
	c.send(end("bye"))
	for _, stream := range []*conversation{c, d} {
		if lastOf(t, stream.toEnd()).GetReason() != "bye" {
			t.Error("what was refused must not touch the turn")
		}
	}
}

// TestAttachForUserInterfaces: display and visibility are those of WatchTurn.
func TestAttachForUserInterfaces(t *testing.T) {
	f := serve(t, engine{run: func(ctx context.Context, run *session.Run) error {
		if err := say(ctx, run, "m1", "one"); err != nil {
			return err
		}
		_, err := ask(ctx, run, "c1")
		return err
	}}, server.Config{})
	c := f.run(t)
	id := c.until(isCall)[0].GetExecute().GetSessionId()
	c.send(toolResult("c1", "secret"))
	lastOf(t, c.toEnd())
	service := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
	for _, only := range []agentdv1.Display_Visibility{
		agentdv1.Display_VISIBILITY_UNSPECIFIED, agentdv1.Display_VISIBILITY_PUBLIC, agentdv1.Display_VISIBILITY_PRIVATE,
	} {
		m := attach(id, -1)
		m.GetAttach().Display, m.GetAttach().Visibility = true, only
		d := f.open(t.Context(), t)
		d.send(m)
		got := d.toEnd()
		w, err := service.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: id, Display: true, Visibility: only}))
		if err != nil {
			t.Fatal(err)
		}
		var want []*agentdv1.RunResponse
		for w.Receive() {
			want = append(want, w.Msg().GetEvent())
		}
		if show(got) != show(want) || w.Err() != nil {
			t.Errorf("%v: Run has%s\nWatchTurn has%s", only, show(got), show(want))
		}
		for _, m := range got {
			if m.GetDisplay() == nil {
				t.Errorf("%v: no display: %v", only, m)
			}
		}
	}
}
