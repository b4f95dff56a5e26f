package recordings

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// mostEvents bounds the events of a synthetic answer.
const mostEvents = 400

// TestRecordingsCut ends each answer of the synthetic recordings behind its
// first event, its second, and so on, as if it were complete. The turn must
// never pass off what has come for the whole, no call of an unfinished answer
// may reach the client, and the session's next turn goes on where the recording
// was.
func TestRecordingsCut(t *testing.T) {
	alone := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, alone) })
	slots := make(chan struct{}, recordingsAtOnce)
	for _, rec := range providertest.Synthetic(t) {
		conv, err := providertest.Expect(rec)
		if err != nil {
			t.Fatal(err)
		}
		if len(conv.Sessions) != 1 || conv.Needs() != "" {
			t.Fatalf("%s: %d sessions, needs %q", rec.Name, len(conv.Sessions), conv.Needs())
		}
		t.Run(rec.Name, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			c := newCutter(t, rec, conv)
			call := 0
			for i, turn := range c.said.Turns {
				for j, step := range turn.Steps {
					if _, fails := stepCode(step); !fails {
						c.everywhere(i, j, call)
					}
					call++
				}
			}
		})
	}
}

// cutter holds one recorded session again and again.
type cutter struct {
	t    *testing.T
	rec  *providertest.Recording
	wire providertest.Wire
	said *providertest.Session
	d    *agentdtest.Daemon
	// provider answers d's model calls.
	provider *fakeprovider.Provider
}

func newCutter(t *testing.T, rec *providertest.Recording, conv *providertest.Conversation) *cutter {
	t.Helper()
	p, url := fakeprovider.Start(t, nil)
	d := recordedDaemon(t, url, agentdtest.Config{})
	return &cutter{t: t, rec: rec, wire: conv.Wire, said: &conv.Sessions[0], d: d, provider: p}
}

// everywhere cuts the answer to a model call, which is a step of a turn, at each
// place until nothing is missing.
func (c *cutter) everywhere(turn, step, call int) {
	c.t.Helper()
	for events := range mostEvents {
		if c.cut(turn, step, providertest.Fault{Action: providertest.Cut, AfterEvents: events, Again: true}, call) {
			if events == 0 {
				c.t.Errorf("call %d: an answer without any event was taken for complete", call)
			}
			return
		}
		if c.t.Failed() {
			c.t.Fatalf("call %d was cut behind event %d", call, events)
		}
	}
	c.t.Errorf("call %d: no answer of up to %d events was complete", call, mostEvents)
}

// cut holds the session up to a step whose answer the fault breaks. It reports
// whether the answer was complete nevertheless; if not, it goes on to the end.
func (c *cutter) cut(turn, step int, fault providertest.Fault, call int) bool {
	c.t.Helper()
	srv := providertest.NewServer(c.t, c.rec, map[int]providertest.Fault{call: fault})
	defer srv.Close()
	c.provider.Use(fakeprovider.Through(srv))
	k := newTalk(c.t, c.d, srv, c.wire, c.said)
	for _, before := range c.said.Turns[:turn] {
		k.turn(before.Prompt, before.Steps)
	}

	now := c.said.Turns[turn]
	steps := slices.Clone(now.Steps[:step+1])
	// Were its calls answered, the same answer would come again.
	steps[step].Results = nil
	whole := providertest.Turn{Steps: steps}.Text()
	first := len(srv.Received())
	out := k.run(now.Prompt, steps)
	if out.err == nil {
		if out.completed == steps[step].Open() {
			c.t.Errorf("completed: %t, calls left open: %t", out.completed, steps[step].Open())
		}
		k.expect(out, now.Prompt, steps, first)
		return true
	}
	if out.err.Code != client.ErrModelUnavailable || out.completed {
		c.t.Errorf("an unfinished answer: error %v, completed: %t", out.err, out.completed)
	}
	if !strings.HasPrefix(whole, out.text.String()) {
		c.t.Errorf("text %q is no beginning of %q", out.text.String(), whole)
	}
	k.unfinished = steps[step].Usage
	k.expect(out, now.Prompt, steps[:step], first)
	k.unfinished = providertest.Usage{}

	k.turn("Go on.", now.Steps[step:])
	for _, after := range c.said.Turns[turn+1:] {
		k.turn(after.Prompt, after.Steps)
	}
	return false
}
