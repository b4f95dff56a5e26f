package client

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// stateText is a key of session state, or all of it, as JSON text, with every number as
// encoding/json writes it.
func stateText(v any) (json.RawMessage, error) {
	text, err := marshalJSON(v)
	return json.RawMessage(text), err
}

// stateObject is stateText of what has to be an object.
func stateObject(v any) (string, error) {
	text, err := stateText(v)
	if err != nil {
		return "", err
	}
	if text[0] != '{' {
		return "", fmt.Errorf("state must be a map with string keys or a struct, got %T", v)
	}
	return string(text), nil
}

// valueOf decodes JSON text as encoding/json would, but for numbers that a float64 does
// not hold: those are of type json.Number.
func valueOf(text json.RawMessage) any {
	v, err := decodeNumbers(text)
	if err != nil {
		return nil // not reached: keysOf, or marshalJSON, has made it
	}
	return exactNumbers(v)
}

// exactNumbers replaces each json.Number in v that a float64 holds.
func exactNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = exactNumbers(value)
		}
	case []any:
		for i, value := range v {
			v[i] = exactNumbers(value)
		}
	case json.Number:
		if f, err := v.Float64(); err == nil && holds(f, v.String()) {
			return f
		}
	}
	return v
}

// holds reports whether f says all of a number of JSON: it is an integer that f is
// exactly, or what encoding/json writes for f has the same digits.
func holds(f float64, text string) bool {
	if digitsOf(text) == digitsOf(strconv.FormatFloat(f, 'e', -1, 64)) {
		return true
	}
	whole, ok := new(big.Int).SetString(text, 10) // short, since f is finite
	if !ok {
		return false
	}
	held, _ := big.NewFloat(f).Int(nil)
	return held.Cmp(whole) == 0
}

// decimal is a number without its sign: 0.digits times 10 to the power of exp.
type decimal struct {
	digits string // the first and the last one are not 0; "" is 0
	exp    int64
}

// digitsOf reads a number of JSON. One with an exponent beyond 32 bits is none that
// a float64 has.
func digitsOf(text string) decimal {
	mantissa, power, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(text, "-")), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return decimal{}
	}
	exp := int64(len(whole)) - int64(len(whole)+len(fraction)-len(digits))
	if power != "" {
		n, err := strconv.ParseInt(power, 10, 32)
		if err != nil {
			return decimal{digits: text}
		}
		exp += n
	}
	return decimal{strings.TrimRight(digits, "0"), exp}
}

// stateValue is the value of a key as a StateUpdate has it: one of both.
type stateValue struct {
	text  json.RawMessage
	value *structpb.Value
}

func (v stateValue) isNull() bool {
	if v.value != nil {
		_, null := v.value.GetKind().(*structpb.Value_NullValue)
		return null
	}
	return isNull(v.text)
}

// decoded is a copy of the value: see valueOf.
func (v stateValue) decoded() any {
	if v.value != nil {
		return v.value.AsInterface()
	}
	return valueOf(v.text)
}

// keysOf are the keys of a StateUpdate. The text counts where there is one; a Struct says
// the same where there is none, but a number that JSON does not have, which leaves out the
// key.
func keysOf(u *agentdv1.RunResponse_StateUpdate) map[string]stateValue {
	var texts map[string]json.RawMessage
	if text := u.GetStateDeltaJson(); text != "" && json.Unmarshal([]byte(text), &texts) == nil {
		keys := make(map[string]stateValue, len(texts))
		for key, text := range texts {
			keys[key] = stateValue{text: text}
		}
		return keys
	}
	keys := make(map[string]stateValue, len(u.GetStateDelta().GetFields()))
	for key, value := range u.GetStateDelta().GetFields() {
		if isJSON(value) {
			keys[key] = stateValue{value: value}
		}
	}
	return keys
}

// isJSON reports whether a value has a form in JSON.
func isJSON(v *structpb.Value) bool {
	switch v := v.GetKind().(type) {
	case *structpb.Value_NumberValue:
		return !math.IsNaN(v.NumberValue) && !math.IsInf(v.NumberValue, 0)
	case *structpb.Value_StructValue:
		for _, of := range v.StructValue.GetFields() {
			if !isJSON(of) {
				return false
			}
		}
		return true
	case *structpb.Value_ListValue:
		return !slices.ContainsFunc(v.ListValue.GetValues(), func(of *structpb.Value) bool { return !isJSON(of) })
	case nil:
		return false
	default:
		return true
	}
}

// deltaOf are the keys of a StateUpdate with their values decoded.
func deltaOf(u *agentdv1.RunResponse_StateUpdate) map[string]any {
	delta := make(map[string]any)
	for key, value := range keysOf(u) {
		delta[key] = value.decoded()
	}
	return delta
}

// stateView is the session state as a run has seen it.
type stateView struct {
	mu     sync.Mutex // protects values
	values map[string]stateValue
}

func newStateView() *stateView {
	return &stateView{values: make(map[string]stateValue)}
}

// apply takes over a delta, in which null removes a key.
func (s *stateView) apply(u *agentdv1.RunResponse_StateUpdate) {
	keys := keysOf(u)
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, value := range keys {
		if value.isNull() {
			delete(s.values, key)
		} else {
			s.values[key] = value
		}
	}
}

func isNull(text json.RawMessage) bool { return string(text) == "null" }

func (s *stateView) get(key string) (any, bool) {
	s.mu.Lock()
	value, ok := s.values[key]
	s.mu.Unlock()
	if !ok {
		return nil, false
	}
	return value.decoded(), true
}

// all returns the state decoded.
func (s *stateView) all() map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]any, len(s.values))
	for key, value := range s.values {
		all[key] = value.decoded()
	}
	return all
}
