package client_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// cameBack checks how the last stream of a run began.
func (w *wires) cameBack(t *testing.T, turnID string) {
	t.Helper()
	if at := w.last(); at.GetTurnId() != turnID || at.GetAfterSeq() == 0 {
		t.Errorf("came back with %v, want turn %s", at, turnID)
	}
}

// isOver waits until a turn is.
func (b *busy) isOver(t *testing.T, turnID string) {
	t.Helper()
	c, _ := b.client(t)
	r := follow(c.Attach(t.Context(), b.started.SessionID, client.WithTurnID(turnID), client.Observe()))
	lastEnd(t, r.rest(t))
}

// TestCutWhileQueued: the connection breaks while the prompt waits, and comes back
// while it waits, while its turn runs, when that is over, and when the next one has
// begun.
func TestCutWhileQueued(t *testing.T) {
	for _, when := range []string{"waiting", "running", "over", "followed"} {
		t.Run(when, func(t *testing.T) {
			b := newBusy(t)
			c, w := b.client(t)
			r, q := b.joins(t, c, "second", client.OnBusyEnqueue)
			var third *running
			if when == "followed" {
				third, _ = b.joins(t, b.owner, "third", client.OnBusyEnqueue)
			}
			w.cut()
			if when == "waiting" {
				w.mend()
			}
			b.door.let(t, "in")
			b.says(t, "done")
			completes(t, b.turn, "A moment.done")
			call := b.next(t)
			if when == "running" {
				w.mend()
				r.until(t, isStarted)
			}
			call.gets(t, reply{text: "here I am"})
			switch when {
			case "over":
				b.isOver(t, q.TurnID)
				w.mend()
			case "followed":
				third.until(t, isStarted)
				w.mend()
			}
			events := completes(t, r, "here I am")
			if slices.ContainsFunc(events, func(e *client.Event) bool { return e.TurnID != q.TurnID || as[*client.TurnQueued](e) != nil }) {
				t.Errorf("%d events, the first %+v", len(events), events[0])
			}
			if when != "running" && as[*client.TurnStarted](events[0]) == nil {
				t.Errorf("first came %+v", events[0])
			}
			w.cameBack(t, q.TurnID)
			if third != nil {
				b.says(t, "third too")
				completes(t, third, "third too")
			}
		})
	}
}

// TestCutWhileAnotherTurnBegins: a run that comes back gets the end of its own
// turn. One whose prompt was injected belongs to the turn that took it up.
func TestCutWhileAnotherTurnBegins(t *testing.T) {
	for _, injected := range []bool{false, true} {
		b := newBusy(t)
		r, w := b.turn, b.wires
		c, cw := b.client(t)
		if injected {
			r, _ = b.joins(t, c, "and Bob", client.OnBusyInject)
			w = cw
			b.door.let(t, "in")
			b.next(t).gets(t, reply{text: "Bob, too.", calls: []string{"door"}})
			await(t, b.door.asked, "call of the tool")
			r.until(t, isStarted)
			r.until(t, func(e *client.Event) bool { return e.OutputChunk != nil })
		}
		other, _ := b.client(t)
		last, _ := b.joins(t, other, "last", client.OnBusyEnqueue)
		r.until(t, isQueued)
		b.door.let(t, "in")
		call := b.next(t)
		w.cut()
		call.gets(t, reply{text: "done"})
		last.until(t, isStarted)
		w.mend()
		events := completes(t, r, "done")
		if slices.ContainsFunc(events, func(e *client.Event) bool { return e.TurnID != b.started.TurnID }) {
			t.Errorf("injected %v: another turn was seen", injected)
		}
		w.cameBack(t, b.started.TurnID)
		b.says(t, "bye")
		completes(t, last, "bye")
	}
}

// TestQueuedPromptSurvivesARestart of the server, together with the turn that it
// waits for.
func TestQueuedPromptSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	s := newDaemonWith(t, newPuppet(), agentdtest.Config{Addr: "127.0.0.1:0", DataDir: dir})
	b := newBusyOn(t, s)
	c, w := b.client(t)
	r, q := b.joins(t, c, "second", client.OnBusyEnqueue)
	lead := func(addr string) { b.wires.lead(addr); w.lead(addr) }
	lead("") // others may get the port
	if err := s.d.Close(); err != nil {
		t.Fatal(err)
	}
	next := newDaemonWith(t, s.puppet, agentdtest.Config{Addr: "127.0.0.1:0", DataDir: dir})
	lead(strings.TrimPrefix(next.d.URL, "http://"))
	b.door.let(t, "in")
	if call := b.says(t, "done"); len(call.results) != 1 || !strings.Contains(call.results[0], "in") {
		t.Errorf("the model was told %q", call.results)
	}
	completes(t, b.turn, "A moment.done")
	b.says(t, "yes")
	if events := completes(t, r, "yes"); as[*client.TurnStarted](events[0]) == nil || events[0].TurnID != q.TurnID {
		t.Errorf("first came %+v", events[0])
	}
	w.cameBack(t, q.TurnID)
}

// TestDropIsSentAgain: the wish to take back a prompt that waits outlives the
// connection.
func TestDropIsSentAgain(t *testing.T) {
	b := newBusy(t)
	c, w := b.client(t)
	var control client.Control
	r := follow(c.Run(t.Context(), nil, "never", b.session(), client.WithOnBusy(client.OnBusyEnqueue), client.WithControl(&control)))
	q := r.until(t, isQueued)
	w.cut()
	if err := control.Cancel(); err != nil {
		t.Fatal(err)
	}
	w.mend()
	if end := lastEnd(t, r.rest(t)); end.Completed || end.Reason != "cancelled by the client" {
		t.Errorf("ended %+v", end)
	}
	w.cameBack(t, q.TurnID)
	b.door.let(t, "in")
	b.says(t, "done")
	completes(t, b.turn, "A moment.done")
}

// TestAttachToATurn names turns that wait, run, and are over.
func TestAttachToATurn(t *testing.T) {
	b := newBusy(t)
	c, _ := b.client(t)
	r, q := b.joins(t, c, "second", client.OnBusyEnqueue)
	id := b.started.SessionID
	other, w := b.client(t)
	attach := func(turnID string) *running { return follow(other.Attach(t.Context(), id, client.WithTurnID(turnID))) }
	waits := attach(q.TurnID)
	if event := waits.until(t, func(*client.Event) bool { return true }); as[*client.TurnQueued](event) == nil || !reflect.DeepEqual(as[*client.TurnQueued](event), q) || !event.Replayed {
		t.Errorf("first came %+v", event)
	}
	w.cut()
	w.mend()
	runs := attach(b.started.TurnID)
	runs.until(t, isStarted)
	b.door.let(t, "in")
	b.says(t, "done")
	b.says(t, "yes")
	completes(t, b.turn, "A moment.done")
	completes(t, runs, "A moment.done")
	completes(t, r, "yes")
	completes(t, waits, "yes")
	completes(t, attach(b.started.TurnID), "A moment.done")
	completes(t, attach(q.TurnID), "yes")
	unknown := attach("e-nothing")
	if event := await(t, unknown.events, "end of the run"); event != nil || !errors.Is(unknown.err, client.Code(agentdv1.ErrorCode_ERROR_CODE_NOT_FOUND)) || !strings.Contains(unknown.err.Error(), "e-nothing") {
		t.Errorf("got %+v, %v", event, unknown.err)
	}
	for _, bad := range []string{"", strings.Repeat("x", 129)} {
		for _, err := range other.Attach(t.Context(), id, client.WithTurnID(bad)) {
			if !errors.Is(err, client.ErrInvalidRequest) || !strings.Contains(err.Error(), "client.WithTurnID") {
				t.Errorf("%d bytes: got %v", len(bad), err)
			}
		}
	}
}

// TestAttachLeavesTheNextTurnAlone: from a position in an earlier turn it yields
// that one to its end. The turn that runs waits for its client nevertheless.
func TestAttachLeavesTheNextTurnAlone(t *testing.T) {
	s := newDaemon(t)
	c, w := s.client(t)
	door := newDoor(t, c, "door")
	first := follow(c.Run(t.Context(), actor("door"), "first"))
	started := first.until(t, isStarted)
	s.says(t, "one")
	completes(t, first, "one")
	second := follow(c.Run(t.Context(), nil, "second", client.WithSessionID(started.SessionID)))
	s.next(t).gets(t, reply{calls: []string{"door"}})
	await(t, door.asked, "call of the tool")
	w.cut()
	other, _ := s.client(t)
	newDoor(t, other, "door")
	events := follow(other.Attach(t.Context(), started.SessionID, client.WithAfterSeq(started.Seq)))
	completes(t, events, "one")
	w.mend()
	door.let(t, "in")
	if call := s.says(t, "two"); len(call.results) != 1 || !strings.Contains(call.results[0], "in") {
		t.Errorf("the model was told %q", call.results)
	}
	completes(t, second, "two")
}

// TestAttachNamesTheTurnItFollows once it knows it: another turn may have begun
// when it comes back.
func TestAttachNamesTheTurnItFollows(t *testing.T) {
	l, _ := finishedLog(t)
	before := len(l.streams)
	l.cut = func(stream, sent int) bool { return stream == before+1 && sent == 3 }
	watch(t, dial(t, host(t, l), quick), client.Observe(), client.WithAfterSeq(20))
	if len(l.streams) != before+2 {
		t.Fatalf("%d streams", len(l.streams)-before)
	}
	if first := l.streams[before].attach; first.GetTurnId() != "" || first.GetAfterSeq() != 20 {
		t.Errorf("attached with %v", first)
	}
	if second := l.streams[before+1].attach; second.GetTurnId() != "turn" || second.GetAfterSeq() <= 20 {
		t.Errorf("came back with %v", second)
	}
}

// TestServerThatNamesNoTurns: then the run names none either.
func TestServerThatNamesNoTurns(t *testing.T) {
	l := newTurnLog(t, tale)
	l.unnamed = true
	l.cut = func(stream, sent int) bool { return stream == 1 && sent == 4 }
	c := dial(t, host(t, l), quick)
	doubler(t, c)
	if res, err := c.Do(t.Context(), llm("double"), "tell"); err != nil || res.Text != taleText {
		t.Errorf("got %+v, %v", res, err)
	}
	if at := l.streams[1].attach; at.GetTurnId() != "" || at.GetAfterSeq() == 0 {
		t.Errorf("came back with %v", at)
	}
}

// TestQueuedTurnBeginsOnce: whatever place the ExecuteResponse has that follows
// TurnQueued, it is yielded, and no repeat of it is.
func TestQueuedTurnBeginsOnce(t *testing.T) {
	for _, seq := range []int64{0, 20} {
		url := serve(t, func(_ context.Context, s *peer) error {
			started := &agentdv1.RunResponse{Seq: seq, TurnId: "t", Response: &agentdv1.RunResponse_Execute{
				Execute: &agentdv1.RunResponse_ExecuteResponse{SessionId: session},
			}}
			return steps(
				func() error {
					return s.send(&agentdv1.RunResponse{Seq: 10, TurnId: "t", Response: &agentdv1.RunResponse_TurnQueued{
						TurnQueued: &agentdv1.TurnQueued{SessionId: session, UserPrompt: "hi", Ahead: 2},
					}})
				},
				func() error { return s.send(started) },
				func() error { return s.send(started) },
				func() error { return s.end(true, "") },
			)
		})
		var notes []string
		for event, err := range dial(t, url).Run(t.Context(), llm(), "hi", client.WithSessionID(session), client.WithOnBusy(client.OnBusyEnqueue)) {
			switch {
			case err != nil:
				t.Fatal(err)
			case as[*client.TurnQueued](event) != nil:
				if !reflect.DeepEqual(as[*client.TurnQueued](event), &client.TurnQueued{SessionID: session, TurnID: "t", Prompt: "hi", Ahead: 2}) {
					t.Errorf("queued: %+v", as[*client.TurnQueued](event))
				}
				notes = append(notes, "queued")
			case as[*client.TurnStarted](event) != nil:
				notes = append(notes, "started")
			case event.End != nil:
				notes = append(notes, "end")
			}
		}
		if got := strings.Join(notes, " "); got != "queued started end" {
			t.Errorf("seq %d: got %q", seq, got)
		}
	}
}
