package protorules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

const ruleRequired = "required"

func compileProtocol() (*Rules, error) {
	r := &Rules{messages: map[protoreflect.FullName]*message{}}
	var errs []error
	protocol := agentdv1.File_agentd_v1_service_proto.Package()
	protoregistry.GlobalFiles.RangeFilesByPackage(protocol, func(file protoreflect.FileDescriptor) bool {
		errs = append(errs, r.compile(file.Messages()))
		return true
	})
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("rules of the protocol: %w", err)
	}
	return r, nil
}

// compile adds the rules of messages and of those that are declared within them.
func (r *Rules) compile(messages protoreflect.MessageDescriptors) error {
	var errs []error
	for i := range messages.Len() {
		d := messages.Get(i)
		if d.IsMapEntry() {
			continue
		}
		if err := r.compileMessage(r.rulesOf(d), d); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", d.FullName(), err))
		}
		errs = append(errs, r.compile(d.Messages()))
	}
	return errors.Join(errs...)
}

// rulesOf returns the rules of a message, which may be compiled later; nil for a message
// of another protocol.
func (r *Rules) rulesOf(d protoreflect.MessageDescriptor) *message {
	if d == nil || d.ParentFile().Package() != agentdv1.File_agentd_v1_service_proto.Package() {
		return nil
	}
	m := r.messages[d.FullName()]
	if m == nil {
		m = &message{}
		r.messages[d.FullName()] = m
	}
	return m
}

func (r *Rules) compileMessage(m *message, d protoreflect.MessageDescriptor) error {
	if proto.HasExtension(d.Options(), validate.E_Message) {
		return errors.New("rules of a whole message are unknown")
	}
	for i := range d.Oneofs().Len() {
		required, err := requiredOneof(d.Oneofs().Get(i))
		if err != nil {
			return err
		}
		if required {
			m.required = append(m.required, d.Oneofs().Get(i))
		}
	}
	for i := range d.Fields().Len() {
		f, err := r.compileField(d.Fields().Get(i))
		if err != nil {
			return fmt.Errorf("%s: %w", d.Fields().Get(i).Name(), err)
		}
		if f.required || f.whole != nil || f.keys != nil || f.each != nil || f.message != nil {
			m.fields = append(m.fields, f)
		}
	}
	return nil
}

func requiredOneof(d protoreflect.OneofDescriptor) (bool, error) {
	rules, _ := proto.GetExtension(d.Options(), validate.E_Oneof).(*validate.OneofRules)
	o := optionsOf("oneof", rules.ProtoReflect())
	required, ok := o.get("required")
	if err := o.rest(); err != nil {
		return false, fmt.Errorf("%s: %w", d.Name(), err)
	}
	return ok && required.Bool(), nil
}

func (r *Rules) compileField(d protoreflect.FieldDescriptor) (*field, error) {
	f := &field{desc: d}
	rules, _ := proto.GetExtension(d.Options(), validate.E_Field).(*validate.FieldRules)
	o := optionsOf("", rules.ProtoReflect())
	if required, ok := o.get(ruleRequired); ok {
		f.required = required.Bool()
	}
	var err error
	switch {
	case d.IsMap():
		f.message = r.rulesOf(d.MapValue().Message())
		err = f.compileMap(o)
	case d.IsList():
		f.message = r.rulesOf(d.Message())
		err = f.compileList(o)
	default:
		f.message = r.rulesOf(d.Message())
		f.whole, err = rulesOfValue(d, o)
	}
	f.optional = d.HasPresence() || !slices.ContainsFunc(f.whole, func(r rule) bool { return r.breaksLeftOut(d) })
	return f, errors.Join(err, o.rest())
}

// breaksLeftOut says whether a field without presence breaks the rule when it is left out.
func (r rule) breaksLeftOut(d protoreflect.FieldDescriptor) bool {
	if d.IsList() || d.IsMap() {
		return r.most == 0
	}
	return r.breaks(d.Default())
}

func (f *field) compileList(of *options) error {
	o, ok := of.within("repeated")
	if !ok {
		return nil
	}
	f.whole = sizes(o, items)
	var err error
	if each, ok := o.get("items"); ok {
		f.each, err = rulesOfElement(f.desc, each.Message())
	}
	return errors.Join(err, o.rest())
}

func (f *field) compileMap(of *options) error {
	o, ok := of.within("map")
	if !ok {
		return nil
	}
	f.whole = sizes(o, entries)
	if f.desc.MapKey().Kind() != protoreflect.StringKind {
		return fmt.Errorf("keys of kind %s are unknown", f.desc.MapKey().Kind())
	}
	var ofKeys, ofValues error
	if keys, ok := o.get("keys"); ok {
		f.keys, ofKeys = rulesOfElement(f.desc.MapKey(), keys.Message())
	}
	if values, ok := o.get("values"); ok {
		f.each, ofValues = rulesOfElement(f.desc.MapValue(), values.Message())
	}
	return errors.Join(ofKeys, ofValues, o.rest())
}

// rulesOfElement are the rules of an item of a list, or of a key or value of a map.
func rulesOfElement(d protoreflect.FieldDescriptor, rules protoreflect.Message) ([]rule, error) {
	o := optionsOf("", rules)
	compiled, err := rulesOfValue(d, o)
	return compiled, errors.Join(err, o.rest())
}

// options are those of one kind, such as validate.StringRules. Each must be asked for.
type options struct {
	kind string // as it stands in the ids of rules; "" for validate.FieldRules
	set  protoreflect.Message
	read map[protoreflect.Name]bool
}

func optionsOf(kind string, set protoreflect.Message) *options {
	return &options{kind: kind, set: set, read: map[protoreflect.Name]bool{}}
}

// get returns an option, and whether it is set.
func (o *options) get(name string) (protoreflect.Value, bool) {
	d := o.set.Descriptor().Fields().ByName(protoreflect.Name(name))
	if d == nil || !o.set.Has(d) {
		return protoreflect.Value{}, false
	}
	o.read[d.Name()] = true
	return o.set.Get(d), true
}

// within returns the options of a kind, and whether there are any.
func (o *options) within(kind string) (*options, bool) {
	set, ok := o.get(kind)
	if !ok {
		return nil, false
	}
	return optionsOf(kind, set.Message()), true
}

// rest is an error when an option is set that nobody has asked for.
func (o *options) rest() error {
	var unknown []string
	o.set.Range(func(d protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if d.IsExtension() || !o.read[d.Name()] {
			unknown = append(unknown, strings.TrimPrefix(o.kind+"."+string(d.Name()), "."))
		}
		return true
	})
	if n := len(o.set.GetUnknown()); n > 0 {
		unknown = append(unknown, fmt.Sprintf("%d bytes of unknown options", n))
	}
	if unknown == nil {
		return nil
	}
	return fmt.Errorf("rules of an unknown kind: %s", strings.Join(unknown, ", "))
}
