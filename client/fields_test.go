package client

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// hiddenFields are fields that this package has no field for, and why not.
var hiddenFields = map[string]string{
	"RunResponse.display":                 "the client asks for none",
	"RunResponse.StateUpdate.state_delta": "state_delta_json has the same",
	"Provider.key_header":                 "WithProviderKey sets it",
}

// TestFieldsOfReplies: whatever a server says can be read without the generated package.
// Of each message each field is left out once, and what the package makes of the message
// has to show it.
func TestFieldsOfReplies(t *testing.T) {
	seen := 0
	check := func(m proto.Message, read func(proto.Message) any) {
		name := string(m.ProtoReflect().Descriptor().FullName())
		fill(m.ProtoReflect(), 4)
		whole := read(m)
		fields := m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			part := proto.Clone(m)
			if !part.ProtoReflect().Has(f) { // another member of its oneof
				part = proto.Clone(m)
				setField(part.ProtoReflect(), f, 4)
				if cmp.Equal(whole, read(part), visible...) {
					t.Errorf("%s.%s cannot be read", name, f.Name())
				}
				continue
			}
			part.ProtoReflect().Clear(f)
			seen++
			if _, hidden := hiddenFields[name[len("agentd.v1."):]+"."+string(f.Name())]; !hidden && cmp.Equal(whole, read(part), visible...) {
				t.Errorf("%s.%s cannot be read", name, f.Name())
			}
		}
	}
	check(&agentdv1.Session{}, func(m proto.Message) any { return sessionOf(m.(*agentdv1.Session)) })
	check(&agentdv1.Turn{}, func(m proto.Message) any { return turnOf(m.(*agentdv1.Turn)) })
	check(&agentdv1.Interaction{}, func(m proto.Message) any { return InteractionOf(m.(*agentdv1.Interaction)) })
	check(&agentdv1.Resolution{}, func(m proto.Message) any { return ResolutionOf(m.(*agentdv1.Resolution)) })
	check(&agentdv1.Usage{}, func(m proto.Message) any { return UsageOf(m.(*agentdv1.Usage)) })
	check(&agentdv1.Budget{}, func(m proto.Message) any { return budgetOf(m.(*agentdv1.Budget)) })
	check(&agentdv1.Part{}, func(m proto.Message) any { return PartOf(m.(*agentdv1.Part)) })
	check(&agentdv1.CancelReceipt{}, func(m proto.Message) any { return receiptOf(m.(*agentdv1.CancelReceipt)) })
	check(&agentdv1.GenerationSettings{}, func(m proto.Message) any { return generationOf(m.(*agentdv1.GenerationSettings)) })
	check(&agentdv1.ModelCallDetails{}, func(m proto.Message) any { return modelCallOf(m.(*agentdv1.ModelCallDetails)) })
	check(&agentdv1.Model{}, func(m proto.Message) any { return modelOf(m.(*agentdv1.Model)) })
	check(&agentdv1.ModelPrice{}, func(m proto.Message) any { return modelPriceOf(m.(*agentdv1.ModelPrice)) })
	check(&agentdv1.PriceTier{}, func(m proto.Message) any { return priceTierOf(m.(*agentdv1.PriceTier)) })
	check(&agentdv1.CacheWritePrice{}, func(m proto.Message) any { return cacheWriteOf(m.(*agentdv1.CacheWritePrice)) })
	check(&agentdv1.Provider{}, func(m proto.Message) any { return providerOf(m.(*agentdv1.Provider)) })
	check(&agentdv1.GetCapabilitiesResponse{}, func(m proto.Message) any { return capabilitiesOf(m.(*agentdv1.GetCapabilitiesResponse)) })
	check(&agentdv1.SharedStateEntry{}, func(m proto.Message) any { return sharedOf(m.(*agentdv1.SharedStateEntry)) })

	kinds := (&agentdv1.RunResponse{}).ProtoReflect().Descriptor().Oneofs().ByName("response").Fields()
	for i := range kinds.Len() {
		kind := kinds.Get(i)
		if kind.Name() == "heartbeat" {
			continue
		}
		envelope := &agentdv1.RunResponse{TurnId: "turn"}
		check(envelope.ProtoReflect().Mutable(kind).Message().Interface(), func(m proto.Message) any {
			e := &agentdv1.RunResponse{TurnId: "turn"}
			e.ProtoReflect().Set(kind, protoreflect.ValueOfMessage(m.ProtoReflect()))
			return EventOf(e)
		})
	}
	if seen < 150 {
		t.Errorf("only %d fields were looked at", seen)
	}
}

// visible compares what a program can see.
var visible = []cmp.Option{
	cmpopts.IgnoreUnexported(
		SessionInfo{}, Turn{}, Interaction{}, Resolution{}, Part{}, ModelCall{}, ModelInfo{}, Capabilities{}, Event{}, UnknownEvent{},
	),
}

// fill sets each field, of messages within messages to the given depth, and of each
// oneof the first member.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if o := f.ContainingOneof(); o != nil && m.WhichOneof(o) != nil {
			continue
		}
		setField(m, f, depth)
	}
}

func setField(m protoreflect.Message, f protoreflect.FieldDescriptor, depth int) {
	if depth == 0 {
		return
	}
	switch {
	case f.IsMap():
		entries := m.Mutable(f).Map()
		entries.Set(protoreflect.ValueOfString("key").MapKey(), protoreflect.ValueOfString("value"))
	case f.IsList():
		list := m.Mutable(f).List()
		if f.Message() == nil {
			list.Append(one(f))
			return
		}
		item := list.NewElement()
		fillMessage(item.Message(), depth-1)
		list.Append(item)
	case f.Message() != nil:
		fillMessage(m.Mutable(f).Message(), depth-1)
	default:
		m.Set(f, one(f))
	}
}

func fillMessage(m protoreflect.Message, depth int) {
	switch w := m.Interface().(type) {
	case *timestamppb.Timestamp:
		proto.Merge(w, timestamppb.New(time.Unix(1_000, 0)))
	case *durationpb.Duration:
		proto.Merge(w, durationpb.New(time.Second))
	case *structpb.Struct:
		w.Fields = map[string]*structpb.Value{"key": structpb.NewStringValue("value")}
	default:
		fill(m, depth)
	}
}

// one is a value that is not the default, and JSON where it is a text.
func one(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(7)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(7)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(7)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(0.5)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("bytes"))
	default:
		return protoreflect.ValueOfString(`{"key":"json"}`)
	}
}
