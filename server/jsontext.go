package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/apzuk3/agentd/session/fault"
)

// maxJSONLevels is how deeply a value in JSON text may nest, itself included. It is as
// much as a request can hold as a google.protobuf.Struct, whose levels are three
// messages each: state is sent to clients in that form too.
const maxJSONLevels = 32

// jsonText reads a value in JSON text that a caller sends, with its numbers as they are
// written, as json.Number. left is how many values the request may hold still. Its errors
// name the field.
func jsonText(field, text string, left *int) (any, *fault.Error) {
	refuse := func(format string, args ...any) *fault.Error {
		return fault.Errorf(codeInvalid, "%s: %s", field, fmt.Sprintf(format, args...)).
			Breaking(field, fault.RuleFormat)
	}
	r := jsonReader{dec: json.NewDecoder(strings.NewReader(text)), left: left}
	r.dec.UseNumber()
	value, err := r.value(maxJSONLevels)
	if err == nil {
		err = r.end()
	}
	if err == nil {
		err = halfPair(text)
	}
	var twice *twiceError
	switch {
	case err == nil:
		return value, nil
	case errors.Is(err, errTooManyValues):
		return nil, fault.Errorf(codeLimit,
			"%s: the request holds more than %d values, nested ones included; more are not allowed", field, maxValues).
			Breaking(field, fault.RuleRange).Over("message_values", maxValues, 0)
	case errors.Is(err, errTooDeep):
		return nil, fault.Errorf(codeLimit, "%s is nested too deeply: at most %d levels are allowed", field,
			maxJSONLevels).
			Breaking(field, fault.RuleRange).Over("json_depth", maxJSONLevels, 0)
	case errors.As(err, &twice):
		return nil, refuse("%s is there twice", twice)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, refuse("the JSON text ends too early, after %d bytes", len(text))
	default:
		return nil, refuse("it is not JSON: %v, about byte %d", err, r.dec.InputOffset())
	}
}

var (
	errTooDeep = errors.New("too deep")
	errHalf    = errors.New("a text with half of a surrogate pair, which is no Unicode")
)

// twiceError is a name that two members of an object have.
type twiceError struct{ path string }

func (e *twiceError) Error() string { return e.path }

// below puts a step before the path.
func below(step string, err error) error {
	if twice, ok := errors.AsType[*twiceError](err); ok {
		return &twiceError{step + twice.path}
	}
	return err
}

type jsonReader struct {
	dec  *json.Decoder
	left *int
}

// value reads one value. Its depth is bounded, so that it may call itself.
func (r jsonReader) value(levels int) (any, error) {
	token, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	if *r.left--; *r.left < 0 {
		return nil, errTooManyValues
	}
	delim, opens := token.(json.Delim)
	switch {
	case !opens:
		return token, nil
	case levels == 0:
		return nil, errTooDeep
	case delim == '{':
		return r.object(levels - 1)
	default:
		return r.list(levels - 1)
	}
}

func (r jsonReader) object(levels int) (any, error) {
	object := map[string]any{}
	for r.dec.More() {
		token, err := r.dec.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string) // a decoder gives no other token for a name
		step := "[" + quote(name) + "]"
		if _, twice := object[name]; twice {
			return nil, &twiceError{step}
		}
		if object[name], err = r.value(levels); err != nil {
			return nil, below(step, err)
		}
	}
	_, err := r.dec.Token()
	return object, err
}

func (r jsonReader) list(levels int) (any, error) {
	list := []any{}
	for r.dec.More() {
		value, err := r.value(levels)
		if err != nil {
			return nil, below("["+strconv.Itoa(len(list))+"]", err)
		}
		list = append(list, value)
	}
	_, err := r.dec.Token()
	return list, err
}

// end refuses what follows the value.
func (r jsonReader) end() error {
	switch _, err := r.dec.Token(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	default:
		return errors.New("something follows the value")
	}
}

// halfPair finds a half of a surrogate pair in valid JSON: the decoder has another
// character in its place.
func halfPair(text string) error {
	data := []byte(text)
	for at := bytes.IndexByte(data, '\\'); at >= 0; at = bytes.IndexByte(data, '\\') {
		r, n := escaped(data[at:])
		data = data[at+n:]
		if !utf16.IsSurrogate(r) {
			continue
		}
		low, n := escaped(data)
		if utf16.DecodeRune(r, low) == '\uFFFD' {
			return errHalf
		}
		data = data[n:]
	}
	return nil
}

// escaped is the code unit of an escape that data begins with, -1 for none, and the
// bytes of the escape.
func escaped(data []byte) (rune, int) {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return -1, min(len(data), 2)
	}
	n, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	if err != nil { // not reached: the JSON is valid
		return -1, 2
	}
	return rune(n), 6
}
