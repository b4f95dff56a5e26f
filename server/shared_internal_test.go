package server

import (
	"testing"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// counted keeps wire forms and counts how many it had to make.
type counted struct {
	forms map[string][]byte
	made  int
}

func (c *counted) Form(codec string, form func() ([]byte, error)) (out []byte, err error) {
	if c.forms[codec] == nil {
		c.made++
		c.forms[codec], err = form()
	}
	return c.forms[codec], err
}

// TestSharedMessage: each response with a shared event is what it would be alone, and the event is encoded once for each
// codec.
func TestSharedMessage(t *testing.T) {
	event := &agentdv1.RunResponse{Seq: 7, TurnId: "turn", Response: &agentdv1.RunResponse_OutputChunk_{
		OutputChunk: &agentdv1.RunResponse_OutputChunk{SessionId: "s", AgentPath: []string{"root"}, Content: "some \"words\"\n"},
	}}
	forms := &counted{forms: map[string][]byte{}}
	for name, c := range map[string]struct{ response, want proto.Message }{
		"Run":                  {event, event},
		"WatchTurn":            {&agentdv1.WatchTurnResponse{}, &agentdv1.WatchTurnResponse{Event: event}},
		"WatchSession":         {&agentdv1.WatchSessionResponse{Cursor: "c"}, &agentdv1.WatchSessionResponse{Event: event, Cursor: "c"}},
		"WatchSession, no end": {&agentdv1.WatchSessionResponse{}, &agentdv1.WatchSessionResponse{Event: event}},
	} {
		m := &sharedMessage{Message: c.response, event: event, shared: forms}
		for _, codec := range []interface {
			MarshalAppend(b []byte, message any) ([]byte, error)
			Unmarshal(data []byte, message any) error
		}{binaryCodec{}, faultyBinary{limit: 1 << 20}, jsonCodec{}, faultyJSON{limit: 1 << 20}} {
			const before = "before"
			data, err := codec.MarshalAppend([]byte(before), m)
			if err != nil || string(data[:len(before)]) != before {
				t.Fatalf("%s by %T: %q, error %v", name, codec, data, err)
			}
			got := c.want.ProtoReflect().New().Interface()
			if err := codec.Unmarshal(data[len(before):], got); err != nil || !proto.Equal(got, c.want) {
				t.Errorf("%s by %T: %q is %v, want %v, error %v", name, codec, data, got, c.want, err)
			}
		}
	}
	if forms.made != 2 {
		t.Errorf("%d forms were made, want one for each of two codecs", forms.made)
	}
}
