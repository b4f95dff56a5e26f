package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/apzuk3/agentd/session/fault"
)

// A request with a field that this server does not know is refused: its client is newer
// and expects something to happen that will not. Replies stay open: a client skips what
// it does not know. What is within a google.protobuf.Struct or Value is data, whose
// names are the client's own.

// unknownFieldError is a field of a request that this server does not know, or that has
// another type here. It is an error.
type unknownFieldError struct {
	name   string // as the client has written it, or "field 99"
	of     string // the name of its message
	place  string // the path to its message, "" for the request itself
	maybe  string // another reason than a newer client, "" for none
	number protowire.Number
}

func (u *unknownFieldError) Error() string {
	text := fmt.Sprintf("this server does not know %s of %s", u.name, u.of)
	if u.place != "" {
		text += ", at " + u.place
	}
	return text + "; it is older than the client" + u.maybe
}

// fault is the error for the client.
func (u *unknownFieldError) fault() *fault.Error {
	path := strings.Trim(u.name, "`")
	if u.place != "" {
		path = u.place + "." + path
	}
	return fault.Errorf(codeInvalid, "%v", u).Breaking(path, fault.RuleUnknown)
}

// within puts a step before the place.
func (u *unknownFieldError) within(step string) *unknownFieldError {
	if u.place != "" {
		step += "." + u.place
	}
	u.place = step
	return u
}

// unknownBinary is a field whose number, or whose type, m does not have.
func unknownBinary(num protowire.Number, typ protowire.Type, m protoreflect.MessageDescriptor) *unknownFieldError {
	name := fmt.Sprintf("field %d", num)
	if m.Fields().ByNumber(num) != nil {
		name += fmt.Sprintf(" with wire type %d", typ)
	}
	return &unknownFieldError{name: name, of: string(m.FullName()), number: num}
}

// fitsWire reports whether a field may have this wire type. The decoder takes a field
// with another type for an unknown one and skips it.
func fitsWire(field protoreflect.FieldDescriptor, typ protowire.Type) bool {
	switch field.Kind() {
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return typ == protowire.BytesType
	case protoreflect.GroupKind:
		return typ == protowire.StartGroupType
	case protoreflect.DoubleKind, protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		return typ == protowire.Fixed64Type || field.IsList() && typ == protowire.BytesType
	case protoreflect.FloatKind, protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind:
		return typ == protowire.Fixed32Type || field.IsList() && typ == protowire.BytesType
	default:
		return typ == protowire.VarintType || field.IsList() && typ == protowire.BytesType
	}
}

// step returns the place of a field, of which the message in data already holds some.
func step(data []byte, field protoreflect.FieldDescriptor) string {
	if !field.IsList() && !field.IsMap() {
		return string(field.Name())
	}
	count := 0
	for len(data) > 0 {
		num, _, n := protowire.ConsumeField(data)
		if n < 0 {
			break
		}
		if num == field.Number() {
			count++
		}
		data = data[n:]
	}
	return fmt.Sprintf("%s[%d]", field.Name(), count)
}

// unknownJSON finds the first name in a message that m does not have, nil if there is
// none or if the message is no JSON.
func unknownJSON(data []byte, m protoreflect.MessageDescriptor) *unknownFieldError {
	if !json.Valid(data) {
		return nil
	}
	w := nameWalk{dec: json.NewDecoder(bytes.NewReader(data))}
	w.dec.UseNumber()
	return w.message(m, maxDepth)
}

// nameWalk reads valid JSON. What is no JSON of its message is left to the decoder.
type nameWalk struct{ dec *json.Decoder }

// open reads a token and reports whether it opens an object or a list as wanted. It
// skips any other value.
func (w nameWalk) open(want json.Delim) bool {
	token, err := w.dec.Token()
	if err != nil || token == want {
		return err == nil
	}
	if token == json.Delim('{') || token == json.Delim('[') {
		w.skip(1)
	}
	return false
}

// skip reads to the end of n objects and lists, or one value for 0.
func (w nameWalk) skip(depth int) {
	for {
		token, err := w.dec.Token()
		if err != nil {
			return
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth <= 0 {
			return
		}
	}
}

func (w nameWalk) message(m protoreflect.MessageDescriptor, depth int) *unknownFieldError {
	if depth == 0 || m == nil || strings.HasPrefix(string(m.FullName()), "google.protobuf.") {
		w.skip(0)
		return nil
	}
	if !w.open('{') {
		return nil
	}
	for w.dec.More() {
		token, _ := w.dec.Token()
		name, ok := token.(string)
		if !ok { // the decoder says what is wrong
			return nil
		}
		field := m.Fields().ByJSONName(name)
		if field == nil {
			field = m.Fields().ByTextName(name)
		}
		if field == nil {
			return &unknownFieldError{name: "`" + plain(name) + "`", of: string(m.Name()),
				maybe: ", or the name is misspelled"}
		}
		if u := w.field(field, depth-1); u != nil {
			return u
		}
	}
	_, _ = w.dec.Token() // its end
	return nil
}

func (w nameWalk) field(field protoreflect.FieldDescriptor, depth int) *unknownFieldError {
	name := string(field.Name())
	switch {
	case field.IsMap():
		if !w.open('{') {
			return nil
		}
		for w.dec.More() {
			key, _ := w.dec.Token()
			if u := w.message(field.MapValue().Message(), depth); u != nil {
				return u.within(fmt.Sprintf("%s[%s]", name, quote(fmt.Sprint(key))))
			}
		}
	case field.IsList():
		if !w.open('[') {
			return nil
		}
		for i := 0; w.dec.More(); i++ {
			if u := w.message(field.Message(), depth); u != nil {
				return u.within(name + "[" + strconv.Itoa(i) + "]")
			}
		}
	default:
		if u := w.message(field.Message(), depth); u != nil {
			return u.within(name)
		}
		return nil
	}
	_, _ = w.dec.Token() // the end of the map or list
	return nil
}

// plain is the beginning of a name, with what cannot be printed escaped.
func plain(name string) string {
	rest := ""
	if len(name) > maxQuoted {
		name, rest = name[:maxQuoted], "…"
	}
	quoted := strconv.Quote(name)
	return quoted[1:len(quoted)-1] + rest
}
