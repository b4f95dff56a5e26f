package providers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/jsondiff"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
)

// TestProviderBreaks is F28: answers that are none count as those of a provider
// that cannot serve. No tool of an unfinished answer is called, and the session
// goes on.
func TestProviderBreaks(t *testing.T) {
	const tries = 3
	stream := http.Header{"Content-Type": {"text/event-stream"}}
	refuse := func(header http.Header, body string) providertest.Fault {
		return providertest.Fault{Action: providertest.Refuse, Status: http.StatusOK, Header: header, Bytes: []byte(body)}
	}
	faults := map[string]providertest.Fault{
		"nothing":           refuse(stream, ""),
		"html":              refuse(http.Header{"Content-Type": {"text/html"}}, "<html><body>Sign in: "+harness.KeyCanary+"</body></html>"),
		"another JSON":      refuse(http.Header{"Content-Type": {"application/json"}}, `{"hello":"`+harness.KeyCanary+`"}`),
		"malformed JSON":    {Action: providertest.Insert, Bytes: []byte("data: {\"oh\": " + harness.KeyCanary + "\n\n")},
		"binary":            {Action: providertest.Insert, Bytes: []byte("data: \x00\xff\xfe\n\n")},
		"ends at once":      {Action: providertest.Cut},
		"breaks at once":    {Action: providertest.Abort},
		"reset at once":     {Action: providertest.Reset},
		"ends in an event":  {Action: providertest.Cut, AfterBytes: 30},
		"breaks in a event": {Action: providertest.Abort, AfterBytes: 30},
	}
	harness.OnEachWire(t, func(t *testing.T, wire providertest.Wire) {
		f := harness.NewFaulty(t, wire, testdaemon.WithRetry(modelcall.Retry{Tries: tries, Base: 1}))
		faults := maps.Clone(faults)
		faults["an error in the stream"] = providertest.Fault{
			Action: providertest.Insert, Bytes: fmt.Appendf(nil, "data: %s\n\n", providertest.ErrorBody(wire, 503, "overloaded_error", "no luck with "+harness.KeyCanary)),
		}
		for name, fault := range faults {
			t.Run(name, func(t *testing.T) {
				f.T = t
				fault.Again = true
				f.Serve(harness.Always(fault), harness.Look, harness.Hello)
				got := f.Turn("", "look")
				f.Failed(got, agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, tries, "after 3 tries")

				f.Serve(map[int]providertest.Fault{0: fault, 2: fault}, harness.Look, harness.Hello)
				got = f.Turn(got.Session, "look")
				if len(f.Calls()) != 4 || len(got.Retries) != 2 || len(got.Calls) != 1 || got.Text["root"] != "Hello." || !got.End.GetCompleted() {
					t.Errorf("%d model calls, %v", len(f.Calls()), got.Msgs)
				}
			})
		}
	})
}

// stalling goes silent: before its answer, or behind the head of it.
func stalling(head string) fakeprovider.Script {
	if head == "" {
		return fakeprovider.Hang()
	}
	return fakeprovider.Answer(fakeprovider.Reply{Events: []string{head, ""}, Before: func(ctx context.Context, sent int) error {
		if sent == 0 {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}})
}

// TestProviderStalls is F28: a provider that goes silent is given up after a
// minute, as often as any other.
func TestProviderStalls(t *testing.T) {
	harness.OnEachWire(t, func(t *testing.T, wire providertest.Wire) {
		for name, head := range map[string]string{"at once": "", "behind a comment": ": hold the line\n\n", "in an event": "data: {\"id\":"} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := fakeprovider.New(stalling(head))
					d := harness.StartDaemon(t, agentdtest.Config{
						Providers: []model.Provider{harness.ProviderAt(wire, "http://provider.invalid", server)},
					}, testdaemon.WithModelTimeouts(0, time.Minute))
					begin := time.Now()
					got := harness.FaultyTurn(t, d, harness.LLMAgent("root", harness.WireProviders[wire].Describe().Name+"/invented", "", "look"), "")
					harness.CheckFailed(t, got, agentdv1.ErrorCode_ERROR_CODE_TIMEOUT, 5, "nothing for 1m0s", "after 5 tries")
					if n := server.Count(); n != 5 {
						t.Errorf("%d model calls were made, want 5", n)
					}
					end := got.Msgs[len(got.Msgs)-1].GetTime().AsTime().Sub(begin)
					if end < 5*time.Minute || end > 5*time.Minute+10*time.Second {
						t.Errorf("failed after %v, want 5 silent minutes and a little", end)
					}
				})
			})
		}
	})
}

// TestProviderEndlessLine is F28: of a line of 100 MB no more is read than a line
// may have, and the call is not made again: it may have been paid for.
func TestProviderEndlessLine(t *testing.T) {
	const (
		tries = 3
		whole = 100 << 20
		line  = 24 << 20 // what an adapter reads of a line at most
		// most is above that, and what stands in the buffers of the connection; taken is
		// above what a buffer that doubles takes for such a line.
		most, taken = 2 * line, 6 * line
	)
	harness.OnEachWire(t, func(t *testing.T, wire providertest.Wire) {
		f := harness.NewFaulty(t, wire, testdaemon.WithRetry(modelcall.Retry{Tries: tries, Base: 1}))
		chunk := strings.Repeat("x", 1<<20)
		over := make(chan error, tries)
		f.Use(fakeprovider.Answer(fakeprovider.Reply{
			Events: append([]string{"data: "}, slices.Repeat([]string{chunk}, whole/len(chunk))...),
			Done:   func(err error) { over <- err },
		}))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := f.Turn("", "look")
		runtime.ReadMemStats(&after)
		f.Failed(got, agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, 1, "too long")
		if err := <-over; err == nil {
			t.Error("the provider could write the whole line")
		}
		if n := f.Last().Sent(); n > most {
			t.Errorf("%d bytes of a line were taken, want at most %d", n, most)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > taken {
			t.Errorf("%d bytes were allocated in all, want at most %d", n, taken)
		}
	})
}

// TestProviderCut is F28: an answer is cut, or its connection broken, behind its
// bytes. While nothing of it was shown the call is made again, and the tool is
// called once; afterwards the turn fails, and the tool is not called.
func TestProviderCut(t *testing.T) {
	spoken := harness.Look
	spoken.Text = "I will look."
	harness.OnEachWire(t, func(t *testing.T, wire providertest.Wire) {
		for name, first := range map[string]providertest.Answer{"silent": harness.Look, "spoken": spoken} {
			t.Run(name, func(t *testing.T) {
				c := &cutTurns{Faulty: harness.NewFaulty(t, wire), first: first}
				var out cutOutcome
				c.run(nil, &out)
				if !out.whole() || out.requests != 2 {
					t.Fatalf("without a cut: %+v", out)
				}
				c.everywhere()
			})
		}
	})
}

// cutTurns runs turns whose first answer is cut.
type cutTurns struct {
	*harness.Faulty
	first  providertest.Answer
	length int // of the first answer, in bytes
}

// cutOutcome is what the client saw of a turn.
type cutOutcome struct {
	text     strings.Builder
	calls    int
	retries  int
	err      *client.Error
	usage    client.Usage
	requests int
}

// whole tells whether the turn came to its end, with its tool called once, and
// counted what its calls took and at most that again for each try that failed.
func (o *cutOutcome) whole() bool {
	tokens := o.usage.TotalTokens - harness.Look.Usage.Total - harness.Hello.Usage.Total
	failed := o.usage.ModelCalls - 2
	return o.err == nil && o.calls == 1 && strings.HasSuffix(o.text.String(), "Hello.") &&
		failed >= 0 && failed <= int64(o.requests)-2 && tokens >= 0 && tokens <= failed*harness.Look.Usage.Total
}

// cutPlaces is at how many places an answer is cut.
const cutPlaces = 60

// everywhere cuts the first answer at places that are an odd number of bytes
// apart, so that no part of an event is left out. What was shown of an answer
// that failed may not reach a client that is slower than the turn.
func (c *cutTurns) everywhere() {
	c.T.Helper()
	retried, failed := 0, 0
	for at := 1; at < c.length; at += max(c.length/cutPlaces, 1) | 1 {
		fault := providertest.Fault{Action: providertest.Cut, AfterBytes: at, Again: true}
		if at%2 == 0 {
			fault.Action = providertest.Abort
		}
		var out cutOutcome
		c.run(&fault, &out)
		switch {
		case out.err != nil:
			failed++
			if out.err.Code != client.ErrModelUnavailable || out.calls != 0 || out.requests != 1 || out.retries != 0 || !strings.HasPrefix(c.first.Text, out.text.String()) {
				c.T.Errorf("behind byte %d of %d: failed with %d calls after %d requests and %q: %v", at, c.length, out.calls, out.requests, out.text.String(), out.err)
			}
		case out.requests == 3 && out.retries == 1 && out.whole():
			retried++
		default:
			c.T.Errorf("behind byte %d of %d: %d calls, %d requests, %d retries told, %q", at, c.length, out.calls, out.requests, out.retries, out.text.String())
		}
	}
	if retried == 0 || (failed == 0) != (c.first.Text == "") {
		c.T.Errorf("%d turns went on, %d failed", retried, failed)
	}
}

// run runs a turn with the Go client.
func (c *cutTurns) run(fault *providertest.Fault, out *cutOutcome) {
	c.T.Helper()
	faults := map[int]providertest.Fault{}
	if fault != nil {
		faults[0] = *fault
	}
	c.Serve(faults, c.first, harness.Hello)
	clnt := c.D.Client()
	if err := client.AddRawTool(clnt, "look", "the tool look", func(_ context.Context, args json.RawMessage) (any, error) {
		out.calls++
		if !jsondiff.Equal(string(args), c.first.Calls[0].Args) {
			c.T.Errorf("called with %s", args)
		}
		return "seen", nil
	}); err != nil {
		c.T.Fatal(err)
	}
	for event, err := range clnt.Run(c.T.Context(), c.Agent("look"), harness.PromptCanary) {
		switch {
		case err != nil:
			if !errors.As(err, &out.err) {
				c.T.Fatal(err)
			}
		case harness.As[*client.ModelCallRetried](event) != nil:
			out.retries++
		case event.OutputChunk != nil:
			out.text.WriteString(event.OutputChunk.Content)
		case event.End != nil:
			out.usage = *event.End.Usage
		}
	}
	out.requests = len(c.Calls())
	if fault == nil {
		c.length = c.Calls()[0].Sent()
	}
}
