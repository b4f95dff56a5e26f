package daemon_test

import (
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
)

// TestSharedState (F42): an operator sees over every wire what sessions share, and
// removes it.
func TestSharedState(t *testing.T) {
	for name, c := range wires(t, start(t, daemon.Config{})) {
		t.Run(name, func(t *testing.T) {
			state, err := structpb.NewStruct(map[string]any{"app:b": "x", "app:a": 1, "user:c": true, "own": 1})
			if err != nil {
				t.Fatal(err)
			}
			req := deadlyRequest("", "echo")
			req.Execute.InitialState = state
			until(t, c, call(t, c.CreateTurn, req).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
			first := call(t, c.ListSharedState, &agentdv1.ListSharedStateRequest{PageSize: 2})
			rest := call(t, c.ListSharedState, &agentdv1.ListSharedStateRequest{PageSize: 2, PageToken: first.GetNextPageToken()})
			got := ""
			for _, e := range append(first.GetEntries(), rest.GetEntries()...) {
				got += e.GetKey() + "=" + e.GetValue() + " "
			}
			if got != `app:a=1 app:b="x" user:c=true ` || rest.GetNextPageToken() != "" || first.GetEntries()[1].GetBytes() != 4 {
				t.Errorf("the keys are %s, %v, %v", got, first, rest)
			}
			keys := []string{"app:a", "app:b", "user:c", "user:none"}
			if removed := call(t, c.RemoveSharedState, &agentdv1.RemoveSharedStateRequest{Keys: keys}).GetRemoved(); len(removed) != 3 {
				t.Errorf("removed %v", removed)
			}
			if left := call(t, c.ListSharedState, &agentdv1.ListSharedStateRequest{}).GetEntries(); len(left) != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}
