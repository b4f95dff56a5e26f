package faults

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/session/record"
)

// TestFaultCancelAtEveryMessage is F35: a client cancels when it has the i-th
// message, for each i. The turn has one end, which says what was stopped; the
// connections of model calls under way are closed, open tool calls are cancelled,
// and the session goes on with a history that any provider takes.
func TestFaultCancelAtEveryMessage(t *testing.T) {
	b := newFixture(t, everythingScripts)
	all := b.undisturbed()
	n, whole := len(all.got), b.models.freeze("<turn undisturbed>")
	var closed, left atomic.Int32 // connections of model calls; calls of tools
	b.each(n, func(b *fixture, i int) {
		mark := fmt.Sprintf("<turn %d>", i)
		c := b.chain(allTools)
		c.start(everything(), "go "+mark+" "+payload)
		stopped, said := false, whole
		stop := func() {
			stopped = true
			said = b.models.freeze(mark) // whatever is under way stays so until it is aborted
			c.send(harness.Cancel(nil))
		}
		if i == 0 {
			stop()
		}
		var end *agentdv1.RunResponse_EndResponse
		cancelled := map[string]int{}
		var open []string
		for m := c.next(); m != nil; m = c.next() {
			switch {
			case isCall(m):
				open = append(open, m.GetToolCall().GetToolCallId())
				// Of three calls one is answered before the turn is cancelled.
				if !stopped && (len(c.got) < i || i%2 == 0) {
					c.answer(m.GetToolCall())
				}
			case m.GetToolCallCanceled() != nil:
				cancelled[m.GetToolCallCanceled().GetToolCallId()]++
			case isError(m):
				b.t.Errorf("got %v", m)
			case harness.IsEnd(m):
				if end != nil {
					b.t.Errorf("a second end: %v", m)
				}
				end = m.GetEnd()
				if err := c.bidi.CloseRequest(); err != nil {
					b.t.Fatal(err)
				}
			}
			if len(c.got) == i && !stopped && end == nil {
				stop()
			}
		}
		if end == nil {
			b.t.Fatalf("no end: %v", c.got)
		}
		c.whole = false // what came last is the end of a turn that was stopped
		calls, aborted := b.models.quiet(mark)
		closed.Add(int32(aborted))
		left.Add(int32(len(cancelled)))
		turns := b.check(c.session, c)
		last := turns[0]
		if end.GetCompleted() {
			if said < whole {
				b.t.Errorf("a turn that was cancelled has completed: %v", c.got)
			}
			return
		}
		if end.GetReason() == "" || end.GetReceipt() == nil || last.Ended.Completed {
			b.t.Errorf("got %v, the log has %+v; want a turn that was cancelled", end, last.Ended)
		}
		b.receipt(end.GetReceipt(), last, aborted, cancelled, open)
		if counted := int(end.GetUsageSummary().GetLlmCalls()); calls < counted || calls > counted+len(end.GetReceipt().GetAbortedModelCalls()) {
			b.t.Errorf("%d model calls were made, %d counted, %v", calls, counted, end)
		}

		c.start(everything(), fmt.Sprintf("again <turn %d.next> %s", i, payload))
		everythingSaid(b.t, c.rest()) // the fake models check the history of each call
		b.check(c.session, c)
	})
	if int(closed.Load()) < n/3 || int(left.Load()) < 4 {
		t.Errorf("of %d turns that were cancelled %d model calls were under way, and %d calls of tools open", n, closed.Load(), left.Load())
	}
	t.Logf("%d turns were cancelled, with %d model calls under way and %d calls of tools open", n, closed.Load(), left.Load())
}

// receipt holds what the end says was stopped against the log, the fake models, and what
// the client was told.
func (b *fixture) receipt(r *agentdv1.CancelReceipt, turn *harness.LoggedTurn, aborted int, cancelled map[string]int, asked []string) {
	b.t.Helper()
	if aborted > len(r.GetAbortedModelCalls()) {
		b.t.Errorf("the connections of %d model calls were closed, the receipt has %v", aborted, r.GetAbortedModelCalls())
	}
	for _, c := range r.GetAbortedModelCalls() {
		if len(c.GetAgentPath()) == 0 || !strings.HasPrefix(c.GetModel(), "openai/") && c.GetModel() == "" || c.GetMessageId() == "" || c.GetRan().AsDuration() < 0 {
			b.t.Errorf("aborted model call %v", c)
		}
	}
	if r.GetTook().AsDuration() < 0 {
		b.t.Errorf("took %v", r.GetTook())
	}
	for _, c := range r.GetCanceledToolCalls() {
		id := c.GetToolCallId()
		if res, ok := turn.Results[id]; ok && res.Outcome == record.Returned {
			b.t.Errorf("call %s (%s) was cancelled, the log has %+v", id, c.GetToolName(), res)
		}
		if slices.Contains(asked, id) && cancelled[id] != 1 {
			b.t.Errorf("the client was told %d times that call %s was cancelled", cancelled[id], id)
		}
	}
	for _, c := range r.GetAnsweredToolCalls() {
		if res := turn.Results[c.GetToolCallId()]; res.Outcome != record.Returned {
			b.t.Errorf("call %s was answered, the log has %+v", c.GetToolCallId(), res)
		}
		if cancelled[c.GetToolCallId()] != 0 {
			b.t.Errorf("call %s was answered and cancelled", c.GetToolCallId())
		}
	}
	for _, id := range asked {
		if _, ok := turn.Results[id]; !ok && cancelled[id] != 1 {
			b.t.Errorf("call %s was left open, and the client was told %d times that it was cancelled", id, cancelled[id])
		}
	}
}
