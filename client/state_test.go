package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"reflect"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Numbers are float64 where that says all of them, and json.Number elsewhere, wherever
// state is read; what is written keeps every digit.
func TestStateNumbers(t *testing.T) {
	const given = `{"binary":[9223372036854775808,1e22,-0,100],"far":[1e400,-1e-400,1e9999999999],"fine":0.1000000000000000055511151231257827,` +
		`"id":9007199254740993,"nested":{"n":[18446744073709551615,null]},"usual":[0.1,1.50,2e3,-7]}`
	want := map[string]any{
		"binary": []any{9223372036854775808.0, 1e22, 0.0, 100.0},
		"far":    []any{json.Number("1e400"), json.Number("-1e-400"), json.Number("1e9999999999")},
		"fine":   json.Number("0.1000000000000000055511151231257827"),
		"id":     json.Number("9007199254740993"),
		"nested": map[string]any{"n": []any{json.Number("18446744073709551615"), nil}},
		"usual":  []any{0.1, 1.5, 2000.0, -7.0},
	}
	url := serve(t, func(_ context.Context, s *peer) error {
		if got := s.execute.GetInitialStateJson(); got != `{"id":9007199254740993,"large":170141183460469231731687303715884105728}` {
			t.Errorf("the state is sent as %s", got)
		}
		return steps(
			s.started,
			func() error {
				return s.send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_StateUpdate_{StateUpdate: &agentdv1.RunResponse_StateUpdate{
					SessionId: session, StateDeltaJson: given,
				}}})
			},
			func() error { return s.call("c", "look", "{}") },
			func() error {
				m, err := s.toolResult()
				if got := m.GetStateDeltaJson(); err == nil && got != `{"back":{"n":[18446744073709551615,null]},"id":9007199254740994}` {
					err = errors.New("the tool writes " + got)
				}
				return err
			},
			func() error { return s.end(true, "") },
		)
	})
	c := dial(t, url)
	mustAdd(t, client.AddTool(c, "look", "looks", func(ctx context.Context, _ struct{}) (any, error) {
		call := client.CallFrom(ctx)
		nested, _ := call.State("nested")
		if err := call.SetState("id", uint64(1<<53+2)); err != nil {
			return nil, err
		}
		return nil, call.SetState("back", nested)
	}))
	large := new(big.Int).Lsh(big.NewInt(1), 127)
	res, err := c.Do(t.Context(), llm("look"), "hi", client.WithInitialState(map[string]any{"id": 1<<53 + 1, "large": large}))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(res.State, want) {
		t.Errorf("the state is %#v", res.State)
	}
}

// A daemon gives back the numbers that it was given, also to who reads a session later.
func TestStateNumbersAreStored(t *testing.T) {
	c := agentdtest.Start(t, agentdtest.Config{}).Client()
	s := c.NewSession(llm())
	begin := client.WithInitialState(map[string]any{"id": json.Number("9007199254740993"), "far": json.Number("1e400")})
	if _, err := s.Send(t.Context(), "hi", begin); err != nil {
		t.Fatal(err)
	}
	state, err := s.State(t.Context())
	want := map[string]any{"id": json.Number("9007199254740993"), "far": json.Number("1e400")}
	if err != nil || !reflect.DeepEqual(state, want) {
		t.Errorf("%v, %v", state, err)
	}
}
