package contract_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// TestEnums: each enum has one value that says nothing, which is 0, and no other one.
func TestEnums(t *testing.T) {
	var all []protoreflect.EnumDescriptor
	add := func(of protoreflect.EnumDescriptors) {
		for i := range of.Len() {
			all = append(all, of.Get(i))
		}
	}
	for _, file := range []protoreflect.FileDescriptor{
		agentdv1.File_agentd_v1_service_proto, agentdv1.File_agentd_v1_sessions_proto,
		agentdv1.File_agentd_v1_types_proto, agentdv1.File_agentd_v1_interactions_proto,
		agentdv1.File_agentd_v1_eventlog_proto,
		agentdv1.File_agentd_v1_goals_proto, agentdv1.File_agentd_v1_goal_events_proto,
	} {
		add(file.Enums())
	}
	for _, m := range messages(t) {
		add(m.Enums())
	}
	if len(all) < 10 {
		t.Fatalf("found %d enums", len(all))
	}
	for _, e := range all {
		for i := range e.Values().Len() {
			v := e.Values().Get(i)
			if silent := strings.HasSuffix(string(v.Name()), "_UNSPECIFIED"); silent != (v.Number() == 0) {
				t.Errorf("%s: %s is %d", e.FullName(), v.Name(), v.Number())
			}
		}
	}
}
