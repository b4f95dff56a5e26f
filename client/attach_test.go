package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// finishedLog returns the log of a turn that is over.
func finishedLog(t *testing.T) (l *turnLog, want []string) {
	t.Helper()
	l = newTurnLog(t, tale)
	c := dial(t, host(t, l))
	doubler(t, c)
	want, _ = runTale(t, c)
	return l, want
}

// watch attaches and returns the events.
func watch(t *testing.T, c *client.Client, opts ...client.AttachOption) (notes []string) {
	t.Helper()
	for event, err := range c.Attach(t.Context(), session, opts...) {
		if err != nil {
			t.Errorf("after %q: %v", notes, err)
			return notes
		}
		if text := note(event); text != "" {
			notes = append(notes, text)
		}
	}
	return notes
}

// TestAttachAfterEveryEvent yields what follows, also over streams that break.
func TestAttachAfterEveryEvent(t *testing.T) {
	l, _ := finishedLog(t)
	c := dial(t, host(t, l), quick)
	runs := doubler(t, c)
	want := watch(t, c)
	for _, cut := range []int{0, 3, 4} {
		l.cut = func(_, sent int) bool { return cut > 0 && sent == cut }
		if got := watch(t, c); !slices.Equal(got, want) {
			t.Errorf("cut %d, from the beginning: got %q, want %q", cut, got, want)
		}
		for seq := int64(0); seq <= 150; seq += 10 {
			rest := slices.DeleteFunc(slices.Clone(want), func(text string) bool { return !follows(want, text, seq) })
			if got := watch(t, c, client.WithAfterSeq(seq)); !slices.Equal(got, rest) {
				t.Errorf("cut %d, after %d: got %q, want %q", cut, seq, got, rest)
			}
		}
	}
	if runs.Load() != 0 { // all calls have results
		t.Errorf("%d runs", runs.Load())
	}
}

// follows reports whether an event comes after a position; one without a position
// belongs to the next one that has one.
func follows(all []string, text string, seq int64) bool {
	for _, next := range all[slices.Index(all, text):] {
		if place, _, _ := strings.Cut(next, " "); place != "0" {
			return len(place) > len(fmt.Sprint(seq)) || (len(place) == len(fmt.Sprint(seq)) && place > fmt.Sprint(seq))
		}
	}
	return false
}

func TestAttachOffersTools(t *testing.T) {
	l, _ := finishedLog(t)
	c := dial(t, host(t, l), client.WithAttachment("more", named(t, "attached")))
	doubler(t, c)
	tests := map[string]struct {
		opts []client.AttachOption
		want string
	}{
		"all":       {nil, "attached double"},
		"none":      {[]client.AttachOption{client.Observe()}, ""},
		"of a set":  {[]client.AttachOption{client.WithTools(named(t, "other"))}, "other"},
		"none wins": {[]client.AttachOption{client.WithTools(named(t, "other")), client.Observe()}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			notes := watch(t, c, append(test.opts, client.WithProviderKey("openai", "k"), client.WithAfterSeq(40))...)
			at := l.streams[len(l.streams)-1].attach
			if got := strings.Join(at.GetToolNames(), " "); got != test.want {
				t.Errorf("offered %q, want %q", got, test.want)
			}
			if at.GetAfterSeq() != 40 || at.GetSessionId() != session || at.GetTurnId() != "" {
				t.Errorf("sent %v", at)
			}
			if test.want == "" && !slices.Contains(notes, "50 turn notice c1") {
				t.Errorf("no notice in %q", notes)
			}
		})
	}
}

func named(t *testing.T, name string) *client.ToolSet {
	t.Helper()
	set := client.NewToolSet()
	mustAdd(t, client.AddTool(set, name, "d", func(context.Context, struct{}) (any, error) { return name, nil }))
	return set
}

// TestAttachRunsATurnOfAnotherClient: that one leaves before its tool is done.
func TestAttachRunsATurnOfAnotherClient(t *testing.T) {
	l := newTurnLog(t, func(l *turnLog) {
		l.call("c", "work", "{}")
		l.say("m", l.await("c"))
		l.finish(true, "")
	})
	url := host(t, l)
	idle := dial(t, url)
	mustAdd(t, client.AddTool(idle, "work", "works", func(ctx context.Context, _ struct{}) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	starts(t, l)
	var asked int64
	for event, err := range idle.Attach(t.Context(), session) {
		if err != nil {
			t.Fatal(err)
		}
		if event.ToolCall != nil {
			asked = event.Seq
			break
		}
	}
	c := dial(t, url)
	mustAdd(t, client.AddTool(c, "work", "works", func(context.Context, struct{}) (any, error) { return "done", nil }))
	var text string
	for event, err := range c.Attach(t.Context(), session, client.WithAfterSeq(asked)) {
		if err != nil {
			t.Fatal(err)
		}
		if event.OutputChunk != nil {
			text += event.OutputChunk.Content
		}
		if as[*client.TurnStarted](event) != nil {
			t.Error("the start was before that position")
		}
	}
	if text != "done" {
		t.Errorf("got %q", text)
	}
}

// starts begins a turn without a client that stays.
func starts(t *testing.T, l *turnLog) {
	t.Helper()
	prompt := &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "go"}
	l.enter(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: prompt}}, "")
	l.mu.Lock()
	l.streams = nil
	l.mu.Unlock()
}

// TestAttachOnlyDetaches: however an Attach is left, the server neither hears
// of a cancel nor of a half-close, which would give up the client's calls.
func TestAttachOnlyDetaches(t *testing.T) {
	tests := map[string]func(cancel context.CancelFunc) bool{
		"break":          func(context.CancelFunc) bool { return false },
		"context cancel": func(cancel context.CancelFunc) bool { cancel(); return true },
	}
	for name, leave := range tests {
		for protocol, opts := range map[string][]client.Option{"connect": nil, "grpc": {client.WithGRPC()}} {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				l := newTurnLog(t, func(l *turnLog) {
					l.say("m", "tick")
					l.await("nothing")
				})
				starts(t, l)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var last error
				begin := time.Now()
				for event, err := range dial(t, host(t, l), opts...).Attach(ctx, session) {
					last = err
					if err == nil && event.OutputChunk != nil && !leave(cancel) {
						break
					}
				}
				if name == "context cancel" && !errors.Is(last, context.Canceled) {
					t.Errorf("want the context's error, got %v", last)
				}
				<-l.streams[0].done
				if took := time.Since(begin); took > 5*time.Second {
					t.Errorf("the server learnt of it after %s", took)
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				if l.cancels != 0 || l.over || l.streams[0].halfClosed {
					t.Errorf("%d cancels, over %v, half-closed %v", l.cancels, l.over, l.streams[0].halfClosed)
				}
			})
		}
	}
}

func TestAttachControl(t *testing.T) {
	l := newTurnLog(t, func(l *turnLog) { l.await("nothing") })
	starts(t, l)
	var control client.Control
	var end *client.End
	for event, err := range dial(t, host(t, l)).Attach(t.Context(), session, client.WithControl(&control)) {
		switch {
		case err != nil:
			t.Fatal(err)
		case as[*client.TurnStarted](event) != nil:
			if err := control.Cancel(); err != nil {
				t.Fatal(err)
			}
		case event.End != nil:
			end = event.End
		}
	}
	if end == nil || end.Completed || end.Reason != "cancelled" {
		t.Errorf("end: %+v", end)
	}
}

func TestWrongAttachArguments(t *testing.T) {
	l, _ := finishedLog(t)
	c := dial(t, host(t, l))
	before := len(l.streams)
	tests := map[string]struct {
		err  error
		want string
	}{
		"no session":         {attach(c, ""), "the id of a session"},
		"negative position":  {attach(c, session, client.WithAfterSeq(-1)), "at least 0"},
		"unknown disconnect": {do(c, client.WithOnDisconnect(7, 0)), "got 7"},
		"long grace":         {do(c, client.WithOnDisconnect(client.OnDisconnectCancel, 25*time.Hour)), "24h0m0s"},
		"grace to continue":  {do(c, client.WithOnDisconnect(client.OnDisconnectContinue, time.Second)), "got 1s"},
		"no handlers":        {do(c, client.WithConcurrency(0)), "at least 1"},
		"no tool time":       {attach(c, session, client.WithToolTimeout(0)), "more than 0"},
		"unknown provider":   {do(c, client.WithProviderKey("acme", "k")), `got "acme"`},
		"unknown leave":      {attach(c, session, client.WithOnLeave(3)), "got 3"},
		"heartbeat":          {do(dial(t, host(t, l), client.WithHeartbeatInterval(-1))), "at least 0"},
		"reconnect":          {do(dial(t, host(t, l), client.WithReconnect(client.ReconnectPolicy{MaxElapsed: -1}))), "Off never reconnects"},
		"grace":              {do(dial(t, host(t, l), client.WithGrace(-1))), "0 to 24h0m0s"},
		"message bytes":      {do(dial(t, host(t, l), client.WithMaxMessageBytes(0))), "at least 1"},
		"result bytes":       {do(dial(t, host(t, l), client.WithMaxResultBytes(-1))), "at least 1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if !errors.Is(test.err, client.ErrInvalidRequest) || !strings.Contains(test.err.Error(), test.want) {
				t.Errorf("want %q, got %v", test.want, test.err)
			}
		})
	}
	if len(l.streams) != before {
		t.Error("something was sent")
	}
}

func attach(c *client.Client, id string, opts ...client.AttachOption) error {
	for _, err := range c.Attach(context.Background(), id, opts...) {
		if err != nil {
			return err
		}
	}
	return nil
}

func do(c *client.Client, opts ...client.RunOption) error {
	_, err := c.Do(context.Background(), llm(), "hi", opts...)
	return err
}

func TestOnDisconnectIsSent(t *testing.T) {
	tests := map[string]struct {
		opt   client.RunOption
		what  agentdv1.OnDisconnect
		grace time.Duration
	}{
		"continue": {client.WithOnDisconnect(client.OnDisconnectContinue, 0), agentdv1.OnDisconnect_ON_DISCONNECT_CONTINUE, 0},
		"cancel":   {client.WithOnDisconnect(client.OnDisconnectCancel, 0), agentdv1.OnDisconnect_ON_DISCONNECT_CANCEL, 0},
		"grace":    {client.WithOnDisconnect(client.OnDisconnectCancel, time.Minute), agentdv1.OnDisconnect_ON_DISCONNECT_CANCEL, time.Minute},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := newTurnLog(t, func(l *turnLog) { l.finish(true, "") })
			if _, err := dial(t, host(t, l)).Do(t.Context(), llm(), "hi", test.opt); err != nil {
				t.Fatal(err)
			}
			got := l.streams[0].execute
			if got.GetOnDisconnect() != test.what || got.GetDisconnectGrace().AsDuration() != test.grace {
				t.Errorf("sent %v", got)
			}
		})
	}
}

// TestEventsSayWhereTheyAre checks what an event says of itself.
func TestEventsSayWhereTheyAre(t *testing.T) {
	l, _ := finishedLog(t)
	var seen int64
	for event, err := range dial(t, host(t, l)).Attach(t.Context(), session, client.Observe()) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Seq != 0 && event.Seq <= seen {
			t.Errorf("%d comes after %d", event.Seq, seen)
		}
		seen = max(seen, event.Seq)
		if event.TurnID != "turn" || !event.Replayed || event.Time.IsZero() != (event.OutputChunk != nil || as[*client.ToolCallAnnounced](event) != nil) {
			t.Errorf("got %+v", event)
		}
		if n := as[*client.ToolCallAnnounced](event); n != nil && (n.Name != "double" || !strings.HasPrefix(string(n.Input), `{"n":`) || n.AgentPath[0] != "root") {
			t.Errorf("notice: %+v", n)
		}
	}
	if seen != 150 {
		t.Errorf("got as far as %d", seen)
	}
}

func TestDoDropsWhatIsRetracted(t *testing.T) {
	say := chunkMsg
	tests := map[string]struct {
		msgs []*agentdv1.RunResponse
		want string
	}{
		"by id":             {[]*agentdv1.RunResponse{say("a", "one "), say("b", "tw"), retractMsg("b"), say("b", "two")}, "one two"},
		"never said again":  {[]*agentdv1.RunResponse{say("a", "one "), say("b", "tw"), retractMsg("b")}, "one "},
		"unfinished":        {[]*agentdv1.RunResponse{say("a", "one "), say("b", "tw"), retractMsg(""), say("b", "two")}, "one two"},
		"after a state":     {[]*agentdv1.RunResponse{say("a", "one"), stateMsg("k", 1), retractMsg("")}, "one"},
		"after the last":    {[]*agentdv1.RunResponse{say("a", "one"), say("", ""), retractMsg("")}, "one"},
		"finished, again":   {[]*agentdv1.RunResponse{say("a", "on"), stateMsg("k", 1), retractMsg(""), say("a", "o"), say("a", "ne")}, "one"},
		"unknown":           {[]*agentdv1.RunResponse{say("a", "one"), retractMsg("z")}, "one"},
		"twice":             {[]*agentdv1.RunResponse{say("a", "x"), retractMsg("a"), say("a", "y"), retractMsg("a"), say("a", "z")}, "z"},
		"nothing to be had": {[]*agentdv1.RunResponse{retractMsg(""), say("a", "one")}, "one"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := newTurnLog(t, func(l *turnLog) {
				for _, m := range test.msgs {
					l.add(m)
				}
				l.finish(true, "")
			})
			res, err := dial(t, host(t, l)).Do(t.Context(), llm(), "hi")
			if err != nil || res.Text != test.want || len(res.Agents) != 1 || res.Agents[0].Text != test.want {
				t.Errorf("got %+v, %v, want %q", res, err, test.want)
			}
		})
	}
}

// TestDoAcrossCuts joins a tale that was interrupted.
func TestDoAcrossCuts(t *testing.T) {
	l := newTurnLog(t, tale)
	l.cut = func(_, sent int) bool { return sent == 4 }
	c := dial(t, host(t, l), quick)
	doubler(t, c)
	res, err := c.Do(t.Context(), llm("double"), "tell")
	if err != nil || res.Text != taleText || res.State["n"] != 2.0 || !res.Completed {
		t.Errorf("got %+v, %v", res, err)
	}
}
