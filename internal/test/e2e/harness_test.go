package e2e

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

func llmAgent(name, modelName, instruction string, tools ...string) *agentdv1.Agent {
	return &agentdv1.Agent{Name: name, Description: "the agent " + name, AgentType: &agentdv1.Agent_Llm{
		Llm: &agentdv1.LlmAgent{Model: modelName, Instruction: instruction, ToolNames: tools},
	}}
}

func sequentialAgent(name string, agents ...*agentdv1.Agent) *agentdv1.Agent {
	return &agentdv1.Agent{Name: name, AgentType: &agentdv1.Agent_Sequential{Sequential: &agentdv1.SequentialAgent{Agents: agents}}}
}

func parallelAgent(name string, agents ...*agentdv1.Agent) *agentdv1.Agent {
	return &agentdv1.Agent{Name: name, AgentType: &agentdv1.Agent_Parallel{Parallel: &agentdv1.ParallelAgent{Agents: agents}}}
}

func loopAgent(name string, most uint32, agents ...*agentdv1.Agent) *agentdv1.Agent {
	return &agentdv1.Agent{Name: name, AgentType: &agentdv1.Agent_Loop{Loop: &agentdv1.LoopAgent{Agents: agents, MaxIterations: most}}}
}

func toolOf(name string) *agentdv1.Tool {
	return &agentdv1.Tool{Name: name, Description: "the tool " + name}
}

// generate is a model.LLM that is a function.
type generate func(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error)

func (g generate) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	return g(ctx, req, emit)
}

// provider serves the models "<name>/…", which need no key; open finds the model
// by what stands after the slash.
type provider struct {
	name string
	open func(modelName string) generate
}

func (p provider) Describe() model.Description {
	return model.Description{Name: p.name, Keyless: true}
}

func (p provider) Open(modelName, _ string) (model.Model, error) {
	return model.Model{LLM: p.open(modelName)}, nil
}

// rest waits for d, or for the end of ctx, which is its error.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// recorded is a store that knows which sessions were made in it.
type recorded struct {
	session.Store
	keep bool // Close leaves it open, so that it can be read afterwards

	mu  sync.Mutex
	ids []string // protected by mu
}

func (r *recorded) Create(ctx context.Context, s session.NewSession, key *session.Key) error {
	err := r.Store.Create(ctx, s, key)
	if err == nil {
		r.note(s.ID)
	}
	return err
}

func (r *recorded) Append(ctx context.Context, b session.Batch) error {
	err := r.Store.Append(ctx, b)
	if err == nil && b.Create != nil {
		r.note(b.SessionID)
	}
	return err
}

func (r *recorded) Fork(ctx context.Context, f session.Fork) error {
	err := r.Store.Fork(ctx, f)
	if err == nil {
		r.note(f.Into.ID)
	}
	return err
}

// note takes note of a session once.
func (r *recorded) note(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.ids, id) {
		r.ids = append(r.ids, id)
	}
}

func (r *recorded) Close() error {
	if r.keep {
		return nil
	}
	return r.Store.Close()
}

// sessions are the sessions that have begun: a client that leaves at once may
// leave one behind that has no turn.
func (r *recorded) sessions(t *testing.T) []string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.ids), func(id string) bool {
		head, err := r.Head(t.Context(), id)
		if err != nil {
			t.Error(err)
		}
		return head.LastSeq == 0
	})
}

// alarm is a log handler that fails the test when the daemon reports a fault of
// its own. Its lines stay out of the test's output otherwise.
type alarm struct{ t testing.TB }

func (alarm) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (a alarm) WithAttrs([]slog.Attr) slog.Handler         { return a }
func (a alarm) WithGroup(string) slog.Handler              { return a }

func (a alarm) Handle(_ context.Context, r slog.Record) error {
	if r.Level < slog.LevelError && r.Message != "history of a stopped turn is incomplete" {
		return nil
	}
	line := r.Message
	r.Attrs(func(at slog.Attr) bool { line += " " + at.String(); return true })
	a.t.Errorf("the daemon reports a fault: %s", line)
	return nil
}
