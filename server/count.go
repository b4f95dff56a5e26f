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
// values, before it is decoded. What is malformed is left to the decoder.
func countBinary(data []byte, m protoreflect.MessageDescriptor) error {
	left := maxValues
	return countFields(data, m.Fields(), &left, maxDepth)
}

func countFields(data []byte, fields protoreflect.FieldDescriptors, left *int, depth int) error {
	if depth == 0 {
		return nil
	}
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil
		}
		size := protowire.ConsumeFieldValue(num, typ, data[n:])
		if size < 0 {
			return nil
		}
		value := data[n : n+size]
		data = data[n+size:]
		if *left--; *left < 0 {
			return errTooManyValues
		}
		field := fields.ByNumber(num)
		if typ != protowire.BytesType || field == nil || field.Message() == nil {
			continue
		}
		inner, n := protowire.ConsumeBytes(value)
		if n < 0 {
			return nil
		}
		if err := countFields(inner, field.Message().Fields(), left, depth-1); err != nil {
			return err
		}
	}
	return nil
}

// countJSON does the same for JSON: each value but the first is behind one of
// these characters.
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
