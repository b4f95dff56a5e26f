package remote_test

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/adkbridge"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/record"
)

func sequence(agents ...*agentdv1.Agent) *agentdv1.Agent {
	return &agentdv1.Agent{Name: "all", AgentType: &agentdv1.Agent_Sequential{Sequential: &agentdv1.SequentialAgent{Agents: agents}}}
}

// replays fails the test unless the turns of a session take the same way again, and calls can be listed.
func (w *world) replays(session, turn string) {
	w.t.Helper()
	recs, err := w.db.Read(w.t.Context(), session, 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	var log iter.Seq2[record.Record, error] = func(yield func(record.Record, error) bool) {
		for _, r := range recs {
			if !yield(r, nil) {
				return
			}
		}
	}
	rep, err := adkbridge.Verify(w.t.Context(), session, log, nil)
	if err != nil || rep.Divergence != nil {
		w.t.Errorf("replay: %v %v", err, rep.Divergence)
	}
	if _, err := w.stub.ListModelCalls(w.t.Context(), connect.NewRequest(&agentdv1.ListModelCallsRequest{SessionId: session, TurnId: turn})); err != nil {
		w.t.Errorf("model calls: %v", err)
	}
}

// TestTrees has an agent of a backend at all places of a tree.
func TestTrees(t *testing.T) {
	far := remoteAgent
	calls := []step{{say: "looking", calls: []string{"search"}}, {say: "found"}}
	for _, tc := range []struct {
		name     string
		steps    []step
		tree     *agentdv1.Agent
		text     string
		sessions int
		check    func(t *testing.T, b *backend)
	}{
		{"before another one", calls, sequence(far(), local("writer", "{answer}")), "lookingfoundI read that it was found.", 1, nil},
		{"behind another one", calls, sequence(local("writer", "ahem"), far()), "ahemlookingfound", 1, func(t *testing.T, b *backend) {
			if want := "go\n\n[writer] said: ahem"; !slices.Equal(b.seen.messages, []string{want}) {
				t.Errorf("messages %q", b.seen.messages)
			}
		}},
		{"in a loop", append(calls, step{say: "again", calls: []string{"search"}}, step{say: "still"}),
			&agentdv1.Agent{Name: "twice", AgentType: &agentdv1.Agent_Loop{Loop: &agentdv1.LoopAgent{MaxIterations: 2, Agents: []*agentdv1.Agent{far()}}}},
			"lookingfoundagainstill", 1, func(t *testing.T, b *backend) {
				if !slices.Equal(b.seen.messages, []string{"go", "Go on."}) {
					t.Errorf("messages %q", b.seen.messages)
				}
			}},
		{"in a loop with a terminal tool", []step{{calls: []string{"submit", "fetch"}}, {calls: []string{"submit"}}},
			&agentdv1.Agent{Name: "twice", AgentType: &agentdv1.Agent_Loop{Loop: &agentdv1.LoopAgent{MaxIterations: 2, Agents: []*agentdv1.Agent{
				far(func(r *agentdv1.RemoteAgent) { r.TerminalTool = "submit" }),
			}}}}, `{"q":1}{"q":1}`, 1, func(t *testing.T, b *backend) {
				if b.name == "agentd" {
					return // its turn gives way to the next message
				}
				texts := fmt.Sprint(b.seen.texts)
				if !strings.Contains(texts, "taken") || !strings.Contains(texts, "not run") || len(b.seen.texts) != 2 {
					t.Errorf("results %s", texts)
				}
			}},
		{"to transfer to", calls, local("boss", "hand over", far()), "over to you. lookingfound", 1, nil},
		{"beside another one", calls, &agentdv1.Agent{Name: "both", AgentType: &agentdv1.Agent_Parallel{Parallel: &agentdv1.ParallelAgent{Agents: []*agentdv1.Agent{
			far(), {Name: "farther", AgentType: far(func(r *agentdv1.RemoteAgent) { r.OutputKey = "other" }).GetAgentType()},
		}}}}, "", 2, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			backends(t, tc.steps, func(t *testing.T, b *backend) {
				w := newWorld(t, b)
				session, turn := w.begin(tc.tree)
				out, err := w.follow(t.Context(), session, turn)
				if err != nil || !out.Ended {
					t.Fatalf("%v %s %s", err, text(out), out.message)
				}
				if tc.text != "" && out.Text != tc.text {
					t.Errorf("text %q, want %q", out.Text, tc.text)
				}
				w.replays(session, turn)
				b.seen.mu.Lock()
				defer b.seen.mu.Unlock()
				if sessions := b.seen.sessions; sessions != tc.sessions && (b.name != "agentd" || tc.sessions != 1) {
					t.Errorf("%d sessions, want %d", sessions, tc.sessions)
				}
				if tc.check != nil {
					tc.check(t, b)
				}
			})
		})
	}
}

// TestManyCalls has eight calls run at a time, and all answered at once.
func TestManyCalls(t *testing.T) {
	many := step{calls: slices.Repeat([]string{"search"}, 20)}
	backends(t, []step{many, {say: "done"}}, func(t *testing.T, b *backend) {
		w := newWorld(t, b)
		session, turn := w.begin(remoteAgent())
		out, err := w.follow(t.Context(), session, turn)
		if err != nil || !out.Ended || len(out.Tools) != 20 || out.Calls != 2 {
			t.Fatalf("%v %s %s", err, text(out), out.message)
		}
		if w.most > 8 {
			t.Errorf("%d calls ran at once", w.most)
		}
		w.replays(session, turn)
		b.seen.mu.Lock()
		defer b.seen.mu.Unlock()
		if b.once(t); len(b.seen.answers) != 20 {
			t.Errorf("%d answers", len(b.seen.answers))
		}
	})
}

// TestGate has a person decide about a call, and a turn that only plans run none.
func TestGate(t *testing.T) {
	backends(t, []step{{calls: []string{"search", "fetch"}}, {say: "done"}}, func(t *testing.T, b *backend) {
		w := newWorld(t, b)
		session, turn := w.begin(remoteAgent(), func(r *agentdv1.RunRequest_ExecuteRequest) {
			r.Tools[0].NeedsApproval, r.Tools[1].NeedsApproval = true, true
		})
		asked := 0
		w.onEvent = func(m *agentdv1.RunResponse) {
			in := m.GetInteractionRequested().GetInteraction()
			if in == nil {
				return
			}
			asked++
			res := &agentdv1.Resolution{Decision: &agentdv1.Resolution_Approve{Approve: &agentdv1.Approval{}}}
			if in.GetToolName() == "fetch" {
				res.Decision = &agentdv1.Resolution_Deny{Deny: &agentdv1.Denial{Reason: "not today"}}
			}
			_, err := w.stub.ResolveInteraction(t.Context(), connect.NewRequest(&agentdv1.ResolveInteractionRequest{SessionId: session, InteractionId: in.GetId(), Resolution: res}))
			if err != nil {
				t.Error(err)
			}
		}
		out, err := w.follow(t.Context(), session, turn)
		if err != nil || !out.Ended || asked != 2 || !slices.Equal(out.Tools, []string{`search {"q":1}`}) {
			t.Fatalf("%v %d %s %s", err, asked, text(out), out.message)
		}
		b.seen.mu.Lock()
		defer b.seen.mu.Unlock()
		if texts := fmt.Sprint(b.seen.texts); !strings.Contains(texts, "not today") || !strings.Contains(texts, "search did") {
			t.Errorf("results %s", texts)
		}
	})
	backends(t, []step{{calls: []string{"search"}}, {say: "done"}}, func(t *testing.T, b *backend) {
		w := newWorld(t, b)
		out := w.play(remoteAgent(), func(r *agentdv1.RunRequest_ExecuteRequest) { r.PlanMode = true })
		b.seen.mu.Lock()
		defer b.seen.mu.Unlock()
		if texts := fmt.Sprint(b.seen.texts); !out.Ended || len(out.Tools) > 0 || !strings.Contains(texts, "plan mode") {
			t.Errorf("%s: results %s", text(out), texts)
		}
	})
}

// TestNextTurn tells an agent of a backend what was said before, in a session of its own.
func TestNextTurn(t *testing.T) {
	backends(t, []step{{say: "one"}, {say: "two"}}, func(t *testing.T, b *backend) {
		w := newWorld(t, b)
		session, turn := w.begin(remoteAgent())
		if _, err := w.follow(t.Context(), session, turn); err != nil {
			t.Fatal(err)
		}
		out := w.play(remoteAgent(), func(r *agentdv1.RunRequest_ExecuteRequest) {
			r.SessionId, r.UserPrompt, r.Instruction = &session, "and then?", "Be kind."
		})
		b.seen.mu.Lock()
		defer b.seen.mu.Unlock()
		want := []string{"go", "Be kind.\n\nThe conversation so far:\n[user] said: go\n[far] said: one\n\nand then?"}
		if !out.Ended || !slices.Equal(b.seen.messages, want) || b.seen.sessions != 2 {
			t.Errorf("%s: %d sessions, messages %q, want %q", text(out), b.seen.sessions, b.seen.messages, want)
		}
	})
}

// TestRefusedTrees are refused before anything is asked of the backend.
func TestRefusedTrees(t *testing.T) {
	b := newManaged(t, nil)
	w := newWorld(t, &backend{name: "managed", file: b.file()})
	for name, tc := range map[string]struct {
		change func(*agentdv1.RemoteAgent)
		says   string
	}{
		"unknown backend": {func(r *agentdv1.RemoteAgent) { r.Backend = "nowhere" }, `far: backend "nowhere": there is no such backend; there are desk`},
		"a URL":           {func(r *agentdv1.RemoteAgent) { r.Backend = "https://evil.example" }, "there is no such backend"},
		"a key":           {func(r *agentdv1.RemoteAgent) { r.Instruction = "do {plan}" }, "{plan}: a backend's agent is made once"},
		"unknown tool":    {func(r *agentdv1.RemoteAgent) { r.ToolNames = []string{"rm"} }, `unknown tool "rm"`},
		"terminal tool":   {func(r *agentdv1.RemoteAgent) { r.TerminalTool = "rm" }, `unknown tool "rm"`},
		"no model":        {func(r *agentdv1.RemoteAgent) { r.Model = "" }, "the model is missing"},
		"output key":      {func(r *agentdv1.RemoteAgent) { r.OutputKey = "a b" }, "output_key"},
		"max turns":       {func(r *agentdv1.RemoteAgent) { r.MaxTurns = 5000 }, "max_turns is 5000, at most 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.stub.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{
				Agent: remoteAgent(tc.change), UserPrompt: "go", Tools: offers(),
			}}))
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("the error is %v, want %q", err, tc.says)
			}
		})
	}
	if len(b.auth) > 0 {
		t.Errorf("the backend was asked: %q", b.auth)
	}
}

// TestBudget counts what a backend takes.
func TestBudget(t *testing.T) {
	backends(t, []step{{calls: []string{"search"}}, {calls: []string{"search"}}, {say: "done"}}, func(t *testing.T, b *backend) {
		out := newWorld(t, b).play(remoteAgent(), func(r *agentdv1.RunRequest_ExecuteRequest) { r.Budget = &agentdv1.Budget{Tokens: 20} })
		if out.Code != "BUDGET_EXHAUSTED" || out.Calls != 2 {
			t.Errorf("%s", text(out))
		}
	})
}
