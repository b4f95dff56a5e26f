package faults

import (
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/harness"
)

// everythingSaid checks that everything has ended naturally.
func everythingSaid(t *testing.T, end *agentdv1.RunResponse_EndResponse) {
	t.Helper()
	if !end.GetCompleted() || end.GetUsageSummary().GetLlmCalls() != modelCalls {
		t.Errorf("got %v, want a completed turn of %d model calls", end, modelCalls)
	}
}

// undisturbed runs everything once and returns what came.
func (b *fixture) undisturbed() *chain {
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
	b := newQuickFixture(t, everythingScripts)
	n := len(b.undisturbed().got)
	b.each(n, func(b *fixture, i int) {
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
	b := newFixture(t, everythingScripts)
	all := b.undisturbed()
	b.each(len(all.got)-1, func(b *fixture, i int) {
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
	b := newQuickFixture(t, everythingScripts)
	n := len(b.undisturbed().got)
	b.each(n, func(b *fixture, i int) {
		cuts := newCuts(b.t, b.url, none, 0)
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
		b.sameSaga(events, events[0].SessionID)
		for tool, n := range runs.counts() {
			if want := map[string]int{"one": 2}[tool]; n != max(want, 1) {
				b.t.Errorf("tool %s has run %d times", tool, n)
			}
		}
		b.check(events[0].SessionID)
	})
}

// everyByte has TestFaultCutAtEveryByte leave out no byte.
var everyByte = flag.Bool("every-byte", false, "cut connections behind every byte, not every 17th")

// TestFaultCutAtEveryByte is F07: the connection is cut behind the k-th byte of
// what goes either way, for each k if so asked for. The Go client comes back by itself and ends
// with what it would have got, or, as long as nobody can know whether the turn
// has begun, with an error that says that it may be tried again.
func TestFaultCutAtEveryByte(t *testing.T) {
	b := newQuickFixture(t, map[string][]answer{"short": {{text: []string{"Let me ", "look. "}, calls: []string{"look"}}, {text: []string{"I see."}}}})
	b.models.pause = 0
	run := func(b *fixture, name string, w way, after int64) (*cuts, *client.Result, error) {
		cuts := newCuts(b.t, b.url, w, after)
		c := b.client(cuts.url)
		defer c.CloseIdleConnections()
		runs := b.offer(c, "look")
		res, err := c.Do(b.t.Context(), fakeAgent("short", "look"), fmt.Sprintf("go <turn %s> %s", name, payload))
		if n := runs.counts()["look"]; n > 1 || err == nil && n != 1 {
			b.t.Errorf("the tool has run %d times", n)
		}
		return cuts, res, err
	}
	whole, res, err := run(b, "whole", none, 0)
	if err != nil || res.Text != "Let me look. I see." || !res.Completed {
		t.Fatalf("got %+v, %v", res, err)
	}
	whole.close() // all of it has been counted then
	step := 17
	if *everyByte {
		step = 1
	}
	for name, w := range map[string]way{"from the server": fromServer, "from the client": fromClient} {
		t.Run(name, func(t *testing.T) {
			mine := *b
			mine.t = t
			n := int(whole.carried(w))
			if n < 300 {
				t.Fatalf("only %d bytes to cut between", n)
			}
			var unknown atomic.Int32
			mine.each(n/step, func(b *fixture, i int) {
				_, res, err := run(b, fmt.Sprintf("%d-%d", w, i*step), w, int64(i*step))
				if failure, ok := errors.AsType[*client.Error](err); ok && errors.Is(err, client.ErrUnavailable) && failure.Retryable && res.SessionID == "" {
					unknown.Add(1)
					return
				}
				if err != nil || res.Text != "Let me look. I see." || !res.Completed || res.Usage.ModelCalls != 2 {
					b.t.Errorf("cut behind byte %d of %d: %+v, %v", i*step, n, res, err)
				}
				b.check(res.SessionID)
			})
			t.Logf("%d bytes, cut behind each %d; %d times nobody knew whether the turn has begun", n, step, unknown.Load())
			if int(unknown.Load()) > n/step*9/10 {
				t.Errorf("only %d of %d turns were known to have begun", n/step-int(unknown.Load()), n/step)
			}
		})
	}
	// Turns that nobody knows of are begun at most once, and leave valid logs.
	begun := map[string]int{}
	for _, id := range b.store.Started(t) {
		b.awaitEnd(id)
		for _, turn := range harness.ReadLog(t.Context(), t, b.store, id) {
			begun[turn.Started.Prompt]++
		}
	}
	for prompt, n := range begun {
		if n != 1 {
			t.Errorf("%s was begun %d times", prompt, n)
		}
	}
}
