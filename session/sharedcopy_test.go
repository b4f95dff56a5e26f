package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/principal"
)

// TestCopyOfSharedState: a turn begins with the keys that the store has, whichever writes
// came before: alone, at the same time, refused or failed, in any order.
func TestCopyOfSharedState(t *testing.T) {
	store := &faulty{Store: memory(t)}
	f := newFixture(t, store, limits.Limits{MaxSharedBytes: 2000, MaxSharedKeys: 8})
	var began map[string]any
	f.on(func(_ context.Context, r *session.Run) error {
		began = r.State()
		return nil
	})
	dice := rand.New(rand.NewPCG(1, 2))
	write := func(seed uint64) error {
		dice := rand.New(rand.NewPCG(seed, 3))
		delta := map[string]any{}
		for range 1 + dice.IntN(3) {
			key := fmt.Sprintf("%s%d", []string{"app:", "user:"}[dice.IntN(2)], dice.IntN(10))
			delta[key] = []any{nil, json.Number("9007199254740993"), fmt.Sprint(seed), map[string]any{"n": []any{true, nil}}}[dice.IntN(4)]
		}
		err := f.m.SetShared(t.Context(), delta)
		if e, ok := errors.AsType[*fault.Error](err); ok && e.Limit != nil {
			return nil
		}
		return err
	}
	for round := range uint64(200) {
		var writers sync.WaitGroup
		for n := range 1 + uint64(dice.IntN(3)) {
			writers.Go(func() {
				if err := write(round*10 + n); err != nil {
					t.Error(err)
				}
			})
		}
		writers.Wait()
		turn := f.start(session.Request{Agent: tree(), InitialState: map[string]any{"app:own": json.Number(fmt.Sprint(round))}})
		<-turn.Done()
		want, err := session.SharedState(t.Context(), store, principal.Of(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(began, want) {
			t.Fatalf("round %d: the turn begins with %v, the store has %v", round, began, want)
		}
	}
}
