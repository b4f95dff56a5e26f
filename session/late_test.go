package session_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// A prompt that was canceled is gone: to cancel it twice does not stop the turn that it
// was to be injected into.
func TestTakingBackAPromptTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		a := f.start(session.Request{Prompt: "ask a"})
		wa := a.Watch()
		await(t, wa, isCall)
		b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: inject})
		wb := b.Watch()
		b.Cancel("")
		b.Cancel("")
		end(t, follow(t, wb))
		answer(t, a)
		if e := end(t, follow(t, wa)); !e.Completed {
			t.Errorf("the running turn ended with %v", e)
		}
	})
}

// The client of an injected prompt has left before that became a message; the
// turn it is a message of has a client of its own.
func TestLeavingBeforeThePromptIsInjected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(func(ctx context.Context, r *session.Run) error {
			if err := talk(ctx, r); err != nil {
				return err
			}
			select {
			case <-time.After(time.Minute):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		a := f.start(session.Request{Prompt: "ask a"})
		wa := a.Watch()
		await(t, wa, isCall)
		b := f.start(session.Request{
			SessionID: a.SessionID(), Prompt: "b", OnBusy: inject,
			OnDisconnect: record.OnDisconnect{Cancel: true, Grace: time.Second},
		})
		b.Watch().Close()
		answer(t, a)
		msgs := follow(t, wa)
		if e := end(t, msgs); !e.Completed || texts(msgs)["root"] != "re: ask a + b" {
			t.Errorf("the running turn said %v and ended with %v", texts(msgs), e)
		}
	})
}

// Who comes late to a turn that waited, after it was dropped or has become a
// message and another turn runs, still reads its end.
func TestLateWatcherOfAQueuedTurn(t *testing.T) {
	for name, how := range map[string]agentdv1.OnBusy{"dropped": enqueue, "injected": inject} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{})
				f.on(talk)
				a := f.start(session.Request{Prompt: "ask a"})
				wa := a.Watch()
				await(t, wa, isCall)
				b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: how})
				if how == enqueue {
					b.Cancel("")
					<-b.Done()
				}
				c := f.start(session.Request{SessionID: a.SessionID(), Prompt: "ask c", OnBusy: enqueue})
				wc := c.Watch()
				answer(t, a)
				follow(t, wa)
				await(t, wc, isCall)
				msgs := follow(t, b.Watch())
				if msgs[0].GetTurnQueued() == nil {
					t.Errorf("it begins with %v", msgs[0])
				}
				end(t, msgs)
				answer(t, c)
				follow(t, wc)
			})
		})
	}
}

// Who attaches to a turn that waits behind another that waited learns that it
// waits.
func TestAttachToATurnFurtherBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		a := f.start(session.Request{Prompt: "ask a"})
		wa := a.Watch()
		await(t, wa, isCall)
		c := f.start(session.Request{SessionID: a.SessionID(), Prompt: "ask c", OnBusy: enqueue})
		wc := c.Watch()
		b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: enqueue})
		answer(t, a)
		follow(t, wa)
		await(t, wc, isCall)
		_, w := f.attach(session.AttachRequest{SessionID: a.SessionID(), TurnID: b.ID()})
		answer(t, c)
		follow(t, wc)
		msgs := follow(t, w)
		if msgs[0].GetTurnQueued() == nil || !end(t, msgs).Completed {
			t.Errorf("it came as %v", msgs)
		}
	})
}

// A position behind the place where a prompt became a message is a place in the
// turn it is a message of, also when that one is over and another one runs.
func TestAttachBehindAnInjection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		a := f.start(session.Request{Prompt: "ask a"})
		wa := a.Watch()
		await(t, wa, isCall)
		b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: inject})
		wb := b.Watch()
		answer(t, a)
		follow(t, wa)
		msgs := follow(t, wb)
		follow(t, f.start(session.Request{SessionID: a.SessionID(), Prompt: "c"}).Watch())
		for i, m := range msgs[:len(msgs)-1] {
			_, w, err := f.m.Attach(t.Context(), session.AttachRequest{SessionID: a.SessionID(), TurnID: b.ID(), After: &m.Seq})
			if err != nil {
				t.Fatalf("attach after message %d, %v: %v", i, m, err)
			}
			if got := follow(t, w); len(got) != len(msgs)-i-1 {
				t.Errorf("after message %d came %v", i, got)
			}
		}
	})
}

// A prompt that may wait waits for a turn that only begins.
func TestEnqueueBehindATurnThatBegins(t *testing.T) {
	for _, how := range []agentdv1.OnBusy{enqueue, inject, interrupt} {
		synctest.Test(t, func(t *testing.T) {
			g := &gated{Store: memory(t)}
			f := newFixture(t, g, limits.Limits{StorePatience: time.Minute})
			f.on(talk)
			first := f.start(session.Request{Prompt: "first"})
			follow(t, first.Watch())
			open := g.shut()
			go func() {
				a := f.start(session.Request{SessionID: first.SessionID(), Prompt: "a"})
				follow(t, a.Watch())
			}()
			synctest.Wait()
			go func() {
				b, err := f.m.Start(t.Context(), session.Request{SessionID: first.SessionID(), Prompt: "b", OnBusy: how})
				if err != nil {
					t.Errorf("on_busy %d: %v", how, err)
					return
				}
				if !end(t, follow(t, b.Watch())).Completed {
					t.Error("b was not completed")
				}
			}()
			synctest.Wait()
			open()
			synctest.Wait()
		})
	}
}

// A prompt is taken back while the engine makes a message of it: whatever becomes
// of it is stopped.
func TestTakingBackAPromptThatIsTakenUp(t *testing.T) {
	for _, taken := range []string{"one", "one of two", "and becomes one"} {
		t.Run(taken, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{})
				claimed, resumeLast := make(chan struct{}), make(chan struct{})
				f.on(func(ctx context.Context, r *session.Run) error {
					if r.Spec().Prompt != "a" {
						return talk(ctx, r)
					}
					ins := r.Injected()
					for len(ins) == 0 {
						time.Sleep(time.Second)
						ins = r.Injected()
					}
					close(claimed)
					<-resumeLast
					if err := add(ctx, r, &record.Event{Path: root, Injected: ins[0].ID, Text: ins[0].Text}); err != nil {
						return err
					}
					return context.Cause(ctx)
				})
				a := f.start(session.Request{Prompt: "a"})
				wa := a.Watch()
				synctest.Wait() // a sleeps
				b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: inject})
				wb := b.Watch()
				back := b
				wback := wb
				if taken == "one of two" {
					back = f.start(session.Request{SessionID: a.SessionID(), Prompt: "c", OnBusy: inject})
					wback = back.Watch()
				}
				<-claimed
				back.Cancel("not wanted")
				if taken != "and becomes one" {
					a.Cancel("for another reason")
				}
				close(resumeLast)
				follow(t, wa)
				if e := end(t, follow(t, wback)); e.Completed || e.GetReason() != "not wanted" {
					t.Errorf("it ended with %v", e)
				}
				if taken == "one of two" {
					end(t, follow(t, wb))
				}
			})
		})
	}
}

// A client that has not read all when the log is removed receives an error that says so.
func TestPurgeUnderAWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{PurgeAfter: 72 * time.Hour, Retention: 1000 * time.Hour})
		f.on(talk)
		if err := f.m.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		turn := f.start(session.Request{Prompt: "hi"})
		follow(t, turn.Watch())
		time.Sleep(71 * time.Hour)
		_, w := f.attach(session.AttachRequest{SessionID: turn.SessionID()})
		time.Sleep(10 * time.Hour)
		if msgs, err := followErr(t, w); code(err) != agentdv1.ErrorCode_ERROR_CODE_HISTORY_PURGED {
			t.Errorf("got %v, %v", msgs, err)
		}
	})
}

// Each absence has the whole grace.
func TestGraceOfAQueuedTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		a := f.start(session.Request{Prompt: "ask a"})
		wa := a.Watch()
		await(t, wa, isCall)
		b := f.start(session.Request{
			SessionID: a.SessionID(), Prompt: "b", OnBusy: enqueue,
			OnDisconnect: record.OnDisconnect{Cancel: true, Grace: 10 * time.Second},
		})
		b.Watch().Close()
		time.Sleep(8 * time.Second)
		_, w := f.attach(session.AttachRequest{SessionID: a.SessionID(), TurnID: b.ID()})
		time.Sleep(time.Second)
		w.Close()
		time.Sleep(5 * time.Second)
		_, w = f.attach(session.AttachRequest{SessionID: a.SessionID(), TurnID: b.ID()})
		answer(t, a)
		follow(t, wa)
		if e := end(t, follow(t, w)); !e.Completed {
			t.Errorf("it ended with %v", e)
		}
	})
}

// Nothing is written for a turn that waits when its server has stopped.
func TestQueuedTurnIsLeftWhenTheServerHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: memory(t)}
		f := newFixture(t, store, limits.Limits{})
		f.on(func(ctx context.Context, _ *session.Run) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		a := f.start(session.Request{Prompt: "a"})
		b := f.start(session.Request{
			SessionID: a.SessionID(), Prompt: "b", OnBusy: enqueue,
			OnDisconnect: record.OnDisconnect{Cancel: true, Grace: 10 * time.Second},
		})
		wb := b.Watch()
		f.stop()
		if _, err := followErr(t, wb); code(err) != unavailable {
			t.Errorf("the watcher of b: %v", err)
		}
		n := store.appends.Load()
		time.Sleep(time.Minute)
		if store.appends.Load() != n {
			t.Error("something was written after the server had stopped")
		}
	})
}

// A client that names a turn gets that one, also when it ends and the next one
// begins while the client attaches.
func TestAttachToATurnThatEndsMeanwhile(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(talk)
	a := f.start(session.Request{Prompt: "ask a"})
	wa := a.Watch()
	await(t, wa, isCall)
	c := f.start(session.Request{SessionID: a.SessionID(), Prompt: "ask c", OnBusy: enqueue})
	wc := c.Watch()
	release := f.m.HoldResuming(a.SessionID())
	got := make(chan []*agentdv1.RunResponse)
	go func() {
		_, w, err := f.m.Attach(t.Context(), session.AttachRequest{SessionID: a.SessionID(), TurnID: a.ID()})
		if err != nil {
			t.Errorf("attach: %v", err)
			close(got)
			return
		}
		go func() { // in case it is the wrong one
			answer(t, c)
		}()
		msgs, err := followErr(t, w)
		if err != nil {
			t.Errorf("next: %v", err)
		}
		got <- msgs
	}()
	time.Sleep(20 * time.Millisecond) // it attaches; one that has not begun to gets the turn just as well
	answer(t, a)
	follow(t, wa)
	await(t, wc, isCall)
	release()
	if said := texts(<-got)["root"]; said != "re: ask a" {
		t.Errorf("the client of a was told %q", said)
	}
	follow(t, wc)
}

// A client asks for the watcher of its prompt while that one begins.
func TestWatchWhileTheTurnBegins(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(talk)
	a := f.start(session.Request{Prompt: "ask a"})
	wa := a.Watch()
	await(t, wa, isCall)
	b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: enqueue})
	wb := make(chan *session.Watcher)
	go answer(t, a)
	go func() { wb <- b.Watch() }()
	if !end(t, follow(t, <-wb)).Completed {
		t.Error("b was not completed")
	}
	follow(t, wa)
}

// A request is repeated whose prompt has become a message of the running turn: its
// client can receive calls of the tools that it brought.
func TestRepeatOfAnInjectedPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(func(ctx context.Context, r *session.Run) error {
			if err := talk(ctx, r); err != nil {
				return err
			}
			_, err := call(ctx, r, "late")
			return err
		})
		a := f.start(session.Request{Prompt: "ask a"})
		wa := a.Watch()
		await(t, wa, isCall)
		b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: inject})
		answer(t, a)
		wa.Close()
		synctest.Wait()
		_, w := f.attach(session.AttachRequest{SessionID: a.SessionID(), TurnID: b.ID(), Starter: true})
		synctest.Wait()
		if info, err := f.m.Turn(t.Context(), a.SessionID(), b.ID()); err != nil || info.Status != index.Running {
			t.Fatalf("it is %+v, %v", info, err)
		}
		await(t, w, isCall)
		if err := b.SubmitResult(t.Context(), session.ClientResult{CallID: "late", Output: new("x")}); err != nil {
			t.Error(err)
		}
		if !end(t, follow(t, w)).GetCompleted() {
			t.Error("want the turn completed")
		}
	})
}
