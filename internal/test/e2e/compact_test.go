package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// tooLong are the words of each wire's provider for a prompt that does not fit.
var tooLong = map[providertest.Wire]string{
	providertest.OpenAIResponses: `{"error":{"message":"Your input exceeds the context window of this model.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}`,
	providertest.OpenAIChat:      `{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","code":"context_length_exceeded"}}`,
	providertest.Anthropic:       `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}`,
	providertest.Gemini:          `{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}`,
}

// windowed is a provider whose model has a context window: it counts four bytes of
// a request as a token. Its model calls a tool in every third turn, and its
// summaries are numbered.
type windowed struct {
	t      *testing.T
	wire   providertest.Wire
	window int64

	mu        sync.Mutex // protects the fields below
	calls     int
	refused   int
	summaries int
	known     int // the newest summary that prompts begin with; 0 is none
	largest   int64
}

func (p *windowed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		p.t.Error(err)
		return
	}
	req, err := providertest.ParseRequest(r.URL.String(), body)
	if err != nil {
		p.t.Error(err)
		return
	}
	if err := providertest.CheckHistory(body, p.wire, req.Items); err != nil {
		p.t.Errorf("a request that no provider would take: %v\n%s", err, body)
	}
	tokens := int64(len(body) / 4)
	p.mu.Lock()
	defer p.mu.Unlock()
	if tokens > p.window {
		p.refused++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, tooLong[p.wire])
		return
	}
	p.calls++
	p.largest = max(p.largest, tokens)
	a := providertest.Answer{Text: fmt.Sprintf("answer %d %s", p.calls, strings.Repeat("a", 400))}
	switch last := req.Items[len(req.Items)-1]; {
	case strings.HasPrefix(req.System, "You write the memory"):
		p.summaries++
		p.known = p.summaries
		a.Text = fmt.Sprintf("summary %d", p.summaries)
		if len(req.Tools) > 0 || len(req.Items) != 1 {
			p.t.Errorf("asked for a summary by %s", body)
		}
	case p.known > 0 && !strings.Contains(req.Items[0].Text, fmt.Sprintf("summary %d\n", p.known)):
		p.t.Errorf("after summary %d a prompt begins with %q", p.known, req.Items[0].Text)
	case p.calls%3 == 0 && last.Kind == providertest.User:
		a.Calls = []providertest.ToolCall{{ID: fmt.Sprintf("c%d", p.calls), Name: "look", Args: fmt.Sprintf(`{"n":%d}`, p.calls)}}
	}
	a.Usage = providertest.Usage{Prompt: tokens, Completion: int64(len(a.Text) / 4), Total: tokens + int64(len(a.Text)/4)}
	ex := providertest.Invent(p.wire, a).Exchanges[0]
	ex.URL = r.URL.String()
	stream, err := ex.EventStream()
	if err != nil {
		p.t.Error(err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, stream)
}

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
				f := newFaulty(t, wire)
				p := &windowed{t: t, wire: wire, window: 2000}
				f.handle(p)
				agent := f.agent("look")
				agent.GetLlm().Compaction = proto.CloneOf(c)
				session, told, at, through := "", 0, int64(0), int64(0)
				for i := range 100 {
					got := faultyTurn(t, f.d, agent, session)
					if len(got.errors) > 0 || !got.end.GetCompleted() {
						t.Fatalf("turn %d: %v, %v", i, got.errors, got.end)
					}
					for _, m := range got.msgs {
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
				if want := c.GetAtShare() == 0; p.summaries < 5 || told != p.summaries || p.refused != 0 && !want || want && p.refused != p.summaries {
					t.Errorf("%d calls, the largest of %d tokens: %d summaries, %d told, %d refused", p.calls, p.largest, p.summaries, told, p.refused)
				}
				// A fork knows the summaries up to where it begins.
				sessions := agentdv1connect.NewSessionServiceClient(f.d.HTTPClient(), f.d.URL)
				for back, seq := range []int64{at, through} {
					fork, err := sessions.ForkSession(t.Context(), connect.NewRequest(&agentdv1.ForkSessionRequest{SessionId: session, ThroughSeq: &seq}))
					if err != nil {
						t.Fatal(err)
					}
					p.mu.Lock()
					p.known = told - back
					p.mu.Unlock()
					if got := faultyTurn(t, f.d, agent, fork.Msg.GetSession().GetId()); len(got.errors) > 0 {
						t.Errorf("a fork at %d: %v", seq, got.errors)
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
			f := newFaulty(t, wire)
			rec := &providertest.Recording{}
			for range 4 {
				usage := providertest.Usage{Prompt: 170_000, Completion: 200, Total: 170_200}
				rec.Exchanges = append(rec.Exchanges, withRun(t, wire, "I'll look that up. ", strings.Repeat("found ", 100), usage))
			}
			srv := providertest.NewServer(t, rec, nil)
			f.handle(srv)
			agent := llmAgent("root", wireProviders[wire].Describe().Name+"/"+c.model, "")
			agent.GetLlm().BuiltinTools, agent.GetLlm().Compaction = []string{c.tool}, &agentdv1.Compaction{AtShare: 0.8, ContextTokens: 200_000}
			session := ""
			for i := range rec.Exchanges {
				m := start(agent)
				m.GetExecute().UserPrompt = strings.Repeat("find ", 100)
				if session != "" {
					m.GetExecute().SessionId = &session
				}
				got := rule{t, agentdv1connect.NewAgentdClient(f.d.HTTPClient(), f.d.URL)}.talk(m, nil)
				if session = got.session; !got.end.GetCompleted() || got.end.GetUsageSummary().GetLlmCalls() != 1 {
					t.Fatalf("turn %d: %v", i, got.msgs)
				}
			}
			if n := srv.Left(); n != 0 {
				t.Errorf("%d answers were not asked for", n)
			}
		})
	}
}
