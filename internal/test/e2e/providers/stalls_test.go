package providers

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
)

// alive are events of the wires that say nothing but that the provider is there.
var alive = map[providertest.Wire]string{
	providertest.Anthropic:       "event: ping\ndata: {\"type\": \"ping\"}\n\n",
	providertest.Gemini:          "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"\"}]},\"index\":0}]}\n\n",
	providertest.OpenAIChat:      "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"}}]}\n\n",
	providertest.OpenAIResponses: "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":3}\n\n",
}

// endless is an answer that has no end.
type endless struct {
	head  bool   // the answer begins
	once  string // is sent first
	again string // is sent over and over; "" is silence
}

// start has the provider answer so; coming is closed when a call has come, gone when
// its client has hung up.
func (e endless) start(f *harness.Faulty) (coming, gone <-chan struct{}) {
	come, left := make(chan struct{}), make(chan struct{})
	f.Use(func(ctx context.Context, _ *fakeprovider.Call) fakeprovider.Reply {
		reply := fakeprovider.Reply{Done: func(error) { close(left) }}
		if !e.head {
			close(come)
			<-ctx.Done()
			return fakeprovider.Reply{Drop: true, Done: reply.Done}
		}
		reply.Events = slices.Repeat([]string{e.again}, 100_000)
		reply.Events[0] = e.once
		reply.Before = func(ctx context.Context, sent int) error {
			if sent == 0 {
				return nil
			}
			if sent == 1 {
				close(come)
			}
			if e.again == "" {
				<-ctx.Done()
			}
			return harness.Wait(ctx, 2*time.Millisecond)
		}
		return reply
	})
	return come, left
}

// arrives waits for a channel to be closed.
func arrives(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("waited in vain for %s", what)
	}
}

// TestProviderNeverEnds is F28: answers that have no end end with TIMEOUT, silent ones
// soon and those that say over and over that the provider is there when their time is
// over, or with the turn that is cancelled; and the request is aborted, which the
// provider sees.
func TestProviderNeverEnds(t *testing.T) {
	const patience = 400 * time.Millisecond
	harness.OnEachWire(t, func(t *testing.T, wire providertest.Wire) {
		for name, server := range map[string]endless{
			"no answer":           {},
			"a silent answer":     {head: true},
			"silent in an event":  {head: true, once: "data: {\"id\":"},
			"comments":            {head: true, again: ": still here\n\n"},
			"lines that are none": {head: true, again: "\n"},
			"signs of life":       {head: true, again: alive[wire]},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // it waits
				t.Run("times out", func(t *testing.T) {
					t.Parallel()
					timeouts, why := testdaemon.WithModelTimeouts(0, patience), "nothing for 400ms"
					if server.again != "" {
						timeouts, why = testdaemon.WithModelTimeouts(patience, 0), "did not finish within 400ms"
					}
					f := harness.NewFaulty(t, wire, testdaemon.WithRetry(modelcall.Retry{Tries: 1}), timeouts)
					_, gone := server.start(f)
					f.Failed(f.Turn("", "look"), agentdv1.ErrorCode_ERROR_CODE_TIMEOUT, 1, why)
					arrives(t, gone, "the provider to see that the client has hung up")
				})
				t.Run("is cancelled", func(t *testing.T) {
					f := harness.NewFaulty(t, wire)
					coming, gone := server.start(f)
					m := harness.StartTurn(f.Agent())
					m.GetExecute().UserPrompt = harness.PromptCanary
					got := harness.RawClient{T: t, Run: agentdv1connect.NewAgentdClient(f.D.HTTPClient(), f.D.URL)}.Talk(m, func(m *agentdv1.RunResponse) []*agentdv1.RunRequest {
						if m.GetExecute() == nil {
							return nil
						}
						arrives(t, coming, "the request")
						return []*agentdv1.RunRequest{harness.Cancel(nil)}
					})
					arrives(t, gone, "the provider to see that the client has hung up")
					if got.End.GetCompleted() || len(got.Errors) != 0 || len(f.Calls()) != 1 || len(got.End.GetReceipt().GetAbortedModelCalls()) != 1 {
						t.Errorf("%d model calls, %v", len(f.Calls()), got.Msgs)
					}
				})
			})
		}
	})
}

// chatty sends an event a second, of one answer for each call; all calls behind the
// last have that one's.
func chatty(answers ...[]string) *fakeprovider.Provider {
	var replies []fakeprovider.Reply
	for _, events := range answers {
		replies = append(replies, fakeprovider.Reply{Events: events, Before: func(ctx context.Context, sent int) error {
			if sent == 0 {
				return nil
			}
			return harness.Wait(ctx, time.Second)
		}})
	}
	return fakeprovider.New(fakeprovider.Answer(replies...))
}

// TestProviderNeverStops is F28: an answer that goes on and on ends with TIMEOUT when
// its time is over.
func TestProviderNeverStops(t *testing.T) {
	chapter := providertest.Answer{Text: strings.Repeat("and then ", 100)}
	harness.OnEachWire(t, func(t *testing.T, wire providertest.Wire) {
		stream, err := providertest.Invent(wire, chapter).Exchanges[0].EventStream()
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			events := providertest.Events(stream)
			server := chatty(events)
			d := harness.StartDaemon(t, agentdtest.Config{
				Providers: []model.Provider{harness.ProviderAt(wire, "http://provider.invalid", server)},
			}, testdaemon.WithModelTimeouts(30*time.Second, 0))
			got := harness.FaultyTurn(t, d, harness.LLMAgent("root", harness.Invented(wire), "", "look"), "")
			harness.CheckFailed(t, got, agentdv1.ErrorCode_ERROR_CODE_TIMEOUT, 1, "did not finish within 30s")
			if n := server.Count(); n != 1 || len(events) < 40 {
				t.Errorf("%d model calls were made, of %d events", n, len(events))
			}
			if text := got.Text["root"]; !strings.HasPrefix(chapter.Text, text) {
				t.Errorf("text %q", text)
			}
		})
	})
}

// TestProviderAlive has a model write the arguments of a call for longer than a
// provider may be silent: what it sends shows that it is there, although there is
// nothing to be shown of it.
func TestProviderAlive(t *testing.T) {
	args := `{"text": "` + strings.Repeat("and then ", 100) + `"}`
	harness.OnEachWire(t, func(t *testing.T, wire providertest.Wire) {
		var answers [][]string
		rec := providertest.Invent(wire, providertest.Answer{Calls: []providertest.ToolCall{{Name: "look", Args: args}}}, providertest.Answer{Text: "done"})
		for i := range rec.Exchanges {
			stream, err := rec.Exchanges[i].EventStream()
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, providertest.Events(stream))
		}
		answers[0] = slices.Insert(answers[0], min(1, len(answers[0])-1), slices.Repeat([]string{alive[wire]}, 60)...)
		synctest.Test(t, func(t *testing.T) {
			server := chatty(answers...)
			d := harness.StartDaemon(t, agentdtest.Config{
				Providers: []model.Provider{harness.ProviderAt(wire, "http://provider.invalid", server)},
			}, testdaemon.WithModelTimeouts(0, 5*time.Second))
			got := harness.FaultyTurn(t, d, harness.LLMAgent("root", harness.Invented(wire), "", "look"), "")
			if n := server.Count(); n != 2 || !got.End.GetCompleted() || len(got.Calls) != 1 || got.Text["root"] != "done" {
				t.Errorf("%d model calls were made, %v", n, got.Msgs)
			}
		})
	})
}
