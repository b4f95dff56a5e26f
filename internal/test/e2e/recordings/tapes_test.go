package recordings

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
)

// tapes are how recorded calls are played again.
var tapes = []string{"scripted/calls", "scripted/calls:strict"}

// heard keeps what a client is sent, turn by turn.
type heard struct {
	mu    sync.Mutex // protects turns
	turns [][]*agentdv1.RunResponse
}

var _ connect.Interceptor = (*heard)(nil)

func (*heard) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

func (*heard) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func (h *heard) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.turns = append(h.turns, nil)
		return &heardConn{next(ctx, spec), h, len(h.turns) - 1}
	}
}

// heardConn is one stream.
type heardConn struct {
	connect.StreamingClientConn
	to   *heard
	turn int
}

func (c *heardConn) Receive(msg any) error {
	err := c.StreamingClientConn.Receive(msg)
	if m, ok := msg.(*agentdv1.RunResponse); ok && err == nil {
		c.to.mu.Lock()
		defer c.to.mu.Unlock()
		c.to.turns[c.turn] = append(c.to.turns[c.turn], proto.CloneOf(m)) // a client changes it
	}
	return err
}

// plain are the turns without what differs when they are played again: besides ids
// and times that are the names of models, what they cost, and what a provider asked
// to wait.
func (h *heard) plain(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, msgs := range h.turns {
		out = append(out, harness.PlainStream(t, unnamed(msgs)))
	}
	return out
}

var (
	namedModel = regexp.MustCompile(`model "[^"]*"`)
	waitAsked  = regexp.MustCompile(`; retry after [0-9a-zµ.]+`)
)

func unnamed(msgs []*agentdv1.RunResponse) []*agentdv1.RunResponse {
	plain := func(text string) string {
		return waitAsked.ReplaceAllString(namedModel.ReplaceAllString(text, "a model"), "")
	}
	var out []*agentdv1.RunResponse
	for _, m := range msgs {
		m = proto.CloneOf(m)
		switch r := m.GetResponse().(type) {
		case *agentdv1.RunResponse_ModelCallEnded:
			r.ModelCallEnded.Model, r.ModelCallEnded.Provider = "", ""
			if u := r.ModelCallEnded.GetUsage(); u != nil {
				u.CostUsd, u.UnpricedCalls = nil, 0
			}
		case *agentdv1.RunResponse_AgentStarted:
			r.AgentStarted.Model = ""
		case *agentdv1.RunResponse_ModelCallRetried:
			r.ModelCallRetried.Message = plain(r.ModelCallRetried.GetMessage())
		case *agentdv1.RunResponse_Error:
			r.Error.Message = plain(r.Error.GetMessage())
		case *agentdv1.RunResponse_End:
			if r.End.Reason != nil {
				r.End.Reason = new(plain(r.End.GetReason()))
			}
			if u := r.End.GetUsageSummary(); u != nil {
				u.EstimatedCost, u.UnpricedCalls = 0, 0
			}
		case *agentdv1.RunResponse_ModelCallFellBack:
			continue // the tape plays what became of the call
		}
		out = append(out, m)
	}
	return out
}

// sameTurns compares what two clients were sent.
func sameTurns(t *testing.T, played, recorded *heard) {
	t.Helper()
	got, want := played.plain(t), recorded.plain(t)
	if len(got) != len(want) {
		t.Errorf("%d streams, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Errorf("stream %d was played as\n%s\nand recorded as\n%s", i, got[i], want[i])
		}
	}
}

// TestTapes records every recorded conversation that needs nothing but prompts and
// tool results, and plays it again: its client is sent the same.
func TestTapes(t *testing.T) {
	slots := make(chan struct{}, recordingsAtOnce)
	told := map[providertest.Wire]bool{} // of tools that a provider runs
	var mu sync.Mutex                    // protects told
	t.Run("all", func(t *testing.T) {
		for _, rec := range providertest.All(t) {
			conv, err := providertest.Expect(rec)
			if err != nil {
				t.Errorf("%s: %v", rec.Name, err)
				continue
			}
			if conv.Needs() != "" {
				continue // TestRecordings says which those are
			}
			t.Run(rec.Name, func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				for _, msgs := range tapeRecording(t, rec, conv).turns {
					for _, m := range msgs {
						if m.GetProviderToolsUsed() != nil {
							mu.Lock()
							told[conv.Wire] = true
							mu.Unlock()
						}
					}
				}
			})
		}
	})
	if len(told) != len(providertest.Wires) {
		t.Errorf("only these wires have told of tools: %v", told)
	}
}

// tapeRecording records a conversation, and plays it leniently or strictly, with
// -services.all in both ways. It returns what was heard the first time.
func tapeRecording(t *testing.T, rec *providertest.Recording, conv *providertest.Conversation) *heard {
	t.Helper()
	dir := t.TempDir()
	srv := providertest.NewServer(t, rec, nil)
	d := recordedDaemon(t, srv.URL, agentdtest.Config{RecordTo: filepath.Join(dir, "calls.jsonl")})
	hold := func(d *agentdtest.Daemon, model string) *heard {
		h := &heard{}
		for i := range conv.Sessions {
			k := newTalk(t, d, srv, conv.Wire, &conv.Sessions[i], client.WithConnectOptions(connect.WithInterceptors(h)))
			if model != "" {
				k.agent.GetLlm().Model = model
			}
			for _, turn := range k.said.Turns {
				k.run(turn.Prompt, turn.Steps)
			}
			k.run("One more thing.", nil)
		}
		return h
	}
	recorded := hold(d, "")
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for i, name := range tapes {
		if i != len(rec.Name)%len(tapes) && !*harness.AllServices {
			continue
		}
		t.Run(strings.TrimPrefix(name, "scripted/"), func(t *testing.T) {
			sameTurns(t, hold(tapeDaemon(t, dir), name), recorded)
		})
	}
	return recorded
}

func tapeDaemon(t *testing.T, dir string) *agentdtest.Daemon {
	t.Helper()
	return harness.StartDaemon(t, agentdtest.Config{ScriptsDir: dir},
		testdaemon.WithRetry(modelcall.Retry{Tries: 3, Base: 1}))
}
