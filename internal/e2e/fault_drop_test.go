package e2e

import (
	"fmt"
	"testing"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// everythingSaid checks that everything has ended naturally.
func everythingSaid(t *testing.T, end *agentdv1.RunResponse_EndResponse) {
	t.Helper()
	if !end.GetCompleted() || end.GetUsageSummary().GetLlmCalls() != modelCalls {
		t.Errorf("got %v, want a completed turn of %d model calls", end, modelCalls)
	}
}

// undisturbed runs everything once and returns what came.
func (b *bed) undisturbed() *chain {
	b.t.Helper()
	c := b.chain(allTools)
	c.start(everything(), "go <turn undisturbed> "+payload)
	everythingSaid(b.t, c.rest())
	b.check(c.session, c)
	if len(c.got) < 30 {
		b.t.Fatalf("only %d messages to cut between: %v", len(c.got), c.got)
	}
	return c
}

// TestFaultDropAtEveryMessage is F06: a client that drops after the i-th message,
// for each i, in the middle of texts too, and comes back after its last position
// has seen exactly what the log tells: no gap, nothing twice.
func TestFaultDropAtEveryMessage(t *testing.T) {
	b := newBed(t, everythingPlays)
	n := len(b.undisturbed().got)
	b.each(n, func(b *bed, i int) {
		var opts []connect.ClientOption
		if i%3 == 0 {
			opts = append(opts, connect.WithGRPC())
		}
		c := b.chain(allTools, opts...)
		c.start(everything(), fmt.Sprintf("go <turn %d> %s", i, payload))
		for at := 0; (at < i || c.session == "") && !c.whole; at++ {
			m := c.next()
			// Every other time the call that came last is not answered.
			if isCall(m) && (at+1 < i || i%2 == 0) {
				c.answer(m.GetToolCall())
			}
		}
		if !c.whole {
			c.drop()
			c.attach()
			everythingSaid(b.t, c.rest())
		} else {
			c.rest()
		}
		b.check(c.session, c)
	})
}

// TestFaultAttachAtEveryMessage is F06 for a turn that is over: after each
// position comes exactly what follows.
func TestFaultAttachAtEveryMessage(t *testing.T) {
	b := newBed(t, everythingPlays)
	all := b.undisturbed()
	b.each(len(all.got)-1, func(b *bed, i int) {
		c := b.chain(nil)
		c.session = all.session
		if i > 0 {
			c.cursor = all.got[i-1].GetSeq()
		}
		c.from = c.cursor
		c.attach()
		everythingSaid(b.t, c.rest())
		sameStory(b.t, c.got, all.got[i:])
		b.check(c.session, c)
	})
}

// TestFaultGoClientDropsAtEveryEvent is F06 with the Go client, whose connection
// is cut when it has the i-th event: it comes back by itself, yields what the log
// tells, and runs each tool once.
func TestFaultGoClientDropsAtEveryEvent(t *testing.T) {
	b := newBed(t, everythingPlays)
	n := len(b.undisturbed().got)
	b.each(n, func(b *bed, i int) {
		cuts := newCuts(b.t, b.d.URL, none, 0)
		c := b.client(cuts.url)
		runs := b.offer(c, allTools...)
		var events []*client.Event
		for ev, err := range c.Run(b.t.Context(), everything(), fmt.Sprintf("go <turn %d> %s", i, payload)) {
			if err != nil {
				b.t.Fatalf("after %d events: %v", len(events), err)
			}
			if events = append(events, ev); len(events) == max(i, 1) {
				cuts.all()
			}
		}
		b.sameSaga(events, events[0].Started.SessionID)
		if b.t.Failed() {
			var x string
			for k, ev := range events {
				x += fmt.Sprintf("%d: %d %v %v %v %v\n", k+1, ev.Seq, ev.Replayed, ev.ToolCall, ev.ToolResult, ev.OutputChunk)
			}
			b.t.Log(x)
		}
		for tool, n := range runs.counts() {
			if want := map[string]int{"one": 2}[tool]; n != max(want, 1) {
				b.t.Errorf("tool %s has run %d times", tool, n)
			}
		}
		b.check(events[0].Started.SessionID)
	})
}
