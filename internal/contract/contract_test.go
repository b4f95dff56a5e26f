// Package contract holds the part of the protocol that deployed clients speak
// as a table written by hand, and compares it with the generated code and with
// the image that scripts/breaking compares proto/ with. It has no code but this
// test and imports nothing of agentd but the generated packages.
package contract_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

const pkg = "agentd.v1"

// Numbers from which on the protocol may grow: below them nothing is added.
const (
	firstNewField  = 10
	firstNewMember = 20
	firstNewValue  = 8
)

// fixed is the contract. A message's lines are: number, name, JSON name, then
// "repeated", "optional" or "oneof:NAME" where it applies, then the type.
const fixed = `
message RunRequest
1 execute execute oneof:request RunRequest.ExecuteRequest
2 heartbeat heartbeat oneof:request RunRequest.HeartbeatRequest
3 tool_call_response toolCallResponse oneof:request RunRequest.ToolCallResponse
4 end end oneof:request RunRequest.EndRequest
5 cancel cancel oneof:request RunRequest.CancelRequest

message RunRequest.ExecuteRequest
1 agent agent Agent
2 session_id sessionId optional string
3 user_prompt userPrompt string
4 tools tools repeated Tool
5 initial_state initialState google.protobuf.Struct

message RunRequest.HeartbeatRequest
1 session_id sessionId string

message RunRequest.ToolCallResponse
1 session_id sessionId string
2 tool_call_id toolCallId string
3 tool_name toolName string
4 output output oneof:result string
5 error error oneof:result string
6 state_delta stateDelta google.protobuf.Struct

message RunRequest.EndRequest
1 session_id sessionId string
2 reason reason optional string

message RunRequest.CancelRequest
1 session_id sessionId string
2 tool_call_id toolCallId optional string

message RunResponse
1 execute execute oneof:response RunResponse.ExecuteResponse
2 heartbeat heartbeat oneof:response RunResponse.HeartbeatResponse
3 tool_call toolCall oneof:response RunResponse.ToolCallRequest
4 error error oneof:response RunResponse.ErrorResponse
5 end end oneof:response RunResponse.EndResponse
6 output_chunk outputChunk oneof:response RunResponse.OutputChunk
7 state_update stateUpdate oneof:response RunResponse.StateUpdate

message RunResponse.ExecuteResponse
1 session_id sessionId string

message RunResponse.HeartbeatResponse
1 session_id sessionId string

message RunResponse.ToolCallRequest
1 session_id sessionId string
2 tool_call_id toolCallId string
3 tool_name toolName string
4 tool_input toolInput string
5 agent_path agentPath repeated string

message RunResponse.OutputChunk
1 session_id sessionId string
2 agent_path agentPath repeated string
3 content content string
4 last last bool
5 is_thought isThought bool

message RunResponse.ErrorResponse
1 session_id sessionId string
2 code code ErrorCode
3 message message string
4 retryable retryable bool

message RunResponse.EndResponse
1 session_id sessionId string
2 reason reason optional string
3 usage_summary usageSummary UsageSummary
4 completed completed bool

message RunResponse.StateUpdate
1 session_id sessionId string
2 state_delta stateDelta google.protobuf.Struct

message Tool
1 name name string
2 description description string
3 input_schema inputSchema optional string

message Agent
1 name name string
2 description description string
3 llm llm oneof:agent_type LlmAgent
4 sequential sequential oneof:agent_type SequentialAgent
5 parallel parallel oneof:agent_type ParallelAgent
6 loop loop oneof:agent_type LoopAgent

message LlmAgent
1 model model string
2 tool_names toolNames repeated string
3 sub_agents subAgents repeated Agent
4 instruction instruction string
5 builtin_tools builtinTools repeated string
6 output_key outputKey string
7 mcp_attachments mcpAttachments repeated McpAttachment

message McpAttachment
1 mcp_name mcpName string
2 include_tool_names includeToolNames repeated string

message SequentialAgent
1 agents agents repeated Agent

message ParallelAgent
1 agents agents repeated Agent

message LoopAgent
1 agents agents repeated Agent
2 max_iterations maxIterations uint32

message TokenUsage
1 prompt_tokens promptTokens int32
2 completion_tokens completionTokens int32
3 cached_tokens cachedTokens int32
4 thoughts_tokens thoughtsTokens int32
5 total_tokens totalTokens int32

message UsageSummary
1 total_usage totalUsage TokenUsage
2 llm_calls llmCalls int32
3 estimated_cost estimatedCost double

enum ErrorCode
0 ERROR_CODE_UNSPECIFIED
1 ERROR_CODE_INTERNAL
2 ERROR_CODE_INVALID_AGENT_TREE
3 ERROR_CODE_RATE_LIMITED
4 ERROR_CODE_AUTH_FAILED
5 ERROR_CODE_SESSION_NOT_FOUND
6 ERROR_CODE_MODEL_UNAVAILABLE
7 ERROR_CODE_TIMEOUT
`

// resolver finds a descriptor by its full name.
type resolver interface {
	FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error)
}

func TestGeneratedCode(t *testing.T) {
	checkAll(t, protoregistry.GlobalFiles)
	if got, want := agentdv1.File_agentd_v1_service_proto.Path(), "agentd/v1/service.proto"; got != want {
		t.Errorf("the service's file is %s, want %s", got, want)
	}
	if got, want := agentdv1connect.AgentdRunProcedure, "/agentd.v1.Agentd/Run"; got != want {
		t.Errorf("Run is served at %s, want %s", got, want)
	}
}

func TestBaselineImage(t *testing.T) {
	data, err := os.ReadFile("../../proto/baseline.binpb")
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &set); err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatal(err)
	}
	checkAll(t, files)
}

func checkAll(t *testing.T, in resolver) {
	t.Helper()
	for heading, want := range sections(t) {
		kind, name, _ := strings.Cut(heading, " ")
		d, err := in.FindDescriptorByName(protoreflect.FullName(pkg + "." + name))
		if err != nil {
			t.Errorf("%s: %v", heading, err)
			continue
		}
		var got map[int]string
		switch kind {
		case "message":
			got = fields(d.(protoreflect.MessageDescriptor))
		case "enum":
			got = values(d.(protoreflect.EnumDescriptor))
		default:
			t.Fatalf("table: %q is neither a message nor an enum", heading)
		}
		for _, n := range slices.Sorted(maps.Keys(want)) {
			if got[n] != want[n] {
				t.Errorf("%s, number %d:\n got %q\nwant %q", heading, n, got[n], want[n])
			}
		}
		for _, n := range slices.Sorted(maps.Keys(got)) {
			first := firstNew(kind, got[n])
			if _, ok := want[n]; !ok && n < first {
				t.Errorf("%s: %q is new and must have a number from %d on", heading, got[n], first)
			}
		}
	}
	checkService(t, in)
}

func checkService(t *testing.T, in resolver) {
	t.Helper()
	d, err := in.FindDescriptorByName(pkg + ".Agentd")
	if err != nil {
		t.Fatal(err)
	}
	run := d.(protoreflect.ServiceDescriptor).Methods().ByName("Run")
	if run == nil {
		t.Fatal("service Agentd has no method Run")
	}
	got := fmt.Sprintf("stream %s (%t), stream %s (%t)", run.Input().FullName(), run.IsStreamingClient(),
		run.Output().FullName(), run.IsStreamingServer())
	if want := "stream agentd.v1.RunRequest (true), stream agentd.v1.RunResponse (true)"; got != want {
		t.Errorf("Run: got %s, want %s", got, want)
	}
}

// firstNew is the lowest number that an addition like the one described may have.
func firstNew(kind, described string) int {
	switch {
	case kind == "enum":
		return firstNewValue
	case strings.Contains(described, " oneof:"):
		return firstNewMember
	default:
		return firstNewField
	}
}

// sections parses the table: heading to number to description.
func sections(t *testing.T) map[string]map[int]string {
	t.Helper()
	all := map[string]map[int]string{}
	for block := range strings.SplitSeq(strings.TrimSpace(fixed), "\n\n") {
		lines := strings.Split(block, "\n")
		rows := map[int]string{}
		for _, line := range lines[1:] {
			number, rest, _ := strings.Cut(line, " ")
			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatalf("table: %q: %v", line, err)
			}
			rows[n] = rest
		}
		all[lines[0]] = rows
	}
	return all
}

func fields(m protoreflect.MessageDescriptor) map[int]string {
	rows := map[int]string{}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		words := []string{string(f.Name()), f.JSONName()}
		switch {
		case f.IsMap():
			words = append(words, "map")
		case f.IsList():
			words = append(words, "repeated")
		case f.HasOptionalKeyword():
			words = append(words, "optional")
		case f.ContainingOneof() != nil:
			words = append(words, "oneof:"+string(f.ContainingOneof().Name()))
		}
		rows[int(f.Number())] = strings.Join(append(words, typeName(f)), " ")
	}
	return rows
}

func typeName(f protoreflect.FieldDescriptor) string {
	var full protoreflect.FullName
	switch {
	case f.Message() != nil:
		full = f.Message().FullName()
	case f.Enum() != nil:
		full = f.Enum().FullName()
	default:
		return f.Kind().String()
	}
	return strings.TrimPrefix(string(full), pkg+".")
}

func values(e protoreflect.EnumDescriptor) map[int]string {
	rows := map[int]string{}
	for i := range e.Values().Len() {
		v := e.Values().Get(i)
		rows[int(v.Number())] = string(v.Name())
	}
	return rows
}
