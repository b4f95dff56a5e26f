package daemon_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session/limits"
)

// The scripts of a turn in which everything happens: thoughts, text in many
// scripts of the world, tools at the same time, agents at the same time, state.
func scripts(pause string) map[string]string {
	return map[string]string{
		"talker": `answers:
  - {thoughts: ["I might ", "ask."], text: ["Grüezi, ", "日本 ", "🙂 ", "let me see. "], chunk_delay: ` + pause + `, calls: [{name: first, args: {n: 1}}, {name: second}]}
  - {text: ["Got {{tool_result \"first\"}} ", "and {{tool_result \"second\"}}."], chunk_delay: ` + pause + `}`,
		"left":  `answers: [{text: ["l1 ", "l2 ", "l3 ", "l4"], chunk_delay: ` + pause + `}]`,
		"right": `answers: [{text: ["r1 ", "r2 ", "r3 ", "r4"], chunk_delay: ` + pause + `}]`,
	}
}

var said = map[string]string{
	"talker": "Grüezi, 日本 🙂 let me see. Got result of first and result of second.",
	"left":   "l1 l2 l3 l4",
	"right":  "r1 r2 r3 r4",
}

func tools() []*agentdv1.Tool {
	return []*agentdv1.Tool{tool("first", `{"type":"object"}`), tool("second", `{"type":"object"}`)}
}

// everything starts the turn in which everything happens.
func everything(t *testing.T) *agentdv1.RunRequest {
	t.Helper()
	talker := llm("talker", "scripted/talker", "first", "second")
	talker.GetLlm().OutputKey = "told"
	m := execute(sequence("root", talker, &agentdv1.Agent{Name: "both", AgentType: &agentdv1.Agent_Parallel{Parallel: &agentdv1.ParallelAgent{
		Agents: []*agentdv1.Agent{llm("left", "scripted/left"), llm("right", "scripted/right")},
	}}}), "go", tools()...)
	state, err := structpb.NewStruct(map[string]any{"k": "v"})
	if err != nil {
		t.Fatal(err)
	}
	m.GetExecute().InitialState = state
	m.GetExecute().OnBusy = agentdv1.OnBusy_ON_BUSY_REJECT // a client that knows on_disconnect
	return m
}

// complete checks that a client has received the whole turn.
func complete(t *testing.T, msgs []*agentdv1.RunResponse) {
	t.Helper()
	for agent, want := range said {
		if got := text(msgs, agent); got != want {
			t.Errorf("%s said %q, want %q", agent, got, want)
		}
	}
	end := msgs[len(msgs)-1].GetEnd()
	if !end.GetCompleted() || end.GetUsageSummary().GetLlmCalls() != 4 {
		t.Errorf("got %v, want a completed turn with 4 model calls", end)
	}
}

func sameStory(t *testing.T, got, want []*agentdv1.RunResponse) {
	t.Helper()
	a, b := story(t, got), story(t, want)
	if !slices.Equal(a, b) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
}

// Whichever message was a client's last, it gets exactly those that followed.
func TestAttachAtEachMessage(t *testing.T) {
	d := start(t, daemon.Config{Scripts: scripts("3ms")})
	hc := h2c(t)
	for name, dial := range map[string]dialer{
		"connect": connectDialer(hc, d.URL()),
		"json":    connectDialer(hc, d.URL(), connect.WithProtoJSON()),
		"grpc":    grpcDialer(t, d.Addr().String()),
	} {
		t.Run(name, func(t *testing.T) {
			live := dial.open(t, everything(t))
			live.rest()
			complete(t, live.got)
			if len(live.got) < 15 {
				t.Errorf("too few messages to cut between: %s", show(live.got))
			}
			all := dial.open(t, attach(live.session(), -1))
			all.rest()
			sameStory(t, all.got, live.got)
			for _, m := range all.got {
				if !m.GetReplayed() {
					t.Errorf("replayed is missing: %v", m)
				}
			}
			for i, m := range live.got[:len(live.got)-1] {
				second := dial.open(t, attach(live.session(), m.GetSeq()))
				second.rest()
				sameStory(t, second.got, live.got[i+1:])
			}
			past := dial.open(t, attach(live.session(), live.seq()))
			if err := past.s.CloseRequest(); err != nil {
				t.Fatal(err)
			}
			if m := past.next(); m != nil {
				t.Errorf("got %v after the end", m)
			}
			past.drop()
		})
	}
}

// onFakeTime runs a test with a daemon on fake time.
func onFakeTime(t *testing.T, test func(t *testing.T, dial dialer), opts ...testdaemon.Option) {
	synctest.Test(t, func(t *testing.T) {
		d := agentdtest.Start(t, agentdtest.Config{Scripts: scripts("1s")}, opts...)
		test(t, connectDialer(d.HTTPClient(), d.URL))
	})
}

// A client that drops in the middle of a turn and comes back, at once, later,
// or when the turn has been suspended, ends up with what the log holds.
func TestDropAtEachMessage(t *testing.T) {
	for _, away := range []time.Duration{0, 1500 * time.Millisecond, 3 * time.Hour} {
		t.Run(fmt.Sprint(away), func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, dial dialer) {
				for n := 1; ; n++ {
					first := dial.open(t, everything(t))
					var calls []*agentdv1.RunResponse_ToolCallRequest
					for i := range n {
						m := first.next()
						if m.GetEnd() != nil {
							first.rest()
							return // the whole turn has been cut
						}
						if isCall(m) {
							calls = append(calls, m.GetToolCall())
						}
						// Every other time the last call gets no result.
						if len(calls) == 2 && (n%2 == 0 || i < n-1) {
							first.send(resultFor(calls[0]))
							first.send(resultFor(calls[1]))
							calls = nil
						}
					}
					if n%2 == 0 {
						synctest.Wait() // what has been sent arrives
					}
					first.drop()
					time.Sleep(away)
					second := dial.open(t, attach(first.session(), first.seq(), tools()...))
					second.rest()
					joined := slices.Concat(first.got, second.got)
					complete(t, joined)
					all := dial.open(t, attach(first.session(), -1))
					all.rest()
					sameStory(t, joined, all.got)
					if t.Failed() {
						t.Fatalf("cut after %d messages: %s\n--%s", n, show(first.got), show(second.got))
					}
				}
			})
		})
	}
}

// Two clients see the same. A call goes to the newest that has the tool, and
// when that one leaves, after a grace, to the other.
func TestTwoClients(t *testing.T) {
	onFakeTime(t, func(t *testing.T, dial dialer) {
		a := dial.open(t, everything(t))
		a.until(isText)
		b := dial.open(t, attach(a.session(), -1, tools()...))
		watch := dial.open(t, attach(a.session(), -1))
		ids := map[string]bool{}
		for range 2 {
			ids[b.until(isCall).GetToolCall().GetToolCallId()] = true
			for _, c := range []*talk{a, watch} {
				if m := c.until(func(m *agentdv1.RunResponse) bool { return isCall(m) || isNotice(m) }); isCall(m) || !ids[m.GetToolCallAnnounced().GetToolCallId()] {
					t.Errorf("got %v, want a notice of a call that the newest client is asked for", m)
				}
			}
		}
		b.send(resultFor(b.got[len(b.got)-1].GetToolCall()))
		synctest.Wait()
		b.drop()
		begin := time.Now()
		m := a.until(isCall) // the one without a result of b
		if took := time.Since(begin); took != 2*time.Second || m.GetToolCall().GetToolName() != "first" || !ids[m.GetToolCall().GetToolCallId()] {
			t.Errorf("got %v after %v, want the first call handed over after 2s", m, took)
		}
		a.send(resultFor(m.GetToolCall()))
		a.rest()
		watch.rest()
		complete(t, a.got)
		sameStory(t, a.got, watch.got)
		second := dial.open(t, attach(a.session(), b.seq()))
		second.rest()
		sameStory(t, slices.Concat(b.got, second.got), a.got)
	})
}

// An observer that closes its side or leaves settles no calls of other clients.
func TestWatcherThatLeaves(t *testing.T) {
	onFakeTime(t, func(t *testing.T, dial dialer) {
		a := dial.open(t, everything(t))
		a.until(isCall)
		a.until(isCall)
		watch := func() {
			w := dial.open(t, attach(a.session(), -1))
			w.until(isNotice)
			if err := w.s.CloseRequest(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			w.drop()
		}
		watch()
		a.drop()
		watch() // nobody else is there
		time.Sleep(10 * time.Second)
		back := dial.open(t, attach(a.session(), a.seq(), tools()...))
		back.rest()
		complete(t, slices.Concat(a.got, back.got))
	})
}

// A client that closes its side early has its calls settled and receives all of
// the turn.
func TestHalfCloseWithAPendingCall(t *testing.T) {
	onFakeTime(t, func(t *testing.T, dial dialer) {
		c := dial.open(t, everything(t))
		c.until(isCall)
		if err := c.s.CloseRequest(); err != nil {
			t.Fatal(err)
		}
		var cancelled int
		for m := c.next(); m != nil; m = c.next() {
			if m.GetToolCallCanceled() != nil {
				cancelled++
			}
		}
		c.drop()
		if cancelled != 2 || !c.got[len(c.got)-1].GetEnd().GetCompleted() {
			t.Errorf("want two cancelled calls and a completed turn, got %s", show(c.got))
		}
	})
}

// What becomes of a turn that nobody attends is its client's choice.
func TestOnDisconnect(t *testing.T) {
	onFakeTime(t, func(t *testing.T, dial dialer) {
		for name, tc := range map[string]struct {
			choice    agentdv1.OnDisconnect
			grace     time.Duration
			away      time.Duration
			completed bool
		}{
			"default":               {agentdv1.OnDisconnect_ON_DISCONNECT_UNSPECIFIED, 0, time.Hour, true},
			"continue":              {agentdv1.OnDisconnect_ON_DISCONNECT_CONTINUE, 0, time.Hour, true},
			"cancel":                {agentdv1.OnDisconnect_ON_DISCONNECT_CANCEL, 0, time.Second, false},
			"cancel, back in time":  {agentdv1.OnDisconnect_ON_DISCONNECT_CANCEL, time.Minute, 50 * time.Second, true},
			"cancel, back too late": {agentdv1.OnDisconnect_ON_DISCONNECT_CANCEL, time.Minute, 70 * time.Second, false},
		} {
			m := everything(t)
			m.GetExecute().OnDisconnect = tc.choice
			if tc.grace > 0 {
				m.GetExecute().DisconnectGrace = durationpb.New(tc.grace)
			}
			c := dial.open(t, m)
			c.until(isCall)
			c.drop()
			time.Sleep(tc.away)
			back := dial.open(t, attach(c.session(), c.seq(), tools()...))
			end := back.rest().GetEnd()
			if end == nil || end.GetCompleted() != tc.completed || !tc.completed && end.GetReason() != "the client disconnected" {
				t.Errorf("%s: got %v, want completed %v", name, end, tc.completed)
			}
		}
	})
}

// Nobody comes for the turn: it ends when its time is over.
func TestRetention(t *testing.T) {
	onFakeTime(t, func(t *testing.T, dial dialer) {
		c := dial.open(t, everything(t))
		c.until(isCall)
		c.drop()
		time.Sleep(4 * time.Hour)
		late := dial.open(t, attach(c.session(), c.seq(), tools()...))
		if end := late.rest().GetEnd(); end == nil || end.GetCompleted() || !strings.Contains(end.GetReason(), "3h") {
			t.Errorf("got %s, want the turn expired", show(late.got))
		}
		next := everything(t)
		next.GetExecute().SessionId = new(c.session())
		second := dial.open(t, next)
		second.rest()
		if !second.got[len(second.got)-1].GetEnd().GetCompleted() {
			t.Errorf("the session must go on, got %s", show(second.got))
		}
	}, testdaemon.WithTurnLimits(limits.Limits{Retention: 3 * time.Hour}))
}

func TestRefusedAttach(t *testing.T) {
	onFakeTime(t, func(t *testing.T, dial dialer) {
		c := dial.open(t, everything(t))
		c.until(isText)
		second := everything(t)
		second.GetExecute().SessionId = new(c.session())
		for name, tc := range map[string]struct {
			msg  *agentdv1.RunRequest
			code agentdv1.ErrorCode
		}{
			"busy":    {second, agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY},
			"future":  {attach(c.session(), c.seq()+1<<30), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST},
			"unknown": {attach("nobody", 0), agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND},
		} {
			d := dial.open(t, tc.msg)
			if m := d.next(); m.GetError().GetCode() != tc.code {
				t.Errorf("%s: got %v, want %v", name, m, tc.code)
			}
			if err := d.s.CloseRequest(); err != nil {
				t.Fatal(err)
			}
			if m := d.next(); m != nil {
				t.Errorf("%s: got %v, want the end of the stream", name, m)
			}
			d.drop()
		}
		c.rest()
		complete(t, c.got)
	})
}

// The daemon that comes after continues with the turns of the one before.
func TestRestart(t *testing.T) {
	for name, fit := range map[string]func(*agentdv1.RunResponse) bool{
		"while the model speaks": func(m *agentdv1.RunResponse) bool { return strings.Contains(m.GetOutputChunk().GetContent(), "日本") },
		"while a tool waits":     isCall,
	} {
		t.Run(name, func(t *testing.T) {
			cfg := daemon.Config{DataDir: t.TempDir(), Scripts: scripts("20ms")}
			first := start(t, cfg)
			before := connectDialer(h2c(t), first.URL()).open(t, everything(t))
			before.until(fit)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			down := make(chan error, 1)
			go func() { down <- first.Shutdown(ctx) }()
			last := before.until(isError).GetError()
			if last.GetCode() != agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE || !last.GetRetryable() {
				t.Errorf("got %v, want UNAVAILABLE", last)
			}
			if err := before.s.CloseRequest(); err != nil {
				t.Fatal(err)
			}
			if m := before.next(); m != nil {
				t.Errorf("got %v, want the end of the stream, for the turn is not over", m)
			}
			before.drop()
			if err := <-down; err != nil {
				t.Fatal(err)
			}

			dial := connectDialer(h2c(t), start(t, cfg).URL())
			after := dial.open(t, attach(before.session(), before.seq(), tools()...))
			after.rest()
			joined := slices.Concat(before.got, after.got)
			complete(t, joined)
			all := dial.open(t, attach(before.session(), -1))
			all.rest()
			complete(t, all.got)
		})
	}
}
