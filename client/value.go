package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

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
