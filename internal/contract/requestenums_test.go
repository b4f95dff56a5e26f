package contract_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// silentDefaults are the enums that a caller may leave out of a request where nothing
// tells that from their value 0: the enum, and what its value 0 says in the proto.
const silentDefaults = `
OnDisconnect: The server's default for turns that Run starts (--on-disconnect).
OnBusy: The server's default: ON_BUSY_REJECT.
Display.Visibility: As a filter: all. Never sent.
IncludeHistory: INCLUDE_HISTORY_ALL.
AgentTool.History: HISTORY_FRESH.
PromptCache.Mode: As the provider does.
ToolChoice.Mode: MODE_AUTO.
InteractionStatus: Never sent.
InstructionMode: INSTRUCTION_MODE_APPEND.
Tool.Effect: It is not known, and counts as an effect.
`

// TestEnumsOfRequests: a value of an enum that says nothing is refused in a request, in
// lists and wherever leaving it out differs from it, unless the enum says what is meant by
// it. Values that nobody has named are refused everywhere.
func TestEnumsOfRequests(t *testing.T) {
	defaults := map[string]string{}
	for line := range strings.SplitSeq(strings.TrimSpace(silentDefaults), "\n") {
		name, text, _ := strings.Cut(line, ": ")
		defaults[name] = text
	}
	used := map[string]bool{}
	fields := 0
	seen := map[protoreflect.FullName]bool{}
	var walk func(m protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] || m.ParentFile().Package() != pkg {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if f.IsMap() {
				if f.MapValue().Message() != nil {
					walk(f.MapValue().Message())
				}
				if f.MapValue().Enum() != nil {
					t.Errorf("%s: a map of enums is looked at by no rule here", f.FullName())
				}
				continue
			}
			if f.Message() != nil {
				walk(f.Message())
			}
			if f.Enum() == nil {
				continue
			}
			fields++
			rules := enumRules(f)
			if !rules.GetDefinedOnly() {
				t.Errorf("%s: values without a name are not refused: defined_only", f.FullName())
			}
			refused := false
			for _, n := range rules.GetNotIn() {
				refused = refused || n == 0
			}
			name := strings.TrimPrefix(string(f.Enum().FullName()), pkg+".")
			switch text, ok := defaults[name]; {
			case refused:
			case f.IsList(), f.HasPresence():
				t.Errorf("%s: the value 0 says nothing and is not refused: not_in: [0]", f.FullName())
			case !ok:
				t.Errorf("%s: the value 0 of %s is neither refused nor has a meaning in the table", f.FullName(), name)
			default:
				used[name] = true
				if got := silentText(t, f.Enum()); !strings.HasPrefix(got, text) {
					t.Errorf("%s: its value 0 says %q in the proto, %q in the table", name, got, text)
				}
			}
		}
	}
	for _, file := range []protoreflect.FileDescriptor{agentdv1.File_agentd_v1_service_proto, agentdv1.File_agentd_v1_sessions_proto} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				walk(methods.Get(j).Input())
			}
		}
	}
	if fields < 10 {
		t.Fatalf("found %d enums in requests", fields)
	}
	for name := range defaults {
		if !used[name] {
			t.Errorf("table: no request has a %s that may be left out so", name)
		}
	}
}

// enumRules are the rules for the values of a field, or for those of its list.
func enumRules(f protoreflect.FieldDescriptor) *validate.EnumRules {
	rules, _ := proto.GetExtension(f.Options(), validate.E_Field).(*validate.FieldRules)
	if f.IsList() {
		return rules.GetRepeated().GetItems().GetEnum()
	}
	return rules.GetEnum()
}

// silentText is the comment of an enum's value 0, on one line.
func silentText(t *testing.T, e protoreflect.EnumDescriptor) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "..", "proto", e.ParentFile().Path()))
	if err != nil {
		t.Fatal(err)
	}
	text := string(source)
	if of, ok := e.Parent().(protoreflect.MessageDescriptor); ok {
		_, text, _ = strings.Cut(text, "message "+string(of.Name())+" {")
	}
	_, text, _ = strings.Cut(text, "enum "+string(e.Name())+" {")
	text, _, ok := strings.Cut(text, string(e.Values().ByNumber(0).Name())+" = 0;")
	if !ok {
		t.Fatalf("%s: its value 0 is not found in %s", e.FullName(), e.ParentFile().Path())
	}
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "//", "")), " ")
}
