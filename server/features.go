package server

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// firstNewMember is firstNewField for members of a oneof.
const firstNewMember = 20

// oldMessages are the messages of requests that all clients know. Their fields are
// features from firstNewField on, the fields of all other messages from 1 on.
var oldMessages = map[protoreflect.Name]bool{
	"RunRequest": true, "RunRequest.ExecuteRequest": true, "RunRequest.HeartbeatRequest": true,
	"RunRequest.ToolCallResponse": true, "RunRequest.EndRequest": true, "RunRequest.CancelRequest": true,
	"Tool": true, "Agent": true, "LlmAgent": true, "McpAttachment": true,
	"SequentialAgent": true, "ParallelAgent": true, "LoopAgent": true,
}

// features are the methods and fields that this server knows beyond what every server
// has known from the beginning, sorted: the methods of its services and the fields of
// their requests, by their names in package agentd.v1, such as
// SessionService.CreateTurn and RunRequest.ExecuteRequest.on_busy.
var features = func() []string {
	const pkg = "agentd.v1."
	var all []string
	seen := map[protoreflect.FullName]bool{}
	var visit func(m protoreflect.MessageDescriptor)
	visit = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] || !strings.HasPrefix(string(m.FullName()), pkg) {
			return
		}
		seen[m.FullName()] = true
		name := strings.TrimPrefix(string(m.FullName()), pkg)
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			first := protoreflect.FieldNumber(firstNewField)
			if of := f.ContainingOneof(); of != nil && !of.IsSynthetic() {
				first = firstNewMember
			}
			if !m.IsMapEntry() && (!oldMessages[protoreflect.Name(name)] || f.Number() >= first) {
				all = append(all, name+"."+string(f.Name()))
			}
			if f.Message() != nil {
				visit(f.Message())
			}
		}
	}
	visit(agentdv1.File_agentd_v1_service_proto.Messages().ByName("RunRequest"))
	for _, service := range []protoreflect.ServiceDescriptor{
		agentdv1.File_agentd_v1_sessions_proto.Services().ByName("SessionService"),
		agentdv1.File_agentd_v1_schedules_proto.Services().ByName("ScheduleService"),
		agentdv1.File_agentd_v1_eventlog_proto.Services().ByName("EventService"),
		agentdv1.File_agentd_v1_goals_proto.Services().ByName("GoalService"),
	} {
		for i := range service.Methods().Len() {
			method := service.Methods().Get(i)
			all = append(all, string(service.Name())+"."+string(method.Name()))
			visit(method.Input())
		}
	}
	slices.Sort(all)
	return all
}()
