package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Refusals change nothing.
func TestRefusedResolutions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{MaxResultBytes: 100})
		f.on(careful)
		a := f.start(session.Request{})
		await(t, a.Watch(), isAsked)
		f.on(curious)
		q := f.start(session.Request{})
		await(t, q.Watch(), isAsked)
		for name, tc := range map[string]struct {
			turn *session.Turn
			id   string
			r    record.Resolution
			want agentdv1.ErrorCode
		}{
			"unknown":               {a, "q2", approve(""), noSuch},
			"answer to an approval": {a, "q1", reply("yes"), badRequest},
			"approval of question":  {q, "q1", approve(""), badRequest},
			"no object":             {a, "q1", approve(`[1]`), badRequest},
			"no JSON":               {a, "q1", approve(`{"a":`), badRequest},
			"empty":                 {a, "q1", record.Resolution{Decision: record.Approve, Input: json.RawMessage{}}, badRequest},
			"too large":             {q, "q1", reply(strings.Repeat("x", 101)), agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED},
		} {
			if err := tc.turn.Resolve(t.Context(), tc.id, tc.r); code(err) != tc.want {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, turn := range []*session.Turn{a, q} {
			if in, err := f.m.Interaction(t.Context(), turn.SessionID(), "q1"); err != nil || in.Status != asking {
				t.Errorf("afterwards it is %v, %v", in, err)
			}
			turn.Cancel("")
			<-turn.Done()
			if err := turn.Resolve(t.Context(), "q1", deny("")); code(err) != precondition {
				t.Errorf("after the turn: %v", err)
			}
		}
	})
}

// The first resolution stands, whoever comes second, wherever the turn is by
// then; a repeat under the same key is none.
func TestFirstResolutionStands(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(careful)
	turn := f.start(session.Request{})
	w := turn.Watch()
	await(t, w, isAsked)
	won := make(chan string)
	for i := range 8 {
		go func() {
			key := fmt.Sprint("k", i)
			r := approve(fmt.Sprintf(`{"a":%d}`, i))
			r.Key = key
			switch err := turn.Resolve(t.Context(), "q1", r); {
			case err == nil:
				won <- key
			case code(err) == precondition:
				won <- ""
			default:
				t.Errorf("resolve: %v", err)
				won <- ""
			}
		}()
	}
	var winners []string
	for range 8 {
		if key := <-won; key != "" {
			winners = append(winners, key)
		}
	}
	if len(winners) != 1 {
		t.Fatalf("%v have won", winners)
	}
	again := func() {
		t.Helper()
		r := approve(`{ "a":` + winners[0][1:] + `}`)
		r.Key = winners[0]
		if err := turn.Resolve(t.Context(), "q1", r); err != nil {
			t.Errorf("a repeat: %v", err)
		}
		if in, err := f.m.Resolve(t.Context(), session.AttachRequest{SessionID: turn.SessionID()}, "q1", r); err != nil || in.Status != resolved {
			t.Errorf("a repeat: %v, %v", in, err)
		}
		r.Input = nil
		if err := turn.Resolve(t.Context(), "q1", r); code(err) != precondition {
			t.Errorf("another one under the same key: %v", err)
		}
		r.Key = ""
		if err := turn.Resolve(t.Context(), "q1", r); code(err) != precondition {
			t.Errorf("without a key: %v", err)
		}
	}
	again()
	await(t, w, isCall)
	if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "q1", Output: new("done")}); err != nil {
		t.Fatal(err)
	}
	follow(t, w)
	<-turn.Done()
	again()
}

// A resolution counts wherever the turn is: suspended, or left behind by a server that
// was killed.
func TestResolvingATurnThatRunsNowhere(t *testing.T) {
	for name, tc := range map[string]struct {
		engine  func(context.Context, *session.Run) error
		r       record.Resolution
		restart bool
		says    string
	}{
		"approval, put aside": {careful, approve(`{"a":2}`), false, `answered: done (approve {"a":2})`},
		"approval, killed":    {careful, approve(`{"a":2}`), true, `answered: done (approve {"a":2})`},
		"denial, put aside":   {careful, deny("no"), false, "denied: no (deny no)"},
		"answer, killed":      {curious, reply("so"), true, "answered: so (reply )"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{})
				f.on(tc.engine)
				turn := f.start(session.Request{})
				w := turn.Watch()
				await(t, w, isAsked)
				w.Close()
				if tc.restart {
					f.stop()
					g := newFixture(t, f.store, limits.Limits{})
					g.on(tc.engine)
					if err := g.m.Recover(t.Context()); err != nil {
						t.Fatal(err)
					}
					f = g
				}
				time.Sleep(2 * time.Hour)
				info, err := f.m.Session(t.Context(), turn.SessionID())
				if err != nil || info.LastIs != index.WaitingForInput {
					t.Errorf("the session's last turn is %v, %v", info.LastIs, err)
				}
				is, err := f.m.Turn(t.Context(), turn.SessionID(), "")
				if err != nil || is.Status != index.WaitingForInput || len(is.Asking) != 1 || len(is.Open) != 0 {
					t.Errorf("it is %v, %v", is, err)
				}
				in, err := f.m.Resolve(t.Context(), session.AttachRequest{SessionID: turn.SessionID()}, "q1", tc.r)
				if err != nil || in.Status != resolved {
					t.Fatalf("resolve: %v, %v", in, err)
				}
				after, w := f.attach(session.AttachRequest{SessionID: turn.SessionID(), Tools: []string{"tool"}})
				var msgs []*agentdv1.RunResponse
				if tc.r.Decision == record.Approve {
					synctest.Wait()
					if is, err := f.m.Turn(t.Context(), turn.SessionID(), ""); err != nil || is.Status != index.Running || len(is.Open) != 1 || string(is.Open[0].Input) != `{"a":2}` {
						t.Errorf("approved, it is %v, %v", is, err)
					}
					msgs = await(t, w, isCall)
					if got := msgs[slices.IndexFunc(msgs, isCall)].GetToolCall().GetToolInput(); got != `{"a":2}` {
						t.Errorf("asked with %s", got)
					}
					if err := after.SubmitResult(t.Context(), session.ClientResult{CallID: "q1", Output: new("done")}); err != nil {
						t.Fatal(err)
					}
				}
				msgs = append(msgs, follow(t, w)...)
				if got := texts(msgs)["root"]; got != tc.says || !end(t, msgs).Completed {
					t.Errorf("said %q, want %q", got, tc.says)
				}
			})
		})
	}
}

// A person who resolves need not bring the caller's own keys: the turn continues
// when somebody does.
func TestResolvingATurnOnItsCallersKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(curious)
		keys := session.Keys{"gemini": "secret"}
		turn := f.start(session.Request{Keys: keys})
		w := turn.Watch()
		await(t, w, isAsked)
		w.Close()
		time.Sleep(time.Hour)
		if in, err := f.m.Resolve(t.Context(), session.AttachRequest{SessionID: turn.SessionID()}, "q1", reply("so")); err != nil || in.Status != resolved {
			t.Fatalf("resolve: %v, %v", in, err)
		}
		_, w = f.attach(session.AttachRequest{SessionID: turn.SessionID(), Keys: keys})
		if msgs := follow(t, w); texts(msgs)["root"] != "answered: so (reply )" {
			t.Errorf("said %v", texts(msgs))
		}
	})
}

// Of two that come while neither is written yet one stands.
func TestResolutionWhileAnotherIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{Store: memory(t)}
		f := newFixture(t, g, limits.Limits{})
		f.on(curious)
		turn := f.start(session.Request{})
		w := turn.Watch()
		await(t, w, isAsked)
		open := g.shut()
		tried := make(chan error)
		go func() { tried <- turn.Resolve(t.Context(), "q1", reply("once")) }()
		go func() { tried <- turn.Resolve(t.Context(), "q1", reply("twice")) }()
		synctest.Wait()
		open()
		a, b := <-tried, <-tried
		if (a == nil) == (b == nil) || code(errors.Join(a, b)) != precondition {
			t.Errorf("got %v and %v, want one that stands", a, b)
		}
		follow(t, w)
	})
}

// A resolution is on its way into the log while its turn is suspended and resumes: it
// counts for the turn that resumes, and nobody comes in between.
func TestResolutionWhileTheTurnGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{Store: memory(t)}
		f := newFixture(t, g, limits.Limits{IdleTurn: time.Second})
		f.on(curious)
		turn := f.start(session.Request{})
		w := turn.Watch()
		await(t, w, isAsked)
		w.Close()
		open := g.shut()
		first, second := make(chan error), make(chan error)
		go func() {
			_, err := f.m.Resolve(t.Context(), session.AttachRequest{SessionID: turn.SessionID()}, "q1", reply("once"))
			first <- err
		}()
		time.Sleep(2 * time.Second)
		<-turn.Done() // it was suspended
		watched := make(chan *session.Watcher)
		go func() {
			_, w := f.attach(session.AttachRequest{SessionID: turn.SessionID()})
			watched <- w
		}()
		synctest.Wait()
		go func() {
			_, err := f.m.Resolve(t.Context(), session.AttachRequest{SessionID: turn.SessionID()}, "q1", reply("twice"))
			second <- err
		}()
		synctest.Wait()
		open()
		if err := <-first; err != nil {
			t.Errorf("the first resolution: %v", err)
		}
		if err := <-second; code(err) != precondition {
			t.Errorf("the second resolution: %v", err)
		}
		if msgs := follow(t, <-watched); texts(msgs)["root"] != "answered: once (reply )" {
			t.Errorf("said %v", texts(msgs))
		}
	})
}

// A full store refuses a resolution at once; the resolution can be repeated.
func TestResolutionAndAFullStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &tampered{Store: memory(t)}
		f := newFixture(t, db, limits.Limits{})
		f.on(curious)
		turn := f.start(session.Request{})
		w := turn.Watch()
		await(t, w, isAsked)
		db.tamper(always(store.ErrFull))
		for range 2 {
			if err := turn.Resolve(t.Context(), "q1", reply("so")); code(err) != unavailable {
				t.Errorf("while the store is full: %v", err)
			}
		}
		db.tamper(nil)
		if err := turn.Resolve(t.Context(), "q1", reply("so")); err != nil {
			t.Errorf("then: %v", err)
		}
		if msgs := follow(t, w); texts(msgs)["root"] != "answered: so (reply )" {
			t.Errorf("said %v", texts(msgs))
		}
	})
}
