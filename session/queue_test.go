package session_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// talk is a turn that says its prompt, waits for its tool if the prompt says
// "ask", and then repeats the prompts that were injected meanwhile.
func talk(ctx context.Context, r *session.Run) error {
	prompt := r.Spec().Prompt
	id := "c-" + r.TurnID()
	asked, events := false, 0
	for rec, err := range r.Records(ctx, r.StartSeq()) {
		if err != nil {
			return err
		}
		if rec.Kind == record.KindEvent {
			events++
			asked = true
		}
	}
	if strings.HasPrefix(prompt, "ask") {
		if !asked {
			ev := &record.Event{Path: root, Calls: []record.ToolCall{{ID: id, Name: "tool", Input: []byte(`{}`), Path: root}}}
			if err := add(ctx, r, ev); err != nil {
				return err
			}
		}
		if _, err := r.Await(ctx, id); err != nil {
			return err
		}
	}
	var heard []string
	for _, in := range r.Injected() {
		if err := add(ctx, r, &record.Event{Path: root, Injected: in.ID, Text: in.Text}); err != nil {
			return err
		}
		heard = append(heard, in.Text)
	}
	text := strings.Join(append([]string{"re: " + prompt}, heard...), " + ")
	return say(ctx, r, fmt.Sprintf("m%d-%s", events, r.TurnID()), root, text)
}

// answer submits the result of the call of a turn that talks.
func answer(t *testing.T, turn *session.Turn) {
	t.Helper()
	if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c-" + turn.ID(), Output: new("ok")}); err != nil {
		t.Errorf("answer: %v", err)
	}
}

// kinds are the kinds of a session's records, with the turns they belong to.
func kinds(t *testing.T, store store.Store, id string, names map[string]string) string {
	t.Helper()
	recs, err := store.Read(t.Context(), id, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, rec := range recs {
		out = append(out, fmt.Sprintf("%s(%s)", rec.Kind, names[rec.TurnID]))
	}
	return strings.Join(out, " ")
}

func isQueued(m *agentdv1.RunResponse) bool { return m.GetTurnQueued() != nil }

func TestEnqueuedTurnsRunInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		a := f.start(session.Request{Prompt: "ask a"})
		wa := a.Watch()
		await(t, wa, isCall)
		next := session.Request{SessionID: a.SessionID(), OnBusy: enqueue}
		next.Prompt = "b"
		b := f.start(next)
		next.Prompt = "c"
		c := f.start(next)
		wb, wc := b.Watch(), c.Watch()
		queuedB, queuedC := await(t, wb, isQueued), await(t, wc, isQueued)
		if q := queuedB[0]; q.TurnId != b.ID() || q.GetTurnQueued().Ahead != 0 || q.GetTurnQueued().UserPrompt != "b" {
			t.Errorf("b is told %v", q)
		}
		if q := queuedC[0]; q.TurnId != c.ID() || q.GetTurnQueued().Ahead != 1 {
			t.Errorf("c is told %v", q)
		}
		answer(t, a)
		for _, turn := range []struct {
			name string
			msgs []*agentdv1.RunResponse
			text string
			id   string
		}{
			{"a", follow(t, wa), "re: ask a", a.ID()},
			{"b", follow(t, wb), "re: b", b.ID()},
			{"c", follow(t, wc), "re: c", c.ID()},
		} {
			if got := texts(turn.msgs)["root"]; got != turn.text || !end(t, turn.msgs).Completed {
				t.Errorf("%s said %q", turn.name, got)
			}
			for _, m := range turn.msgs {
				if m.GetTurnQueued() == nil && m.TurnId != turn.id {
					t.Errorf("%s was told of another turn: %v", turn.name, m)
				}
			}
			if turn.name != "a" && turn.msgs[0].GetExecute() == nil {
				t.Errorf("%s begins with %v", turn.name, turn.msgs[0])
			}
		}
		got := kinds(t, f.store, a.SessionID(), map[string]string{a.ID(): "a", b.ID(): "b", c.ID(): "c"})
		want := "turn_started(a) event(a) turn_queued(b) turn_queued(c) tool_result(a) event(a) turn_ended(a) " +
			"turn_started(b) event(b) turn_ended(b) turn_started(c) event(c) turn_ended(c)"
		if got != want {
			t.Errorf("the log is\n%s, want\n%s", got, want)
		}
	})
}

// A queued prompt is a fact: it runs after a restart, with nobody there.
func TestQueuedTurnSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(func(ctx context.Context, _ *session.Run) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		a := f.start(session.Request{Prompt: "a"})
		parts := record.Parts{filePart("image/png", []byte{0, 1, 255})}
		b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", Parts: parts, OnBusy: enqueue, InitialState: map[string]any{"k": "v", "temp:t": "x"}})
		wb := b.Watch()
		last := await(t, wb, isQueued)[0].Seq
		f.stop()
		if _, err := followErr(t, wb); code(err) != unavailable {
			t.Errorf("the watcher of b: %v", err)
		}
		g := newFixture(t, f.store, limits.Limits{})
		g.on(func(ctx context.Context, r *session.Run) error {
			if s := r.State(); r.TurnID() == b.ID() && (s["k"] != "v" || s["temp:t"] != "x") {
				return fmt.Errorf("state is %v", s)
			}
			if got := r.Spec().Parts; r.TurnID() == b.ID() && !equalParts(got, parts) {
				return fmt.Errorf("parts are %v", got)
			}
			time.Sleep(time.Minute)
			return talk(ctx, r)
		})
		if err := g.m.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, w := g.attach(session.AttachRequest{SessionID: a.SessionID(), TurnID: b.ID(), After: &last})
		msgs := follow(t, w)
		if msgs[0].GetExecute() == nil || texts(msgs)["root"] != "re: b" || !end(t, msgs).Completed {
			t.Errorf("b came as %v", msgs)
		}
		_, w = g.attach(session.AttachRequest{SessionID: a.SessionID(), TurnID: a.ID(), After: new(int64(0))})
		if msgs := follow(t, w); texts(msgs)["root"] != "re: a" || !end(t, msgs).Completed {
			t.Errorf("a came as %v", msgs)
		}
		if _, _, err := g.m.Attach(t.Context(), session.AttachRequest{SessionID: a.SessionID(), TurnID: "e-none"}); code(err) != agentdv1.ErrorCode_ERROR_CODE_NOT_FOUND {
			t.Errorf("a turn there is not: %v", err)
		}
	})
}

func TestInterruptingTurnGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		a := f.start(session.Request{Prompt: "ask a"})
		wa := a.Watch()
		await(t, wa, isCall)
		b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: enqueue})
		wb := b.Watch()
		c := f.start(session.Request{SessionID: a.SessionID(), Prompt: "c", OnBusy: interrupt})
		wc := c.Watch()
		if e := end(t, follow(t, wa)); e.Completed || e.GetReason() != "interrupted by a new turn" || len(e.Receipt.GetCanceledToolCalls()) != 1 {
			t.Errorf("a ended with %v", e)
		}
		for _, w := range []*session.Watcher{wb, wc} {
			if !end(t, follow(t, w)).Completed {
				t.Error("a turn that waited was not completed")
			}
		}
		got := kinds(t, f.store, a.SessionID(), map[string]string{a.ID(): "a", b.ID(): "b", c.ID(): "c"})
		want := "turn_started(a) event(a) turn_queued(b) turn_queued(c) turn_ended(a) " +
			"turn_started(c) event(c) turn_ended(c) turn_started(b) event(b) turn_ended(b)"
		if got != want {
			t.Errorf("the log is\n%s, want\n%s", got, want)
		}
	})
}

func TestQueuedTurnIsDropped(t *testing.T) {
	for name, drop := range map[string]func(*session.Turn, *session.Watcher){
		"cancelled": func(b *session.Turn, _ *session.Watcher) { b.Cancel("") },
		"left":      func(_ *session.Turn, w *session.Watcher) { w.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{})
				f.on(talk)
				a := f.start(session.Request{Prompt: "ask a"})
				wa := a.Watch()
				await(t, wa, isCall)
				b := f.start(session.Request{
					SessionID: a.SessionID(), Prompt: "b", OnBusy: enqueue,
					OnDisconnect: record.OnDisconnect{Cancel: true, Grace: time.Second},
				})
				wb := b.Watch()
				drop(b, wb)
				<-b.Done()
				if name == "cancelled" {
					if e := end(t, follow(t, wb)); e.Completed || e.GetReason() != "cancelled by the client" {
						t.Errorf("b ended with %v", e)
					}
				}
				answer(t, a)
				if !end(t, follow(t, wa)).Completed {
					t.Error("a was not completed")
				}
				got := kinds(t, f.store, a.SessionID(), map[string]string{a.ID(): "a", b.ID(): "b"})
				if want := "turn_started(a) event(a) turn_queued(b) turn_dropped(b) tool_result(a) event(a) turn_ended(a)"; got != want {
					t.Errorf("the log is\n%s, want\n%s", got, want)
				}
				b.Cancel("again") // changes nothing
			})
		})
	}
}

func TestInjectedPromptReachesTheRunningTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		a := f.start(session.Request{Prompt: "ask a"})
		wa := a.Watch()
		await(t, wa, isCall)
		b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "and b", OnBusy: inject})
		wb := b.Watch()
		last := await(t, wb, isQueued)[0].Seq
		answer(t, a)
		msgsA, msgsB := follow(t, wa), follow(t, wb)
		for name, msgs := range map[string][]*agentdv1.RunResponse{"a": msgsA, "b": msgsB} {
			if got := texts(msgs)["root"]; got != "re: ask a + and b" || !end(t, msgs).Completed {
				t.Errorf("%s was told %q", name, got)
			}
			i := slices.IndexFunc(msgs, func(m *agentdv1.RunResponse) bool { return m.GetMessageInjected() != nil })
			if i < 0 || msgs[i].GetMessageInjected().UserPrompt != "and b" || msgs[i].GetMessageInjected().QueuedTurnId != b.ID() || msgs[i].TurnId != a.ID() {
				t.Errorf("%s was not told what the user said: %v", name, msgs)
			}
		}
		if m := msgsB[0]; m.GetExecute() == nil || m.TurnId != a.ID() {
			t.Errorf("for the client of b the turn begins with %v", m)
		}
		// The same from the log, as after a lost connection.
		_, w := f.attach(session.AttachRequest{SessionID: a.SessionID(), TurnID: b.ID(), After: &last})
		if again := follow(t, w); fmt.Sprint(positions(again)) != fmt.Sprint(positions(msgsB)) {
			t.Errorf("the client of b that comes back gets %v, want %v", again, msgsB)
		}
		got := kinds(t, f.store, a.SessionID(), map[string]string{a.ID(): "a", b.ID(): "b"})
		if want := "turn_started(a) event(a) turn_queued(b) tool_result(a) event(a) event(a) turn_ended(a)"; got != want {
			t.Errorf("the log is\n%s, want\n%s", got, want)
		}
	})
}

func positions(msgs []*agentdv1.RunResponse) []int64 {
	var out []int64
	for _, m := range msgs {
		out = append(out, m.Seq)
	}
	return out
}

// A client that injects is asked for the turn's tools when the turn's own client
// has left, not before: one call is asked of one client.
func TestInjectingClientIsAskedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		ask := make(chan struct{})
		f.on(func(ctx context.Context, r *session.Run) error {
			<-ask
			return talk(ctx, r)
		})
		a := f.start(session.Request{Prompt: "ask a"})
		wa := a.Watch()
		b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "and b", OnBusy: inject})
		wb := b.Watch()
		close(ask)
		await(t, wa, isCall)
		wa.Close()
		await(t, wb, isCall)
		answer(t, a)
		if got := texts(follow(t, wb))["root"]; got != "re: ask a + and b" {
			t.Errorf("b was told %q", got)
		}
	})
}

// A prompt for which there is no model call any more has a turn of its own.
func TestInjectedPromptThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		last := make(chan struct{})
		f.on(func(ctx context.Context, r *session.Run) error {
			if r.Spec().Prompt == "a" {
				<-last
				return say(ctx, r, "m", root, "that is all")
			}
			return talk(ctx, r)
		})
		a := f.start(session.Request{Prompt: "a"})
		wa := a.Watch()
		b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: inject})
		wb := b.Watch()
		close(last)
		if got := texts(follow(t, wa))["root"]; got != "that is all" {
			t.Errorf("a said %q", got)
		}
		msgs := follow(t, wb)
		if msgs[0].GetTurnQueued() == nil || msgs[1].GetExecute() == nil || msgs[1].TurnId != b.ID() || texts(msgs)["root"] != "re: b" {
			t.Errorf("b came as %v", msgs)
		}
		end(t, msgs)
	})
}

// A client injects into a suspended turn: it can submit the result that the turn waits for.
func TestInjectIntoATurnThatWasPutAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		a := f.start(session.Request{Prompt: "ask a"})
		wa := a.Watch()
		await(t, wa, isCall)
		wa.Close()
		<-a.Done() // suspended
		b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: inject})
		wb := b.Watch()
		before := await(t, wb, isCall)
		if before[0].GetTurnQueued() == nil {
			t.Errorf("b begins with %v", before)
		}
		if err := b.SubmitResult(t.Context(), session.ClientResult{CallID: "c-" + a.ID(), Output: new("ok")}); err != nil {
			t.Error(err)
		}
		msgs := follow(t, wb)
		if got := texts(msgs)["root"]; got != "re: ask a + b" || !end(t, msgs).Completed {
			t.Errorf("b was told %q", got)
		}
	})
}

// A turn that waits for nobody does not keep a queued one waiting.
func TestQueuedTurnIsNotHeldUpByOneThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		a := f.start(session.Request{Prompt: "ask a"})
		wa := a.Watch()
		await(t, wa, isCall)
		b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: enqueue})
		wb := b.Watch()
		wa.Close()
		if msgs := follow(t, wb); !end(t, msgs).Completed {
			t.Errorf("b came as %v", msgs)
		}
		if waited := time.Since(session.Started(a)); waited > 2*time.Minute {
			t.Errorf("b waited %v", waited)
		}
	})
}

// A patient one waits, also one that comes later, until the result is there.
func TestPatientTurnWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		a := f.start(session.Request{Prompt: "ask a"})
		wa := a.Watch()
		await(t, wa, isCall)
		b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: patient})
		wa.Close()
		time.Sleep(time.Hour)
		c := f.start(session.Request{SessionID: a.SessionID(), Prompt: "c", OnBusy: patient})
		time.Sleep(time.Hour)
		for _, turn := range []*session.Turn{b, c} {
			if got, err := f.m.Turn(t.Context(), turn.SessionID(), turn.ID()); err != nil || got.Status != index.Pending {
				t.Errorf("turn %s is %v, %v", turn.ID(), got.Status, err)
			}
		}
		output := "yes"
		errs, err := f.m.SubmitResults(t.Context(), session.AttachRequest{SessionID: a.SessionID(), TurnID: a.ID()},
			[]session.ClientResult{{CallID: "c-" + a.ID(), Output: &output}})
		if err != nil || errs[0] != nil {
			t.Fatal(errs, err)
		}
		for _, w := range []*session.Watcher{b.Watch(), c.Watch()} {
			if msgs := follow(t, w); !end(t, msgs).Completed {
				t.Errorf("a turn that waited came as %v", msgs)
			}
		}
		got := kinds(t, f.store, a.SessionID(), map[string]string{a.ID(): "a", b.ID(): "b", c.ID(): "c"})
		if strings.Index(got, "turn_ended(a)") < strings.Index(got, "tool_result(a)") || strings.Count(got, "turn_ended") != 3 {
			t.Errorf("the log is %s", got)
		}
	})
}

// A client that has closed its side while its prompt waited cannot give results later.
func TestQueuedClientThatCannotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		a := f.start(session.Request{Prompt: "ask a"})
		wa := a.Watch()
		await(t, wa, isCall)
		b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "ask b", OnBusy: enqueue})
		wb := b.Watch()
		await(t, wb, isQueued)
		wb.Unattended("it has closed its side")
		answer(t, a)
		follow(t, wa)
		begin := time.Now()
		if e := end(t, follow(t, wb)); !e.Completed || time.Since(begin) > time.Second {
			t.Errorf("b ended after %v with %v", time.Since(begin), e)
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{MaxQueued: 2})
		f.on(talk)
		a := f.start(session.Request{Prompt: "ask a"})
		wa := a.Watch()
		await(t, wa, isCall)
		req := session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: enqueue}
		f.start(req)
		f.start(req)
		for _, how := range []agentdv1.OnBusy{enqueue, interrupt, inject, reject} {
			req.OnBusy = how
			if _, err := f.m.Start(t.Context(), req); code(err) != agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY {
				t.Errorf("on_busy %d with a full queue: %v", how, err)
			}
		}
		answer(t, a)
		follow(t, wa)
	})
}

// Whatever comes in whatever order, each prompt is started, injected or dropped
// once, each turn that started ends once, and each client reads its end.
func TestNoPromptIsLost(t *testing.T) {
	t.Parallel() // it takes long
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 7), 1, 25).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					rt.Fatalf("with steps %v", steps)
				}
			}()
			limits := limits.Limits{MaxQueued: 4, Retention: time.Hour}
			f := newFixture(t, memory(t), limits)
			f.on(talk)
			if err := f.m.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			first := f.start(session.Request{Prompt: "ask 0"})
			id := first.SessionID()
			type client struct {
				turn *session.Turn
				last int64
				over bool
			}
			clients := []*client{{turn: first}}
			watchers := map[*client]*session.Watcher{clients[0]: first.Watch()}
			drain := func() {
				synctest.Wait()
				for _, c := range clients {
					w := watchers[c]
					if w == nil || c.over {
						continue
					}
					msgs, err := w.Next(t.Context())
					for _, m := range msgs {
						if m.Seq <= c.last && m.GetToolCall() == nil {
							t.Errorf("position %d came after %d", m.Seq, c.last)
						}
						c.last = max(c.last, m.Seq)
						if m.GetEnd() != nil {
							c.over = true
						}
					}
					if err != nil {
						w.Close()
						delete(watchers, c)
					}
				}
			}
			for i, step := range steps {
				drain()
				switch {
				case step <= 3: // another prompt
					prompt := fmt.Sprintf("%s %d", []string{"ask", "say"}[i%2], i+1)
					turn, err := f.m.Start(t.Context(), session.Request{SessionID: id, Prompt: prompt, OnBusy: agentdv1.OnBusy(1 + step)})
					if err == nil {
						c := &client{turn: turn}
						clients = append(clients, c)
						watchers[c] = turn.Watch()
					} else if code(err) != agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY {
						t.Errorf("start: %v", err)
					}
				case step == 4: // settle whatever is open
					for _, c := range clients {
						_ = c.turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c-" + c.turn.ID(), Output: new("ok")})
					}
				case step == 5:
					clients[i%len(clients)].turn.Cancel("")
				case step == 6: // a client leaves
					c := clients[i%len(clients)]
					if w := watchers[c]; w != nil {
						w.Close()
						delete(watchers, c)
					}
				default: // another server
					f.stop()
					drain()
					f = newFixture(t, f.store, limits)
					f.on(talk)
					if err := f.m.Recover(t.Context()); err != nil {
						t.Fatal(err)
					}
					for _, c := range clients {
						if c.over {
							continue
						}
						if w := watchers[c]; w != nil {
							w.Close()
						}
						turn, w, err := f.m.Attach(t.Context(), session.AttachRequest{SessionID: id, TurnID: c.turn.ID(), After: &c.last, Tools: []string{"tool"}})
						if err != nil {
							t.Fatalf("attach: %v", err)
						}
						c.turn, watchers[c] = turn, w
					}
				}
			}
			// All calls that wait get a result or time out.
			for range 100 {
				drain()
				time.Sleep(time.Minute)
			}
			for i, c := range clients {
				if watchers[c] != nil && !c.over {
					t.Errorf("client %d of %d (%s) never read its end", i, len(clients), c.turn.ID())
				}
			}
			checkQueue(t, f.store, id)
		})
	})
}

// checkQueue checks that a log starts, injects or drops each queued prompt once
// and ends each turn once.
func checkQueue(t *testing.T, store store.Store, id string) {
	t.Helper()
	recs, err := store.Read(t.Context(), id, 0, 10000)
	if err != nil {
		t.Fatal(err)
	}
	queued, started, settled, ended := map[string]bool{}, map[string]int{}, map[string]int{}, map[string]int{}
	e := &engine{}
	for _, rec := range recs {
		switch rec.Kind {
		case record.KindTurnQueued:
			queued[rec.TurnID] = true
		case record.KindTurnStarted:
			started[rec.TurnID]++
			settled[rec.TurnID]++
		case record.KindTurnDropped:
			settled[rec.TurnID]++
		case record.KindTurnEnded:
			ended[rec.TurnID]++
		case record.KindEvent:
			ev, err := e.Decode(rec.Data)
			if err != nil {
				t.Fatal(err)
			}
			if ev.Injected != "" {
				settled[ev.Injected]++
			}
		default:
			// No other kind starts, ends or settles a turn.
		}
	}
	for id := range queued {
		if settled[id] != 1 {
			t.Errorf("the prompt of %s was settled %d times", id, settled[id])
		}
	}
	for id, n := range started {
		if n != 1 || ended[id] != 1 {
			t.Errorf("turn %s started %d times and ended %d times", id, n, ended[id])
		}
	}
}
