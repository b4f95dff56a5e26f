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
	kept  bool
}

func (c *counted) IsKept() bool { return c.kept }

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

// TestKeptForms: a kept event has one form for those to whom it is new and those to whom it is repeated. The form is
// clean, and making it leaves the event as it is.
func TestKeptForms(t *testing.T) {
	const broken = "no \xff text"
	answered := &agentdv1.ToolCallAnswered{SessionId: "s", Result: &agentdv1.ToolCallAnswered_Output{Output: broken}}
	event := func(replayed bool) *agentdv1.RunResponse {
		return &agentdv1.RunResponse{Seq: 7, TurnId: "turn", Replayed: replayed,
			Response: &agentdv1.RunResponse_ToolCallAnswered{ToolCallAnswered: answered}}
	}
	forms := &counted{forms: map[string][]byte{}, kept: true}
	for _, replayed := range []bool{true, false, true} {
		want := proto.CloneOf(event(replayed))
		clean(want)
		for name, of := range map[string]struct{ response, want proto.Message }{
			"Run":          {event(replayed), want},
			"WatchSession": {&agentdv1.WatchSessionResponse{Cursor: "c"}, &agentdv1.WatchSessionResponse{Event: want, Cursor: "c"}},
		} {
			m := &sharedMessage{Message: of.response, event: event(replayed), shared: forms}
			if run, ok := of.response.(*agentdv1.RunResponse); ok {
				m.event = run
			}
			for _, codec := range []interface {
				MarshalAppend(b []byte, message any) ([]byte, error)
				Unmarshal(data []byte, message any) error
			}{binaryCodec{}, jsonCodec{}} {
				data, err := codec.MarshalAppend(nil, m)
				if err != nil {
					t.Fatal(err)
				}
				got := of.want.ProtoReflect().New().Interface()
				if err := codec.Unmarshal(data, got); err != nil || !proto.Equal(got, of.want) {
					t.Errorf("%s by %T: %q is %v, want %v, error %v", name, codec, data, got, of.want, err)
				}
			}
		}
	}
	if forms.made != 2 || answered.GetOutput() != broken {
		t.Errorf("%d forms were made, want one for each of two codecs; the event says %q", forms.made, answered.GetOutput())
	}
}
