package protorules

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// TestAgainstProtovalidate makes messages of each type, with values at and beyond the bounds
// of their rules: what is wrong with them is what protovalidate says, and each rule of the
// protocol is broken at least once.
func TestAgainstProtovalidate(t *testing.T) {
	t.Parallel()
	rules, oracle := both(t)
	for _, name := range slices.Sorted(maps.Keys(rules.messages)) {
		typ, err := protoregistry.GlobalTypes.FindMessageByName(name)
		if err != nil {
			t.Fatal(err)
		}
		unbroken := rulesOf(rules.messages[name])
		r := rand.New(rand.NewPCG(1, 2))
		for round := 0; round < 50 || len(unbroken) > 0 && round < 2000; round++ {
			m := typ.New()
			fill(r, m, 3)
			for _, b := range compare(t, rules, oracle, m.Interface()) {
				delete(unbroken, leaf(b.Path)+" "+b.Rule)
			}
		}
		if len(unbroken) > 0 {
			t.Errorf("no message breaks these rules of %s: %v", name, slices.Sorted(maps.Keys(unbroken)))
		}
	}
}

// FuzzAgainstProtovalidate compares for messages as they come over the wire.
func FuzzAgainstProtovalidate(f *testing.F) {
	rules, oracle := both(f)
	roots := []proto.Message{&agentdv1.RunRequest{}, &agentdv1.CreateTurnRequest{}, &agentdv1.SubmitToolResultsRequest{},
		&agentdv1.CreateSessionRequest{}, &agentdv1.UpdateSessionRequest{}, &agentdv1.SetSharedStateRequest{}}
	r := rand.New(rand.NewPCG(3, 4))
	for i, root := range roots {
		m := root.ProtoReflect().New()
		fill(r, m, 3)
		data, err := proto.Marshal(m.Interface())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), data)
	}
	f.Fuzz(func(t *testing.T, root uint8, data []byte) {
		m := roots[int(root)%len(roots)].ProtoReflect().New().Interface()
		if proto.Unmarshal(data, m) == nil {
			compare(t, rules, oracle, m)
		}
	})
}

// TestMost: no more rules are returned than asked for.
func TestMost(t *testing.T) {
	t.Parallel()
	rules, _ := both(t)
	m := &agentdv1.SubmitToolResultsRequest{Results: make([]*agentdv1.RunRequest_ToolCallResponse, 3)}
	for i := range m.GetResults() {
		m.Results[i] = &agentdv1.RunRequest_ToolCallResponse{}
	}
	for most, want := range []int{0, 1, 2, 3, 4, 5, 5} { // two ids of the request, three of calls
		if got := len(rules.Broken(m, most)); got != want {
			t.Errorf("of at most %d rules %d are returned, want %d", most, got, want)
		}
	}
	if got := rules.Broken(&durationpb.Duration{}, 1); got != nil {
		t.Errorf("a message of another protocol breaks %v", got)
	}
}

// TestUnknownKinds: a rule that the package does not know is refused, not passed over.
func TestUnknownKinds(t *testing.T) {
	t.Parallel()
	for want, rules := range map[string]*validate.FieldRules{
		"string.email":   validate.FieldRules_builder{String: validate.StringRules_builder{Email: new(true)}.Build()}.Build(),
		"string.const":   validate.FieldRules_builder{String: validate.StringRules_builder{MinLen: new(uint64(1)), Const: new("a")}.Build()}.Build(),
		"error parsing":  validate.FieldRules_builder{String: validate.StringRules_builder{Pattern: new("(")}.Build()}.Build(),
		"int32":          validate.FieldRules_builder{Int32: validate.Int32Rules_builder{Gte: new(int32(1))}.Build()}.Build(),
		"cel_expression": validate.FieldRules_builder{CelExpression: []string{"true"}}.Build(),
		"ignore":         validate.FieldRules_builder{Ignore: validate.Ignore_IGNORE_ALWAYS.Enum()}.Build(),
	} {
		refused(t, want, descriptorpb.FieldDescriptorProto_TYPE_STRING, false, rules, nil)
	}
	inverted := validate.Int32Rules_builder{Gte: new(int32(2)), Lte: new(int32(1))}.Build()
	refused(t, "int32.gte_lte: the upper bound is below the lower one", descriptorpb.FieldDescriptorProto_TYPE_INT32, false,
		validate.FieldRules_builder{Int32: inverted}.Build(), nil)
	refused(t, "rules of the kind uint32 are unknown", descriptorpb.FieldDescriptorProto_TYPE_UINT32, false,
		validate.FieldRules_builder{Uint32: &validate.UInt32Rules{}}.Build(), nil)
	unique := validate.RepeatedRules_builder{Unique: new(true)}.Build()
	refused(t, "repeated.unique", descriptorpb.FieldDescriptorProto_TYPE_STRING, true,
		validate.FieldRules_builder{Repeated: unique}.Build(), nil)
	items := validate.RepeatedRules_builder{Items: validate.FieldRules_builder{Required: new(true)}.Build()}.Build()
	refused(t, "required", descriptorpb.FieldDescriptorProto_TYPE_STRING, true,
		validate.FieldRules_builder{Repeated: items}.Build(), nil)
	refused(t, "rules of a whole message", descriptorpb.FieldDescriptorProto_TYPE_STRING, false, nil,
		validate.MessageRules_builder{CelExpression: []string{"true"}}.Build())
}

// refused compiles a message with one field and wants the error to say want.
func refused(t *testing.T, want string, typ descriptorpb.FieldDescriptorProto_Type, list bool,
	ofField *validate.FieldRules, ofMessage *validate.MessageRules,
) {
	t.Helper()
	f := &descriptorpb.FieldDescriptorProto{Name: new("f"), Number: new(int32(1)), Type: &typ, Options: &descriptorpb.FieldOptions{},
		Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
	if list {
		f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	}
	m := &descriptorpb.DescriptorProto{Name: new("M"), Field: []*descriptorpb.FieldDescriptorProto{f}, Options: &descriptorpb.MessageOptions{}}
	if ofField != nil {
		proto.SetExtension(f.Options, validate.E_Field, ofField)
	}
	if ofMessage != nil {
		proto.SetExtension(m.Options, validate.E_Message, ofMessage)
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{Name: new("f.proto"), Package: new("p"), Syntax: new("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{m}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &Rules{messages: map[protoreflect.FullName]*message{}}
	if err := r.compile(file.Messages()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error of a rule that is unknown is %v, want %q", err, want)
	}
}

func both(tb testing.TB) (*Rules, protovalidate.Validator) {
	tb.Helper()
	rules, err := Protocol()
	if err != nil {
		tb.Fatal(err)
	}
	oracle, err := protovalidate.New()
	if err != nil {
		tb.Fatal(err)
	}
	return rules, oracle
}

// compare fails unless both find the same, and returns it.
func compare(t *testing.T, rules *Rules, oracle protovalidate.Validator, m proto.Message) []Violation {
	t.Helper()
	found := rules.Broken(m, math.MaxInt)
	var got []string
	for _, b := range found {
		got = append(got, fmt.Sprintf("%s [%s] most %d, received %s", b, b.Rule, b.Most, show(b.Value)))
	}
	want := wanted(t, oracle, m)
	first := wanted(t, oracle, m, protovalidate.WithFailFast())
	one := rules.Broken(m, 1)
	if len(one) != len(first) {
		t.Fatalf("the first broken rule of %T is %v, want %v", m, one, first)
	}
	if slices.ContainsFunc(want, func(s string) bool { return strings.Contains(s, `["`) }) { // a map has no order
		slices.Sort(got)
		slices.Sort(want)
	} else if len(first) > 0 && (first[0] != want[0] || one[0].String() != found[0].String()) {
		t.Fatalf("the first broken rule of %T is %v, want %s", m, one, first[0])
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%T breaks\n%s\nwant\n%s", m, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return found
}

// wanted is what protovalidate says.
func wanted(t *testing.T, oracle protovalidate.Validator, m proto.Message, opts ...protovalidate.ValidationOption) []string {
	t.Helper()
	err := oracle.Validate(m, opts...)
	broken, ok := errors.AsType[*protovalidate.ValidationError](err)
	if err != nil && !ok {
		t.Fatal(err)
	}
	if err == nil {
		return nil
	}
	var out []string
	for _, b := range broken.Violations {
		most := uint64(0)
		if strings.Contains(b.Proto.GetRuleId(), ".max_") {
			most = b.RuleValue.Uint()
		}
		for _, e := range b.Proto.GetField().GetElements() {
			if key, ok := e.GetSubscript().(*validate.FieldPathElement_StringKey); ok {
				key.StringKey = cut(key.StringKey) // ours are bounded
			}
		}
		out = append(out, fmt.Sprintf("%s: %s [%s] most %d, received %s", protovalidate.FieldPathString(b.Proto.GetField()),
			b.Proto.GetMessage(), b.Proto.GetRuleId(), most, show(b.FieldValue)))
	}
	return out
}

func show(v protoreflect.Value) string {
	switch v := v.Interface().(type) {
	case string:
		return fmt.Sprintf("%.40q of %d", v, len(v))
	case protoreflect.List:
		return fmt.Sprintf("%d items", v.Len())
	case protoreflect.Map:
		return fmt.Sprintf("%d entries", v.Len())
	case protoreflect.Message:
		d, _ := v.Interface().(*durationpb.Duration)
		return fmt.Sprintf("%d.%d", d.GetSeconds(), d.GetNanos())
	default:
		return fmt.Sprintf("%T %v", v, v)
	}
}

// leaf is a path without the places in lists and maps.
func leaf(path string) string {
	name, _, _ := strings.Cut(path, "[")
	return name
}

// rulesOf names each rule of a message by its field and id.
func rulesOf(m *message) map[string]bool {
	names := map[string]bool{}
	for _, o := range m.required {
		names[string(o.Name())+" required"] = true
	}
	for _, f := range m.fields {
		if f.required {
			names[string(f.desc.Name())+" required"] = true
		}
		for _, r := range slices.Concat(f.whole, f.keys, f.each) {
			names[string(f.desc.Name())+" "+r.id] = true
		}
	}
	return names
}

// fill sets random fields of m, at and beyond the bounds of their rules.
func fill(r *rand.Rand, m protoreflect.Message, depth int) {
	for i := range m.Descriptor().Fields().Len() {
		d := m.Descriptor().Fields().Get(i)
		if r.IntN(3) == 0 || d.ContainingOneof() != nil && !d.ContainingOneof().IsSynthetic() && r.IntN(3) > 0 {
			continue
		}
		rules, _ := proto.GetExtension(d.Options(), validate.E_Field).(*validate.FieldRules)
		switch {
		case d.IsMap():
			entries := m.Mutable(d).Map()
			for i := range length(r, rules.GetMap().GetMaxPairs()) {
				key := value(r, d.MapKey(), rules.GetMap().GetKeys(), nil, 0)
				if i > 0 {
					key = protoreflect.ValueOfString(key.String() + fmt.Sprint(i))
				}
				entries.Set(key.MapKey(), value(r, d.MapValue(), rules.GetMap().GetValues(), entries.NewValue, depth-1))
			}
		case d.IsList():
			list := m.Mutable(d).List()
			for range length(r, rules.GetRepeated().GetMaxItems()) {
				list.Append(value(r, d, rules.GetRepeated().GetItems(), list.NewElement, depth-1))
			}
		default:
			m.Set(d, value(r, d, rules, func() protoreflect.Value { return m.NewField(d) }, depth-1))
		}
	}
}

// length is that of a list or map, seldom at and beyond its bound.
func length(r *rand.Rand, most uint64) int {
	if n := r.IntN(20); n < 3 {
		return int(most) + n - 1
	}
	return r.IntN(3)
}

func value(r *rand.Rand, d protoreflect.FieldDescriptor, rules *validate.FieldRules, empty func() protoreflect.Value, depth int) protoreflect.Value {
	switch d.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text(r, rules.GetString()))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(make([]byte, r.IntN(3)))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(r.IntN(d.Enum().Values().Len()+3) - 1))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(pick(r, rules.GetInt32().GetGte(), rules.GetInt32().GetLte(), math.MinInt32, math.MaxInt32))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(pick(r, rules.GetInt64().GetGte(), rules.GetInt64().GetLte(), math.MinInt64, math.MaxInt64))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(pick(r, rules.GetDouble().GetGte(), rules.GetDouble().GetLte(),
			rules.GetDouble().GetGt(), math.SmallestNonzeroFloat64, math.NaN(), math.Inf(1), math.Inf(-1), 0.5))
	case protoreflect.MessageKind:
		return messageOf(r, rules, empty, depth)
	default:
		return d.Default()
	}
}

func messageOf(r *rand.Rand, rules *validate.FieldRules, empty func() protoreflect.Value, depth int) protoreflect.Value {
	v := empty()
	switch m := v.Message().Interface().(type) {
	case *durationpb.Duration:
		bound := pick(r, rules.GetDuration().GetGte().GetSeconds(), rules.GetDuration().GetLte().GetSeconds(), 1<<62, -1<<62)
		m.Seconds, m.Nanos = bound, int32(r.IntN(3)-1)
	default:
		if depth > 0 && strings.HasPrefix(string(v.Message().Descriptor().FullName()), "agentd.") {
			fill(r, v.Message(), depth)
		}
	}
	return v
}

// pick is one of values, or a neighbor of it.
func pick[T int32 | int64 | float64](r *rand.Rand, values ...T) T {
	return values[r.IntN(len(values))] + T(r.IntN(3)-1)
}

// text is a string as long as a rule allows, shorter or longer by one, of one or two bytes
// a character, or one that fits a pattern.
func text(r *rand.Rand, rules *validate.StringRules) string {
	bounds := []uint64{0, 1, 2, rules.GetMaxLen(), rules.GetMaxBytes(), rules.GetMaxBytes() / 2}
	n := bounds[r.IntN(len(bounds))] + uint64(r.IntN(3))
	if n > 70_000 && r.IntN(3) > 0 {
		n = 3
	}
	switch r.IntN(4) {
	case 0:
		return "text/plain"
	case 1:
		return strings.Repeat("é", int(n))
	default:
		return strings.Repeat("a", max(int(n)-1, 0))
	}
}

// TestLongKey: the path to what is wrong with a key of a megabyte is short, and is text.
func TestLongKey(t *testing.T) {
	rules, _ := both(t)
	key := strings.Repeat("naïve ", 150_000)
	broken := rules.Broken(&agentdv1.CreateSessionRequest{Labels: map[string]string{key: "x"}}, 10)
	if len(broken) == 0 {
		t.Fatal("a long key of a label is fine")
	}
	for _, b := range broken {
		if len(b.Path) > 2*maxKey || !strings.HasPrefix(b.Path, `labels["naïve naïve `) || !strings.HasSuffix(b.Path, `…"]`) {
			t.Errorf("the path is %.200s, of %d bytes", b.Path, len(b.Path))
		}
	}
}
