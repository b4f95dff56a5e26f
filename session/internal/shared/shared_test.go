package shared_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/shared"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/store"
)

// memory has the keys of `app:`, as a store has them, and counts its reads.
type memory struct {
	app   map[string]json.RawMessage
	reads int
}

func (m *memory) Shared(_ context.Context, scope string) (map[string]json.RawMessage, error) {
	m.reads++
	if scope != "app" {
		return nil, errors.New("no such scope in this test")
	}
	return m.app, nil
}

func values(key, value string) []store.SharedValue {
	v := store.SharedValue{Scope: "app", Key: key}
	if value != "" {
		v.Value = json.RawMessage(value)
	}
	return []store.SharedValue{v}
}

func now(t *testing.T, s *shared.State) map[string]any {
	t.Helper()
	keys, err := s.Now(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// A write that runs alone is not read again; one whose outcome is not known is, and so are two at the same time.
func TestReadsOnceWhatIsKnown(t *testing.T) {
	m := &memory{app: map[string]json.RawMessage{"a": json.RawMessage(`1`), "gone": json.RawMessage(`null`)}}
	s := shared.New(m, shared.Use{Keys: 10, Bytes: 1000})
	reserve := func(key, value string) *shared.Reservation {
		r, err := s.Reserve(t.Context(), values(key, value))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := reserve("b", `"x"`)
	m.app["b"] = json.RawMessage(`"x"`)
	r.Done(true)
	want := map[string]any{"app:a": json.Number("1"), "app:b": "x"}
	if got := now(t, s); !reflect.DeepEqual(got, want) || m.reads != 1 {
		t.Errorf("after a write: %v and %d reads, want %v and 1", got, m.reads, want)
	}
	reserve("b", "").Done(false)
	if now(t, s); m.reads != 2 {
		t.Errorf("after a write whose outcome is not known: %d reads, want 2", m.reads)
	}
	one, two := reserve("c", `1`), reserve("c", `2`)
	one.Done(true)
	two.Done(true)
	if now(t, s); m.reads != 3 {
		t.Errorf("after two writes at the same time: %d reads, want 3", m.reads)
	}
}

// What is reserved counts for those who reserve meanwhile, and no longer.
func TestReservationsCount(t *testing.T) {
	s := shared.New(&memory{}, shared.Use{Keys: 1, Bytes: 100})
	first, err := s.Reserve(t.Context(), values("a", `1`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Reserve(t.Context(), values("b", `1`))
	if e := fault.As(err); err == nil || e.Limit == nil || e.Limit.Name != "state_keys" {
		t.Errorf("a second key: %v, want an error about state_keys", err)
	}
	first.Release()
	second, err := s.Reserve(t.Context(), values("b", `1`))
	if err != nil {
		t.Errorf("after the release: %v", err)
	}
	second.Release()
	if _, err = s.Reserve(t.Context(), values("b", `"`+strings.Repeat("x", 200)+`"`)); err == nil {
		t.Error("a value beyond the bound was reserved")
	}
	if _, err = s.Reserve(t.Context(), values(strings.Repeat("n", 300), `1`)); err == nil {
		t.Error("a name beyond the bound was reserved")
	}
	var none *shared.Reservation
	none.Done(true)
	none.Release()
}

// Operators alone write `app:`.
func TestPermitted(t *testing.T) {
	state := map[string]any{"app:a": 1, "user:b": 2, "c": 3}
	if got, warnings := shared.Permitted(principal.Principal{ID: "local", Role: principal.Operator}, "state", state); len(got) != 3 || warnings != nil {
		t.Errorf("an operator: %v, %v", got, warnings)
	}
	got, warnings := shared.Permitted(principal.Principal{ID: "p"}, "state", state)
	if want := map[string]any{"user:b": 2, "c": 3}; !reflect.DeepEqual(got, want) || len(state) != 3 {
		t.Errorf("a caller: %v, want %v", got, want)
	}
	if len(warnings) != 1 || warnings[0].Field != `state["app:a"]` {
		t.Errorf("a caller: %v", warnings)
	}
	leaf := &agentdv1.Agent{AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{OutputKey: "app:out"}}}
	tree := &agentdv1.Agent{AgentType: &agentdv1.Agent_Sequential{
		Sequential: &agentdv1.SequentialAgent{Agents: []*agentdv1.Agent{leaf}},
	}}
	permitted, warnings := shared.PermittedTree(principal.Principal{ID: "p"}, tree)
	if key := permitted.GetSequential().GetAgents()[0].GetLlm().GetOutputKey(); key != "" {
		t.Errorf("a caller's agent writes %q", key)
	}
	if len(warnings) != 1 || warnings[0].Field != "agent.sequential.agents[0].llm.output_key" {
		t.Errorf("a caller's tree: %v", warnings)
	}
	if leaf.GetLlm().GetOutputKey() != "app:out" {
		t.Error("the caller's own tree was changed")
	}
}
