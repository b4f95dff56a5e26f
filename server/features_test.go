package server

import (
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// A feature is what the first version of the protocol does not have.
func TestFeatures(t *testing.T) {
	data, err := os.ReadFile("../proto/baseline.binpb")
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &set); err != nil {
		t.Fatal(err)
	}
	old, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(features) || len(slices.Compact(slices.Clone(features))) != len(features) {
		t.Errorf("not sorted, or one comes twice: %q", features)
	}
	for _, f := range features {
		if _, err := old.FindDescriptorByName(protoreflect.FullName("agentd.v1." + f)); err == nil {
			t.Errorf("%s is no feature: each server knows it", f)
		}
	}
	for name := range oldMessages {
		d, err := old.FindDescriptorByName(protoreflect.FullName("agentd.v1." + name))
		if err != nil {
			t.Errorf("%s is none of the first messages: %v", name, err)
			continue
		}
		m := d.(protoreflect.MessageDescriptor)
		for i := range m.Fields().Len() {
			if next := m.Fields().Get(i).Message(); next != nil && strings.HasPrefix(string(next.FullName()), "agentd.") {
				if short := strings.TrimPrefix(string(next.FullName()), "agentd.v1."); !oldMessages[protoreflect.Name(short)] {
					t.Errorf("%s is one of the first messages and is not listed", short)
				}
			}
		}
	}
	for _, want := range []string{
		"RunRequest.ExecuteRequest.on_busy", "RunRequest.interaction_response", "RunRequest.ToolCallResponse.parts", "Tool.deferred",
		"LlmAgent.output_schema", "GenerationSettings.seed", "Part.inline", "SessionService.CreateTurn", "CreateSessionRequest.labels",
	} {
		if !slices.Contains(features, want) {
			t.Errorf("%s is no feature", want)
		}
	}
}
