package server

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxValues is how many values one request may hold, nested ones included. An
// empty agent or tool takes two bytes on the wire and a hundred in memory, so
// the size of a message alone does not bound what decoding it costs.
const maxValues = 200_000

var errTooManyValues = errors.New("too many values")

// countBinary refuses a message in protobuf's wire form that holds too many
// values, before it is decoded, or, unless it is open, a field that m does not have. What
// is malformed is left to the decoder.
func countBinary(data []byte, m protoreflect.MessageDescriptor, open bool) error {
	left := maxValues
	return countFields(data, m, &left, maxDepth, open)
}

func countFields(data []byte, m protoreflect.MessageDescriptor, left *int, depth int, open bool) error {
	if depth == 0 {
		return nil
	}
	for whole := data; len(data) > 0; {
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil
		}
		size := protowire.ConsumeFieldValue(num, typ, data[n:])
		if size < 0 {
			return nil
		}
		before, value := whole[:len(whole)-len(data)], data[n:n+size]
		data = data[n+size:]
		if *left--; *left < 0 {
			return errTooManyValues
		}
		field := m.Fields().ByNumber(num)
		if !open && (field == nil || !fitsWire(field, typ)) {
			return unknownBinary(num, typ, m)
		}
		if typ != protowire.BytesType || field == nil || field.Message() == nil {
			continue
		}
		inner, n := protowire.ConsumeBytes(value)
		if n < 0 {
			return nil
		}
		if err := countFields(inner, field.Message(), left, depth-1, open); err != nil {
			if u, ok := errors.AsType[*unknownFieldError](err); ok {
				_ = u.within(step(before, field))
			}
			return err
		}
	}
	return nil
}

// countJSON counts the values of JSON: each value but the first follows one of these
// characters.
func countJSON(data []byte) error {
	left, inString := maxValues, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && (c == ',' || c == '[' || c == '{'):
			if left--; left < 0 {
				return errTooManyValues
			}
		}
	}
	return nil
}
