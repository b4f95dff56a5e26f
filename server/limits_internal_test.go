package server

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/protorules"
	"github.com/apzuk3/agentd/session/fault"
)

// TestSizesAreLimits: who sends too much learns by numbers how much may be sent.
func TestSizesAreLimits(t *testing.T) {
	rules, err := protorules.Protocol()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		msg  proto.Message
		want fault.Limit
	}{
		"characters": {
			&agentdv1.GetTurnRequest{SessionId: strings.Repeat("é", 129)},
			fault.Limit{Name: "session_id_characters", Value: 128, Received: 129},
		},
		"items": {
			&agentdv1.WatchTurnRequest{SessionId: "s", ToolNames: make([]string, 513)},
			fault.Limit{Name: "tool_names_items", Value: 512, Received: 513},
		},
		"no size": {&agentdv1.GetTurnRequest{}, fault.Limit{}},
	} {
		e := check(rules, test.msg)
		if e == nil {
			t.Errorf("%s: not refused", name)
			continue
		}
		got := fault.Limit{}
		if e.Limit != nil {
			got = *e.Limit
		}
		if got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}
