package session

import (
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/record"
)

// TestSpecRaw: that a turn asks for raw payloads is in its first record, so that it
// holds when another server resumes the turn; logs of earlier versions do not ask.
func TestSpecRaw(t *testing.T) {
	for _, raw := range []bool{true, false} {
		f, err := newTurnStarted(&record.Spec{Agent: &agentdv1.Agent{Name: "root"}, Raw: raw}, Request{})
		if err != nil {
			t.Fatal(err)
		}
		data, err := logjson.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		var back record.TurnStarted
		if err := logjson.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		if spec, err := back.ReadSpec(); err != nil || spec.Raw != raw {
			t.Errorf("asked for %v, got %+v, %v", raw, spec, err)
		}
	}
	old := record.TurnStarted{Agent: []byte(`{"name":"root"}`)}
	if spec, err := old.ReadSpec(); err != nil || spec.Raw || !spec.Pinned {
		t.Errorf("an old log asks, or its tree is a new one: %+v, %v", spec, err)
	}
}
