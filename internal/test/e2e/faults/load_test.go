package faults

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
)

// heap is how many bytes are in use.
func heap() int64 {
	var m runtime.MemStats
	for range 2 { // what finalizers let go of
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestFaultClientThatNeverReads is F15: clients that do not read hold up neither
// the turn nor those who do, cost no more than a fixed amount of memory each, and
// are cut off. Back again, they get what they have missed.
func TestFaultClientThatNeverReads(t *testing.T) {
	const (
		clients   = 3
		pieces    = 90
		mostBytes = 6 << 20 // of one stream, both of its ends counted
	)
	piece := strings.Repeat("never ", 4<<10) // 24 KiB
	b := newFixture(t, map[string][]answer{
		"asker": {{calls: []string{"look"}}, {text: slices.Repeat([]string{piece}, pieces)}},
	}, testdaemon.WithTimeouts(0, time.Second))
	plain := connect.WithAcceptCompression("gzip", nil, nil) // else the text would fit into any buffer
	reads := b.chain(allTools, plain)
	reads.start(harness.LLMAgent("root", "openai/asker", "", "look"), "go <turn flood> "+payload)
	call := reads.until(isCall).GetToolCall()
	before := heap()
	var stuck []*chain
	for range clients {
		mine := *b
		tr := &http.Transport{Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}}
		tr.Protocols.SetUnencryptedHTTP2(true)
		t.Cleanup(tr.CloseIdleConnections)
		mine.hc = &http.Client{Transport: tr}
		c := mine.chain(nil, plain)
		c.session = reads.session
		c.attach()
		c.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCallAnnounced() != nil })
		stuck = append(stuck, c)
	}
	reads.answer(call)
	length := 0
	for m := reads.next(); m != nil; m = reads.next() {
		length += len(m.GetOutputChunk().GetContent())
		m.Response = nil // or it would count below
		if m.GetSeq() == 0 {
			continue
		}
		if reads.whole {
			break
		}
	}
	reads.drop()
	reads.got = nil
	if want := pieces * len(piece); length != want {
		t.Errorf("the client that reads got %d bytes, want %d", length, want)
	}
	each := (heap() - before) / clients
	t.Logf("a stream that is not read takes %d KiB, after %d KiB of text", each>>10, length>>10)
	if each > mostBytes {
		t.Errorf("a stream that is not read takes %d bytes, want at most %d", each, mostBytes)
	}
	for strings.Count(b.log.String(), `"outcome":"disconnected"`) < clients {
		time.Sleep(10 * time.Millisecond) // for the write timeout
	}
	for _, c := range stuck {
		var err error
		for err == nil {
			var m *agentdv1.RunResponse
			if m, err = c.bidi.Receive(); err == nil {
				c.cursor = max(c.cursor, m.GetSeq())
				c.got = append(c.got, m)
			}
		}
		if errors.Is(err, io.EOF) {
			t.Error("a stream that was cut off must not look complete")
		}
		t.Logf("cut off with %v", err)
		c.drop()
		c.attach()
		if end := c.rest(); !end.GetCompleted() {
			t.Errorf("got %v", end)
		}
	}
	b.check(reads.session, stuck[0])
	for _, c := range stuck[1:] {
		sameStory(t, c.got, stuck[0].got)
	}
}

// TestFaultFlood is F16: a client that sends as fast as it can is slowed down by
// the flow control of its own connection; the turns of others complete.
func TestFaultFlood(t *testing.T) {
	b := newFixture(t, askerScripts)
	turns := func(name string) (took []time.Duration) {
		var mu sync.Mutex // protects took
		b.each(19, func(b *fixture, i int) {
			begin := time.Now()
			c := b.chain(allTools)
			c.start(fakeAgent("asker", "look", "one"), fmt.Sprintf("go <turn %s-%d> %s", name, i, payload))
			if end := c.rest(); !end.GetCompleted() {
				b.t.Errorf("got %v", end)
			}
			mu.Lock()
			took = append(took, time.Since(begin))
			mu.Unlock()
			b.check(c.session, c)
		})
		slices.Sort(took)
		return took
	}
	calm := turns("calm")

	mine := *b
	mine.hc = &http.Client{Transport: http2Only(t)}
	flooder := mine.chain(allTools)
	look, one := flooder.asked("<turn flooder>")
	beat := &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Heartbeat{Heartbeat: &agentdv1.RunRequest_HeartbeatRequest{}}}
	bidi := flooder.bidi
	var sent, answered int
	var flood sync.WaitGroup
	flood.Go(func() {
		for ; bidi.Send(beat) == nil; sent++ { // until the stream is dropped
		}
	})
	flood.Go(func() {
		for ; ; answered++ {
			if m, err := bidi.Receive(); err != nil || m.GetHeartbeat() == nil {
				return
			}
		}
	})
	begin := time.Now()
	flooded := turns("flooded")
	took := time.Since(begin)
	flooder.drop()
	flood.Wait()
	t.Logf("20 turns, six at a time: the slowest took %v, and %v while a client flooded", calm[19], flooded[19])
	t.Logf("the flooding client sent %d messages in %v, and %d were taken", sent, took, answered)
	// What the daemon has not taken waits in the connection: 1 MiB, and what the
	// system buffers.
	if waiting := sent - answered; sent == 0 || answered == 0 || waiting > 4<<20 {
		t.Errorf("%d messages were sent, %d taken", sent, answered)
	}
	flooder.attach()
	flooder.answer(look)
	flooder.answer(one)
	if end := flooder.rest(); !end.GetCompleted() {
		t.Errorf("got %v", end)
	}
	b.check(flooder.session, flooder)
}

// http2Only is a transport with a connection of its own.
func http2Only(t *testing.T) *http.Transport {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// TestFaultTooLarge is F30: what is too large, too deep or too wide is refused
// before anything is stored, and its session can still be used.
func TestFaultTooLarge(t *testing.T) {
	b := newFixture(t, askerScripts)
	c := b.chain(allTools)
	look, one := c.asked("<turn large>")
	c.send(harness.ToolResult(look.GetToolCallId(), strings.Repeat("x", 4<<20))) // above 4 MiB with what is around it
	if e := c.until(isError).GetError(); e.GetCode() != tooLarge || e.GetRetryable() {
		t.Errorf("got %v", e)
	}
	c.answer(one) // the other call has an error for its result: nobody answers it again
	if end := c.rest(); !end.GetCompleted() {
		t.Errorf("got %v", end)
	}

	deep := func(levels int) *agentdv1.Agent {
		a := fakeAgent("asker")
		for i := range levels - 1 {
			a = harness.SequentialAgent(fmt.Sprint("level", i), a)
		}
		return a
	}
	wide := func(n int) *agentdv1.Agent {
		a := harness.SequentialAgent("root")
		for i := range n {
			leaf := fakeAgent("asker")
			leaf.Name = fmt.Sprint("leaf", i)
			a.GetSequential().Agents = append(a.GetSequential().Agents, leaf)
		}
		return a
	}
	refused := map[string]struct {
		m    *agentdv1.RunRequest
		code agentdv1.ErrorCode
	}{
		"message of 4 MiB": {prompt(fakeAgent("asker"), strings.Repeat("x", 4<<20)), tooLarge},
		"prompt":           {prompt(fakeAgent("asker"), strings.Repeat("x", 1<<20+1)), invalid},
		"17 levels":        {prompt(deep(17), "go"), badTree},
		"101 levels":       {prompt(deep(101), "go"), tooLarge},
		"65 side by side":  {prompt(wide(65), "go"), badTree},
		"100000 agents":    {prompt(wide(100_000), "go"), tooLarge},
	}
	before, err := b.store.Head(t.Context(), c.session)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range refused {
		for _, id := range []string{"", c.session} {
			other := b.chain(nil)
			if id != "" {
				tc.m.GetExecute().SessionId = &id
			}
			other.send(tc.m)
			e := other.until(isError).GetError()
			if e.GetCode() != tc.code || e.GetRetryable() {
				t.Errorf("%s: got %v, want %v", name, e, tc.code)
			}
			if err := other.bidi.CloseRequest(); err != nil {
				t.Fatal(err)
			}
			if m := other.next(); m != nil {
				t.Errorf("%s: got %v after the refusal", name, m)
			}
		}
	}
	if after, err := b.store.Head(t.Context(), c.session); err != nil || after != before {
		t.Errorf("the log was at %+v, is at %+v (%v)", before, after, err)
	}
	if ids := b.store.Made(); len(ids) != 1 {
		t.Errorf("sessions were made for what was refused: %v", ids)
	}
	c.start(fakeAgent("asker", "look", "one"), "go <turn large.next> "+payload)
	if end := c.rest(); !end.GetCompleted() {
		t.Errorf("got %v", end)
	}
	b.check(c.session, c)
}

func prompt(a *agentdv1.Agent, text string) *agentdv1.RunRequest {
	m := harness.StartTurn(a)
	m.GetExecute().UserPrompt = text
	return m
}
