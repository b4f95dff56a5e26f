package providers

import (
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// TestCompaction talks for a hundred turns with a model whose window holds about
// ten of them, on each wire: with a share no prompt is ever refused, without one
// each refused prompt is compacted and taken. Every prompt is one that its
// provider takes, and every session is what the engine would write again.
func TestCompaction(t *testing.T) {
	for _, wire := range providertest.Wires {
		for name, c := range map[string]*agentdv1.Compaction{
			"share":   {AtShare: 0.8, ContextTokens: 2000},
			"refused": {},
		} {
			t.Run(string(wire)+"/"+name, func(t *testing.T) {
				t.Parallel()
				f := harness.NewFaulty(t, wire)
				p := &harness.Windowed{T: t, Wire: wire, Window: 2000}
				f.Use(p.Reply)
				agent := f.Agent("look")
				agent.GetLlm().Compaction = proto.CloneOf(c)
				session, told, at, through := "", 0, int64(0), int64(0)
				for i := range 100 {
					got := harness.FaultyTurn(t, f.D, agent, session)
					if len(got.Errors) > 0 || !got.End.GetCompleted() {
						t.Fatalf("turn %d: %v, %v", i, got.Errors, got.End)
					}
					for _, m := range got.Msgs {
						if id := m.GetExecute().GetSessionId(); id != "" {
							session = id
						}
						if h := m.GetHistoryCompacted(); h != nil {
							told, at, through = told+1, m.GetSeq(), h.GetThroughSeq()
							if over := h.GetReason() == agentdv1.HistoryCompacted_REASON_OVERFLOW; over != (c.GetAtShare() == 0) || h.GetSummary() != fmt.Sprintf("summary %d", told) {
								t.Errorf("turn %d: told of %v", i, h)
							}
						}
					}
				}
				if want := c.GetAtShare() == 0; p.Summaries < 5 || told != p.Summaries || p.Refused != 0 && !want || want && p.Refused != p.Summaries {
					t.Errorf("%d calls, the largest of %d tokens: %d summaries, %d told, %d refused", p.Calls, p.Largest, p.Summaries, told, p.Refused)
				}
				// A fork knows the summaries up to where it begins.
				sessions := agentdv1connect.NewSessionServiceClient(f.D.HTTPClient(), f.D.URL)
				for back, seq := range []int64{at, through} {
					fork, err := sessions.ForkSession(t.Context(), connect.NewRequest(&agentdv1.ForkSessionRequest{SessionId: session, ThroughSeq: &seq}))
					if err != nil {
						t.Fatal(err)
					}
					p.Mu.Lock()
					p.Known = told - back
					p.Mu.Unlock()
					if got := harness.FaultyTurn(t, f.D, agent, fork.Msg.GetSession().GetId()); len(got.Errors) > 0 {
						t.Errorf("a fork at %d: %v", seq, got.Errors)
					}
				}
			})
		}
	}
}

// TestCompactionOfSearches talks with models whose providers run a tool for each
// answer, and count a short prompt as often as they have read it: nothing is
// summarised.
func TestCompactionOfSearches(t *testing.T) {
	for wire, c := range providerRuns {
		t.Run(string(wire), func(t *testing.T) {
			f := harness.NewFaulty(t, wire)
			rec := &providertest.Recording{}
			for range 4 {
				usage := providertest.Usage{Prompt: 170_000, Completion: 200, Total: 170_200}
				rec.Exchanges = append(rec.Exchanges, withRun(t, wire, "I'll look that up. ", strings.Repeat("found ", 100), usage))
			}
			srv := providertest.NewServer(t, rec, nil)
			f.Use(fakeprovider.Through(srv))
			agent := harness.LLMAgent("root", harness.WireProviders[wire].Describe().Name+"/"+c.model, "")
			agent.GetLlm().BuiltinTools, agent.GetLlm().Compaction = []string{c.tool}, &agentdv1.Compaction{AtShare: 0.8, ContextTokens: 200_000}
			session := ""
			for i := range rec.Exchanges {
				m := harness.StartTurn(agent)
				m.GetExecute().UserPrompt = strings.Repeat("find ", 100)
				if session != "" {
					m.GetExecute().SessionId = &session
				}
				got := harness.RawClient{T: t, Run: agentdv1connect.NewAgentdClient(f.D.HTTPClient(), f.D.URL)}.Talk(m, nil)
				if session = got.Session; !got.End.GetCompleted() || got.End.GetUsageSummary().GetLlmCalls() != 1 {
					t.Fatalf("turn %d: %v", i, got.Msgs)
				}
			}
			if n := srv.Left(); n != 0 {
				t.Errorf("%d answers were not asked for", n)
			}
		})
	}
}
