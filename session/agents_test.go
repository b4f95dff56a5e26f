package session_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// worked lists the starts and ends of agents, with their positions.
func worked(msgs []*agentdv1.RunResponse) []string {
	var out []string
	for _, m := range msgs {
		if a := m.GetAgentStarted(); a != nil {
			out = append(out, fmt.Sprint(m.GetSeq(), " + ", strings.Join(a.GetAgentPath(), "/"), " ", a.GetKind(), " ", a.GetModel()))
		}
		if a := m.GetAgentEnded(); a != nil {
			out = append(out, fmt.Sprint(m.GetSeq(), " - ", strings.Join(a.GetAgentPath(), "/"), " ", a.GetOutcome()))
		}
	}
	return out
}

// TestAgents ends with the turn, and as the turn, the agents that have not ended before
// it, and a client that comes back receives the rest from each position.
func TestAgents(t *testing.T) {
	starts := func(ctx context.Context, r *session.Run) error {
		changes := []record.AgentChange{
			{Path: []string{"root"}, Kind: record.SequentialAgent},
			{Path: []string{"root", "a"}, Kind: record.LLMAgent, Model: "echo"},
		}
		if err := r.AgentsChanged(ctx, record.AgentsChanged{Changes: changes}); err != nil {
			return err
		}
		if err := say(ctx, r, "m1", []string{"root", "a"}, "one"); err != nil {
			return err
		}
		return r.AgentsChanged(ctx, record.AgentsChanged{Changes: []record.AgentChange{
			{Path: []string{"root", "a"}, Ended: record.AgentTransferred},
			{Path: []string{"root", "b"}, Kind: record.LLMAgent, Model: "echo"},
		}})
	}
	for name, tc := range map[string]struct {
		run     func(ctx context.Context, r *session.Run) error
		outcome agentdv1.AgentEnded_Outcome
		atEnd   string
	}{
		"completed": {starts, agentdv1.AgentEnded_OUTCOME_COMPLETED, ""},
		"failed": {func(ctx context.Context, r *session.Run) error {
			return errors.Join(starts(ctx, r), fault.Errorf(agentdv1.ErrorCode_ERROR_CODE_TIMEOUT, "too slow"))
		}, agentdv1.AgentEnded_OUTCOME_FAILED, ""},
		"canceled": {func(ctx context.Context, r *session.Run) error {
			if err := starts(ctx, r); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}, agentdv1.AgentEnded_OUTCOME_CANCELED, ""},
		"done before the end": {func(ctx context.Context, r *session.Run) error {
			err := errors.Join(starts(ctx, r), fault.Errorf(agentdv1.ErrorCode_ERROR_CODE_TIMEOUT, "too slow"))
			return errors.Join(r.AgentsChangedAtEnd(record.AgentsChanged{Changes: []record.AgentChange{{Path: []string{"root", "b"}, Ended: record.AgentCompleted}}}), err)
		}, agentdv1.AgentEnded_OUTCOME_FAILED, "root/b"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, memory(t), limits.Limits{})
			f.on(tc.run)
			turn := f.start(session.Request{Agent: &agentdv1.Agent{Name: "root", AgentType: &agentdv1.Agent_Sequential{
				Sequential: &agentdv1.SequentialAgent{Agents: []*agentdv1.Agent{tree()}},
			}}})
			w := turn.Watch()
			if name == "canceled" {
				await(t, w, func(m *agentdv1.RunResponse) bool {
					return strings.Join(m.GetAgentStarted().GetAgentPath(), "/") == "root/b"
				})
				turn.Cancel("enough")
			}
			follow(t, w)
			whole := f.history(turn, 0)
			b := tc.outcome
			if tc.atEnd != "" {
				b = agentdv1.AgentEnded_OUTCOME_COMPLETED
			}
			var got []string
			for _, line := range worked(whole) {
				_, line, _ = strings.Cut(line, " ")
				got = append(got, line)
			}
			want := fmt.Sprintf("+ root AGENT_KIND_SEQUENTIAL ;+ root/a AGENT_KIND_LLM echo;- root/a OUTCOME_TRANSFERRED;+ root/b AGENT_KIND_LLM echo;- root/b %s;- root %s", b, tc.outcome)
			if strings.Join(got, ";") != want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, ";"), want)
			}
			for i, m := range whole {
				if rest := f.history(turn, m.GetSeq()); fmt.Sprint(worked(rest)) != fmt.Sprint(worked(whole[i+1:])) {
					t.Errorf("after %d: %v, want %v", m.GetSeq(), worked(rest), worked(whole[i+1:]))
				}
			}
		})
	}
}

// TestAgentAlone: the agent of a tree of one starts and ends with the turn, without a
// record of its own.
func TestAgentAlone(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(func(ctx context.Context, r *session.Run) error { return say(ctx, r, "m1", []string{"root"}, "one") })
	turn := f.start(session.Request{InitialState: map[string]any{"a": "b"}})
	told := names(follow(t, turn.Watch()))
	if want := "Execute StateUpdate AgentStarted OutputChunk MessageCompleted ModelCallEnded OutputChunk AgentEnded End"; told != want {
		t.Errorf("told %s, want %s", told, want)
	}
	whole := f.history(turn, 0)
	for i, m := range whole {
		if rest := f.history(turn, m.GetSeq()); fmt.Sprint(worked(rest)) != fmt.Sprint(worked(whole[i+1:])) {
			t.Errorf("after %d: %v, want %v", m.GetSeq(), worked(rest), worked(whole[i+1:]))
		}
	}
	head, err := f.store.Head(t.Context(), turn.SessionID())
	if err != nil {
		t.Fatal(err)
	}
	recs, err := f.store.Read(t.Context(), turn.SessionID(), 0, int(head.LastSeq))
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range recs {
		if rec.Kind == record.KindAgentsChanged {
			t.Errorf("record %d: %s", rec.Seq, rec.Data)
		}
	}
}

// history is what the log says of a turn after a position.
func (f *fixture) history(turn *session.Turn, after int64) []*agentdv1.RunResponse {
	f.t.Helper()
	msgs, more, err := f.m.Events(f.t.Context(), session.AttachRequest{SessionID: turn.SessionID(), TurnID: turn.ID(), After: &after, Observe: true}, 1000, nil)
	if code(err) == agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST { // the turn is over by then
		return nil
	}
	if err != nil || more {
		f.t.Fatalf("after %d: more %t, %v", after, more, err)
	}
	return msgs
}
