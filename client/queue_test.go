package client_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/apzuk3/agentd/client"
)

// busy is a daemon with a running turn that waits for its tool.
type busy struct {
	*daemonWithModel
	owner   *client.Client
	wires   *wires // the owner's
	door    *doorTool
	turn    *running
	started *client.Event
}

func newBusy(t *testing.T) *busy {
	t.Helper()
	return newBusyOn(t, newDaemon(t))
}

func newBusyOn(t *testing.T, s *daemonWithModel) *busy {
	t.Helper()
	b := &busy{daemonWithModel: s}
	b.owner, b.wires = b.daemonWithModel.client(t)
	b.door = newDoor(t, b.owner, "door")
	b.turn = follow(b.owner.Run(t.Context(), actor("door"), "first"))
	b.started = b.turn.until(t, isStarted)
	b.next(t).gets(t, reply{text: "A moment.", calls: []string{"door"}})
	await(t, b.door.asked, "call of the tool")
	return b
}

func (b *busy) session() client.RunOption { return client.WithSessionID(b.started.SessionID) }

// joins runs a prompt in the busy session and returns the run and its first
// event, which must be that it waits.
func (b *busy) joins(t *testing.T, c *client.Client, prompt string, how client.OnBusy) (*running, *client.TurnQueued) {
	t.Helper()
	r := follow(c.Run(t.Context(), nil, prompt, b.session(), client.WithOnBusy(how)))
	event := r.until(t, func(*client.Event) bool { return true })
	q := as[*client.TurnQueued](event)
	if q == nil || q.Prompt != prompt || q.SessionID != b.started.SessionID || q.TurnID == "" || q.TurnID != event.TurnID || q.TurnID == b.started.TurnID {
		t.Fatalf("first came %+v, %+v", event, q)
	}
	return r, q
}

// completes checks that a run continues to its natural end with a text.
func completes(t *testing.T, r *running, text string) []*client.Event {
	t.Helper()
	events := r.rest(t)
	if end := lastEnd(t, events); !end.Completed || end.Receipt != nil || textOf(events) != text {
		t.Errorf("said %q, want %q; ended %+v", textOf(events), text, end)
	}
	return events
}

func TestBusyIsRejected(t *testing.T) {
	b := newBusy(t)
	for _, opts := range [][]client.RunOption{nil, {client.WithOnBusy(client.OnBusyReject)}} {
		if _, err := b.owner.Do(t.Context(), nil, "second", append(opts, b.session())...); !errors.Is(err, client.ErrSessionBusy) {
			t.Errorf("want SESSION_BUSY, got %v", err)
		}
	}
	b.door.let(t, "in")
	b.says(t, "done")
	completes(t, b.turn, "A moment.done")
}

// TestEnqueuedPromptsRunInOrder: each begins when those before it are over.
func TestEnqueuedPromptsRunInOrder(t *testing.T) {
	b := newBusy(t)
	c, _ := b.client(t)
	var runs []*running
	var queued []*client.TurnQueued
	for i := range 3 {
		r, q := b.joins(t, c, fmt.Sprint("prompt ", i), client.OnBusyEnqueue)
		if q.Ahead != i || q.Inject {
			t.Errorf("prompt %d: %+v", i, q)
		}
		if seen := as[*client.TurnQueued](b.turn.until(t, isQueued)); !reflect.DeepEqual(seen, q) {
			t.Errorf("the running turn's client saw %+v, want %+v", seen, q)
		}
		runs, queued = append(runs, r), append(queued, q)
	}
	b.door.let(t, "in")
	b.says(t, "done")
	completes(t, b.turn, "done")
	for i, r := range runs {
		call := b.says(t, fmt.Sprint("answer ", i))
		if got := call.heard; len(got) != i+2 || got[i+1] != fmt.Sprint("prompt ", i) {
			t.Errorf("turn %d heard %q", i, got)
		}
		events := completes(t, r, fmt.Sprint("answer ", i))
		if as[*client.TurnStarted](events[0]) == nil || slices.ContainsFunc(events, func(e *client.Event) bool { return e.TurnID != queued[i].TurnID }) {
			t.Errorf("turn %s: first came %+v", queued[i].TurnID, events[0])
		}
	}
}

// TestInterrupt: the running turn is canceled, and the prompt goes before one
// that waits already.
func TestInterrupt(t *testing.T) {
	b := newBusy(t)
	c, _ := b.client(t)
	waits, _ := b.joins(t, c, "patient", client.OnBusyEnqueue)
	urgent, q := b.joins(t, c, "urgent", client.OnBusyInterrupt)
	if q.Ahead != 0 {
		t.Errorf("queued %+v", q)
	}
	end := lastEnd(t, b.turn.rest(t))
	if end.Completed || !strings.Contains(end.Reason, "interrupted") || end.Receipt == nil || len(end.Receipt.CanceledToolCalls) != 1 {
		t.Errorf("ended %+v", end)
	}
	b.door.stops(t)
	if call := b.says(t, "at once"); call.heard[len(call.heard)-1] != "urgent" {
		t.Errorf("heard %q", call.heard)
	}
	completes(t, urgent, "at once")
	b.says(t, "then this")
	completes(t, waits, "then this")
}

// TestInject: while a tool runs the user says something, which the model's next
// call sees. The client that runs the turn stays the one who is asked.
func TestInject(t *testing.T) {
	b := newBusy(t)
	other, _ := b.client(t) // it has no tools
	r, q := b.joins(t, other, "and Bob", client.OnBusyInject)
	if !q.Inject || q.Ahead != 0 {
		t.Errorf("queued %+v", q)
	}
	b.door.let(t, "in")
	call := b.next(t)
	if want := []string{"first", "and Bob"}; !slices.Equal(call.heard, want) || len(call.results) != 1 || !strings.Contains(call.results[0], "in") {
		t.Errorf("the model was told %q and %q", call.heard, call.results)
	}
	call.gets(t, reply{calls: []string{"door"}})
	await(t, b.door.asked, "call of the tool")
	b.door.let(t, "again")
	if call := b.says(t, "done"); len(call.results) != 2 || !strings.Contains(call.results[1], "again") {
		t.Errorf("the model was told %q", call.results)
	}
	said := func(e *client.Event) bool { return as[*client.MessageInjected](e) != nil }
	if m := b.turn.until(t, said); as[*client.MessageInjected](m).Prompt != "and Bob" || as[*client.MessageInjected](m).QueuedTurnID != q.TurnID || m.TurnID != b.started.TurnID {
		t.Errorf("the turn's own client saw %+v", as[*client.MessageInjected](m))
	}
	completes(t, b.turn, "done")
	events := completes(t, r, "done")
	if as[*client.TurnStarted](events[0]) == nil || slices.ContainsFunc(events, func(e *client.Event) bool { return e.TurnID != b.started.TurnID }) {
		t.Errorf("first came %+v", events[0])
	}
	if !slices.ContainsFunc(events, said) || slices.ContainsFunc(events, func(e *client.Event) bool { return e.ToolCall != nil }) {
		t.Errorf("%d events: the message is missing, or this client was asked for a tool", len(events))
	}
}

// TestInjectTooLate: the model is responding already, and is not called a second time.
func TestInjectTooLate(t *testing.T) {
	b := newBusy(t)
	b.door.let(t, "in")
	call := b.next(t)
	other, _ := b.client(t)
	r, q := b.joins(t, other, "and Bob", client.OnBusyInject)
	call.gets(t, reply{text: "done"})
	completes(t, b.turn, "A moment.done")
	if call := b.says(t, "Bob too"); !slices.Equal(call.heard, []string{"first", "and Bob"}) {
		t.Errorf("the model heard %q", call.heard)
	}
	if events := completes(t, r, "Bob too"); as[*client.TurnStarted](events[0]) == nil || events[0].TurnID != q.TurnID {
		t.Errorf("first came %+v", events[0])
	}
}

// TestInjectIntoAnIdleSession starts a turn at once.
func TestInjectIntoAnIdleSession(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	r := follow(c.Run(t.Context(), actor(), "hi", client.WithOnBusy(client.OnBusyInject)))
	s.says(t, "hello")
	if events := completes(t, r, "hello"); as[*client.TurnStarted](events[0]) == nil {
		t.Errorf("first came %+v", events[0])
	}
}

// TestWaitingPromptIsDropped in each way to leave a run; the next prompt takes
// its place.
func TestWaitingPromptIsDropped(t *testing.T) {
	tests := map[string]func(*testing.T, *busy, *client.Client){
		"control": func(t *testing.T, b *busy, c *client.Client) {
			t.Helper()
			var control client.Control
			var events []*client.Event
			for event, err := range c.Run(t.Context(), nil, "never", b.session(), client.WithOnBusy(client.OnBusyEnqueue), client.WithControl(&control)) {
				if err == nil && as[*client.TurnQueued](event) != nil {
					err = control.End("changed my mind")
				}
				if err != nil {
					t.Fatal(err)
				}
				events = append(events, event)
			}
			if end := lastEnd(t, events); end.Completed || end.Reason != "changed my mind" || end.Receipt == nil || len(end.Receipt.AbortedModelCalls) > 0 || len(events) != 2 {
				t.Errorf("%d events, ended %+v", len(events), end)
			}
		},
		"break": func(t *testing.T, b *busy, c *client.Client) {
			t.Helper()
			for event, err := range c.Run(t.Context(), nil, "never", b.session(), client.WithOnBusy(client.OnBusyEnqueue)) {
				if err != nil || as[*client.TurnQueued](event) == nil {
					t.Fatalf("got %+v, %v", event, err)
				}
				break
			}
		},
		"context": func(t *testing.T, b *busy, c *client.Client) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			r := follow(c.Run(ctx, nil, "never", b.session(), client.WithOnBusy(client.OnBusyEnqueue)))
			r.until(t, isQueued)
			cancel()
			for range r.events {
				t.Error("something came after the cancel")
			}
			if !errors.Is(r.err, context.Canceled) {
				t.Errorf("want the context's error, got %v", r.err)
			}
		},
	}
	for name, leave := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBusy(t)
				c, _ := b.client(t)
				leave(t, b, c)
				r, q := b.joins(t, c, "second", client.OnBusyEnqueue)
				if q.Ahead != 0 {
					t.Errorf("%d turns wait", q.Ahead)
				}
				b.door.let(t, "in")
				b.says(t, "done")
				completes(t, b.turn, "A moment.done")
				if call := b.says(t, "yes"); !slices.Equal(call.heard, []string{"first", "second"}) {
					t.Errorf("the model heard %q", call.heard)
				}
				completes(t, r, "yes")
			})
		})
	}
}

func TestWrongOnBusy(t *testing.T) {
	c := dial(t, serve(t, func(context.Context, *peer) error {
		t.Error("something was sent")
		return nil
	}))
	if _, err := c.Do(t.Context(), llm(), "hi", client.WithOnBusy(9)); !errors.Is(err, client.ErrInvalidRequest) || !strings.Contains(err.Error(), "got 9") {
		t.Errorf("got %v", err)
	}
}
