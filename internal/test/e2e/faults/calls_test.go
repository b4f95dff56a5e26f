package faults

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// askerScripts is a model that calls two tools together, and then says so.
var askerScripts = map[string][]answer{"asker": {{text: []string{"Two things. "}, calls: []string{"look", "one"}}, {text: []string{"Thank you."}}}}

// asked starts a turn of the asker and returns its calls, of look and of one.
func (c *chain) asked(mark string) (look, one *agentdv1.RunResponse_ToolCallRequest) {
	c.b.t.Helper()
	c.start(fakeAgent("asker", "look", "one"), "go "+mark+" "+payload)
	look = c.until(isCall).GetToolCall()
	one = c.until(isCall).GetToolCall()
	return look, one
}

// faultParts are what these tests do over Run alone.
var faultParts = harness.Alone{
	"TestFaultAnswerTwice/cancel":   "CancelToolCall leaves a call that has its result as it is; on Run that is a mistake",
	"TestFaultForeignAnswer/cancel": "a call that there is not is NOT_FOUND for CancelToolCall, INVALID_REQUEST on Run",
	"TestFaultForeignAnswer/flood":  "about how many refused messages Run's own stream takes",
}

func output(text string) *agentdv1.RunRequest_ToolCallResponse {
	return &agentdv1.RunRequest_ToolCallResponse{Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: text}}
}

const (
	invalid  = agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST
	tooLarge = agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED
	badTree  = agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE
)

// refuses sends what must be refused, and returns why it was. The log does not
// change by it, and the stream stays open.
func (c *chain) refuses(m *agentdv1.RunRequest, code agentdv1.ErrorCode) string {
	c.b.t.Helper()
	before, err := c.b.store.Head(c.b.t.Context(), c.session)
	if err != nil {
		c.b.t.Fatal(err)
	}
	c.send(m)
	e := c.until(isError).GetError()
	if e.GetCode() != code || e.GetRetryable() {
		c.b.t.Errorf("%.200s: got %v, want it refused with %v", m, e, code)
	}
	c.settled()
	if after, err := c.b.store.Head(c.b.t.Context(), c.session); err != nil || after != before {
		c.b.t.Errorf("%.200s: the log was at %+v, is at %+v (%v)", m, before, after, err)
	}
	return e.GetMessage()
}

// TestFaultAnswerTwice is F11: of the answers to a call the first stands. The same
// again is silent, anything else is refused and ends nothing.
func TestFaultAnswerTwice(t *testing.T) {
	b := newFixture(t, askerScripts)
	c := b.chain(allTools)
	look, one := c.asked("<turn twice>")
	c.answer(look)
	c.settled()
	n := len(c.got)
	c.answer(look)
	c.settled()
	more := slices.DeleteFunc(slices.Clone(c.got[n:]), func(m *agentdv1.RunResponse) bool {
		return m.GetToolCallAnswered() != nil // of the first one
	})
	if len(more) != 1 { // the heartbeat's answer
		t.Errorf("the same answer again was met with %v", more)
	}
	id := look.GetToolCallId()
	same := c.first[id]
	others := []*agentdv1.RunRequest{
		harness.ToolResponse(id, output(same+" ")),
		harness.ToolResponse(id, &agentdv1.RunRequest_ToolCallResponse{Result: &agentdv1.RunRequest_ToolCallResponse_Error{Error: "no"}}),
		harness.ToolResponse(id, &agentdv1.RunRequest_ToolCallResponse{}),
	}
	if faultParts.OverBoth(t, "TestFaultAnswerTwice/cancel") {
		others = append(others, harness.Cancel(&id))
	}
	for _, other := range others {
		if text := c.refuses(other, invalid); !strings.Contains(text, "too late") {
			t.Errorf("refused with %q", text)
		}
	}
	c.answer(one)
	if end := c.rest(); !end.GetCompleted() {
		t.Errorf("got %v", end)
	}
	b.check(c.session, c)
	if told := b.models.resultsOf("<turn twice>", "call_0"); len(told) != 1 || !strings.Contains(told[0], same) {
		t.Errorf("the model was told %q of the call", told)
	}
}

// TestFaultAnswersAtOnce is F11 for two clients that answer the same call at the
// same time with different bytes: one of them is refused.
func TestFaultAnswersAtOnce(t *testing.T) {
	b := newFixture(t, askerScripts)
	b.each(7, func(b *fixture, i int) {
		first, second := b.chain(allTools), b.chain(allTools)
		look, one := first.asked(fmt.Sprintf("<turn %d>", i))
		second.session = first.session
		second.attach()
		second.until(func(m *agentdv1.RunResponse) bool {
			return m.GetToolCallAnnounced().GetToolCallId() == one.GetToolCallId()
		})
		var both sync.WaitGroup
		texts := map[*chain]string{first: "from the first", second: "from the second"}
		for c, text := range texts {
			m := harness.ToolResponse(look.GetToolCallId(), output(text))
			both.Go(func() { _ = c.bidi.Send(m) }) // an error shows in what follows
		}
		both.Wait()
		refused := 0
		for c := range texts {
			c.settled()
			for _, m := range c.got {
				if isError(m) {
					refused++
					delete(texts, c)
				}
			}
		}
		if refused != 1 {
			b.t.Fatalf("%d answers were refused: %v, %v", refused, first.got, second.got)
		}
		for c, text := range texts {
			c.first[look.GetToolCallId()] = text
		}
		first.answer(one)
		first.rest()
		second.rest()
		b.check(first.session, first, second)
	})
}

// TestFaultTwoClients is F10: both clients of a session see everything; a call is
// offered to the newest that has the tool and, when that one leaves, after a grace
// to the other.
func TestFaultTwoClients(t *testing.T) {
	b := newFixture(t, everythingScripts)
	b.each(5, func(b *fixture, i int) {
		old, young, watcher := b.chain(allTools), b.chain(allTools), b.chain(nil)
		old.start(everything(), fmt.Sprintf("go <turn %d> %s", i, payload))
		var calls []*agentdv1.RunResponse_ToolCallRequest
		for range 3 {
			calls = append(calls, old.until(isCall).GetToolCall())
		}
		for _, c := range []*chain{young, watcher} {
			c.session = old.session
			c.attach()
			c.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCallAnnounced() != nil })
		}
		for _, call := range calls {
			old.answer(call)
		}
		more := young.until(isCall).GetToolCall()
		old.until(func(m *agentdv1.RunResponse) bool {
			if isCall(m) {
				b.t.Errorf("both clients are asked for %v", m)
			}
			return m.GetToolCallAnnounced().GetToolCallId() == more.GetToolCallId()
		})
		young.drop()
		if again := old.until(isCall).GetToolCall(); again.GetToolCallId() != more.GetToolCallId() {
			b.t.Errorf("got %v, want the call that was offered to the other", again)
		}
		old.answer(more)
		everythingSaid(b.t, old.rest())
		everythingSaid(b.t, watcher.rest())
		b.check(old.session, old, young, watcher)
	})
}

// TestFaultAnswerTooLate is F12: an answer after the call has timed out, was
// cancelled, or its turn is over is refused and changes nothing.
func TestFaultAnswerTooLate(t *testing.T) {
	b := newFixture(t, askerScripts)
	told := func(c *chain, id string) {
		t.Helper()
		c.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCallCanceled().GetToolCallId() == id })
	}
	for name, settle := range map[string]func(c *chain, id string){
		"timed-out": told,
		"cancelled": func(c *chain, id string) {
			c.send(harness.Cancel(&id))
			told(c, id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := *b
			b.t = t
			c := b.chain(allTools)
			timeout := func(d *durationpb.Duration) {
				for _, tool := range c.tools {
					if tool.GetName() == "look" {
						tool.Timeout = d
					}
				}
			}
			if name == "timed-out" {
				timeout(durationpb.New(20 * time.Millisecond))
			}
			mark := "<turn " + name + ">"
			look, one := c.asked(mark)
			settle(c, look.GetToolCallId())
			late := harness.ToolResponse(look.GetToolCallId(), output("late"))
			if text := c.refuses(late, invalid); !strings.Contains(text, "too late") {
				t.Errorf("refused with %q", text)
			}
			c.answer(one)
			if end := c.rest(); !end.GetCompleted() {
				t.Errorf("got %v", end)
			}
			b.check(c.session, c)
			if told := b.models.resultsOf(mark, "call_0"); len(told) != 1 || strings.Contains(told[0], "late") && !strings.Contains(told[0], "no result") {
				t.Errorf("the model was told %q of the call", told)
			}

			// In the session's next turn the call is as unknown as any other.
			timeout(nil)
			_, two := c.asked("<turn " + name + ".next>")
			if text := c.refuses(late, invalid); !strings.Contains(text, "no such call") {
				t.Errorf("refused with %q", text)
			}
			c.send(harness.Cancel(nil))
			c.until(harness.IsEnd)
			// After the end of a turn nothing is heard any more.
			c.send(harness.ToolResponse(two.GetToolCallId(), output("late")))
			if err := c.bidi.CloseRequest(); err != nil {
				t.Fatal(err)
			}
			if m := c.rest(); m != nil {
				t.Errorf("got %v after the end", m)
			}
			c.whole = false
			turns := b.check(c.session, c)
			if res, ok := turns[1].Results[two.GetToolCallId()]; ok && res.Outcome == record.Returned {
				t.Errorf("an answer after the end is in the log: %+v", res)
			}
		})
	}
}

// TestFaultForeignAnswer is F13: an answer to a call that nobody has made, and one
// to a call of another session, are refused with the same words; the stream stays
// open, unless too many come in a row, and the other session notices nothing.
func TestFaultForeignAnswer(t *testing.T) {
	b := newFixture(t, askerScripts)
	mine, other := b.chain(allTools), b.chain(allTools)
	look, one := mine.asked("<turn mine>")
	theirs, theirOther := other.asked("<turn other>")
	before, err := b.store.Head(t.Context(), other.session)
	if err != nil {
		t.Fatal(err)
	}
	words := func(id, session string, m *agentdv1.RunRequest) string {
		m.GetToolCallResponse().SessionId = session
		text := mine.refuses(m, invalid)
		if session != "" {
			text = strings.ReplaceAll(text, session, "SESSION")
		}
		return strings.ReplaceAll(text, id, "CALL")
	}
	for name, pair := range map[string][2]string{
		"call":    {words("call_nobody", "", harness.ToolResult("call_nobody", "x")), words(theirs.GetToolCallId(), "", harness.ToolResult(theirs.GetToolCallId(), "x"))},
		"session": {words("call_nobody", "nosuchsession", harness.ToolResult("call_nobody", "x")), words(theirs.GetToolCallId(), other.session, harness.ToolResult(theirs.GetToolCallId(), "x"))},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: refused with %q and %q", name, pair[0], pair[1])
		}
	}
	foreign := theirs.GetToolCallId()
	if faultParts.OverBoth(t, "TestFaultForeignAnswer/cancel") {
		mine.refuses(harness.Cancel(&foreign), invalid)
	}
	if faultParts.OverBoth(t, "TestFaultForeignAnswer/flood") {
		mine.flood(t, foreign)
	}
	mine.drop()
	if after, err := b.store.Head(t.Context(), other.session); err != nil || after != before {
		t.Errorf("the other session was at %+v, is at %+v (%v)", before, after, err)
	}
	other.answer(theirs)
	other.answer(theirOther)
	other.rest()
	mine.attach()
	mine.answer(look)
	mine.answer(one)
	mine.rest()
	b.check(other.session, other)
	b.check(mine.session, mine)
}

// flood sends more foreign answers in a row than a stream takes.
func (c *chain) flood(t *testing.T, foreign string) {
	t.Helper()
	n := 0
	for range 300 {
		c.send(harness.ToolResult(foreign, "x"))
	}
	for m := c.until(isError).GetError(); m.GetCode() == invalid; m = c.until(isError).GetError() {
		n++
	}
	last := c.got[len(c.got)-1].GetError()
	if last.GetCode() != tooLarge || n != 256 {
		t.Errorf("after %d refusals in a row came %v", n, last)
	}
}

// TestFaultToolNeverAnswers is F14: the model receives once, as the result, that none came
// in time.
func TestFaultToolNeverAnswers(t *testing.T) {
	b := newFixture(t, askerScripts, testdaemon.WithTurnLimits(limits.Limits{ToolTimeout: 30 * time.Millisecond}))
	c := b.chain(allTools)
	look, one := c.asked("<turn never>")
	c.mute = true
	c.rest()
	turns := b.check(c.session, c)
	for i, call := range []*agentdv1.RunResponse_ToolCallRequest{look, one} {
		id := call.GetToolCallId()
		if res := turns[0].Results[id]; res.Outcome != record.TimedOut {
			t.Errorf("call %s: %+v", id, res)
		}
		if told := b.models.resultsOf("<turn never>", fmt.Sprint("call_", i)); len(told) != 1 || !strings.Contains(told[0], "no result within 30ms") {
			t.Errorf("the model was told %q of call %s", told, id)
		}
	}
}

// TestFaultNobodyAnswers is F14 with no client there: the turn is suspended and
// holds no goroutine; the time of its calls does not run. It resumes when a client
// comes.
func TestFaultNobodyAnswers(t *testing.T) {
	b := newFixture(t, askerScripts, testdaemon.WithTurnLimits(limits.Limits{IdleTurn: 50 * time.Millisecond, ToolTimeout: 3 * time.Second}))
	const sessions = 10
	var parked []*chain
	for i := range sessions {
		c := b.chain(allTools)
		c.asked(fmt.Sprintf("<turn %d>", i))
		c.drop()
		parked = append(parked, c)
	}
	for strings.Count(b.log.String(), `"turn suspended"`) < sessions {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(3500 * time.Millisecond) // longer than the time of a call
	if n := turnGoroutines(); n != 0 {
		t.Errorf("%d goroutines belong to %d suspended turns", n, sessions)
	}
	for _, c := range parked {
		c.attach()
		if end := c.rest(); !end.GetCompleted() {
			t.Errorf("got %v", end)
		}
		b.check(c.session, c)
	}
}

// turnGoroutines is how many goroutines of the process run turns.
func turnGoroutines() int {
	buf := make([]byte, 4<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "session.(*Manager).launch.")
}
