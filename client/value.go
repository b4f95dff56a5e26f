package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// encodeOutput turns a handler's result into what the model sees.
func encodeOutput(result any) (string, []*agentdv1.Part, error) {
	var out ToolOutput
	switch v := result.(type) {
	case ToolOutput:
		out = v
	case *ToolOutput:
		if v != nil {
			out = *v
		}
	default:
		out.Output = v
	}
	parts, err := checkParts(out.Parts)
	if err != nil {
		return "", nil, fmt.Errorf("the tool's result: %w", err)
	}
	if out.Output == nil && len(parts) > 0 {
		return "", parts, nil
	}
	text, err := encodeResult(out.Output)
	return text, parts, err
}

// encodeResult turns a handler's result into the text that the model sees.
func encodeResult(result any) (string, error) {
	var text string
	switch v := result.(type) {
	case string:
		text = v
	case []byte:
		text = string(v)
	case json.RawMessage:
		text = string(v)
	case error:
		return "", v
	case proto.Message:
		encoded, err := protojson.Marshal(v)
		if err != nil {
			return "", fmt.Errorf("the tool's result of type %T cannot be encoded as JSON: %w", result, err)
		}
		text = string(encoded)
	default:
		encoded, err := marshalJSON(v)
		if err != nil {
			return "", fmt.Errorf("the tool's result of type %T cannot be encoded as JSON: %w", result, err)
		}
		text = encoded
	}
	return validUTF8(text), nil
}

// validUTF8 replaces what a protobuf string cannot carry.
func validUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// marshalJSON encodes v on one line without HTML escapes: the reader is a
// model, for which they are noise.
func marshalJSON(v any) (string, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(buf.String(), "\n"), nil
}

// stateValue encodes v as a value of session state.
func stateValue(v any) (*structpb.Value, error) {
	text, err := marshalJSON(v)
	if err != nil {
		return nil, err
	}
	decoded, err := decodeNumbers([]byte(text))
	if err != nil {
		return nil, err
	}
	if err := checkExact(decoded); err != nil {
		return nil, err
	}
	return structpb.NewValue(plainNumbers(decoded))
}

// checkExact finds numbers that state, whose numbers are float64, cannot hold.
func checkExact(v any) error {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if err := checkExact(value); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	case []any:
		for i, value := range v {
			if err := checkExact(value); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
	case json.Number:
		if !isExact(v) {
			return fmt.Errorf("the number %s cannot be held exactly; use a string", v)
		}
	}
	return nil
}

// isExact tells whether a float64 holds n, or at least, if n is no integer, as
// much of it as is usual.
func isExact(n json.Number) bool {
	f, err := n.Float64()
	if err != nil {
		return false
	}
	whole, ok := new(big.Int).SetString(n.String(), 10)
	if !ok {
		return true
	}
	held, _ := big.NewFloat(f).Int(nil)
	return held.Cmp(whole) == 0
}

// stateView is the session state as a run has seen it.
type stateView struct {
	mu     sync.Mutex // protects values
	values map[string]*structpb.Value
}

func newStateView() *stateView {
	return &stateView{values: make(map[string]*structpb.Value)}
}

// apply takes over a delta, in which null removes a key.
func (s *stateView) apply(delta *structpb.Struct) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, value := range delta.GetFields() {
		if isNull(value) {
			delete(s.values, key)
		} else {
			s.values[key] = value
		}
	}
}

func isNull(value *structpb.Value) bool {
	_, null := value.GetKind().(*structpb.Value_NullValue)
	return null
}

func (s *stateView) get(key string) (any, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, ok := s.values[key]
	return value.AsInterface(), ok
}

// all returns the state decoded.
func (s *stateView) all() map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (&structpb.Struct{Fields: s.values}).AsMap()
}
