package server

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Small on the wire, large in memory: such a message is refused before it is
// decoded.
func TestMessagesOfManyValues(t *testing.T) {
	field := func(n protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
	}
	many := func(n protowire.Number, count int) []byte { return bytes.Repeat(field(n, nil), count) }
	object := func(value []byte) []byte { return field(1, append(field(1, []byte("k")), field(2, value)...)) }
	for name, message := range map[string]func(count int) []byte{
		"agents": func(n int) []byte { return field(1, field(1, field(3, many(3, n)))) },
		"names":  func(n int) []byte { return field(1, field(1, field(3, many(2, n)))) },
		"tools":  func(n int) []byte { return field(1, many(4, n)) },
		"state":  func(n int) []byte { return field(1, field(5, object(field(6, many(1, n))))) },
		"answer": func(n int) []byte { return field(3, field(6, object(field(6, many(1, n))))) },
		"json names": func(n int) []byte {
			return []byte(`{"execute":{"agent":{"llm":{"toolNames":["x"` + strings.Repeat(`,""`, n-1) + `]}}}}`)
		},
		"json state": func(n int) []byte {
			return []byte(`{"execute":{"initialState":{"k":[{}` + strings.Repeat(`,1`, n-1) + `]}}}`)
		},
	} {
		decode := binaryCodec{}.Unmarshal
		if strings.HasPrefix(name, "json") {
			decode = jsonCodec{}.Unmarshal
		}
		if err := decode(message(maxValues-20), &agentdv1.RunRequest{}); err != nil {
			t.Errorf("%s: a message at the limit: %v", name, err)
		}
		err := decode(message(maxValues+1), &agentdv1.RunRequest{})
		if err == nil {
			t.Errorf("%s: %d values were decoded", name, maxValues+1)
			continue
		}
		if e := receiveError(err, 0); e.Code != codeLimit || !strings.Contains(e.Message, "more than 200000 values") || !inStep(err) {
			t.Errorf("%s: %v, in step %v", name, e, inStep(err))
		}
	}
	// Text is one value, whatever it holds.
	text := `{"execute":{"userPrompt":"` + strings.Repeat(`,{[\"\\`, maxValues/2) + `"}}`
	if err := (jsonCodec{}).Unmarshal([]byte(text), &agentdv1.RunRequest{}); err != nil {
		t.Errorf("text: %v", err)
	}
}
