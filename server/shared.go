package server

import (
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
)

const (
	// eventField and eventName are where the responses that watch have their event.
	eventField = protowire.Number(1)
	eventName  = `"event":`
)

// sharedMessage is a response whose event other clients receive too: the codecs take the event's wire form from where
// the first of them has put it.
type sharedMessage struct {
	proto.Message // the response without its event, or the event if that is the response

	event  *agentdv1.RunResponse
	shared wireForms
}

// wireForms keeps the wire forms of an event; see session.Placed.
type wireForms interface {
	Form(codec string, encode func() ([]byte, error)) ([]byte, error)
}

// shared returns what to send for a shared event. response is without its event, or the event.
func shared(e session.Placed, response proto.Message) *sharedMessage {
	return &sharedMessage{Message: response, event: e.Message, shared: e.Shared}
}

// isEvent reports whether the event is the whole response.
func (m *sharedMessage) isEvent() bool { return m.Message == proto.Message(m.event) }

// appendBinary appends the binary form.
func (m *sharedMessage) appendBinary(b []byte) ([]byte, error) {
	event, err := m.shared.Form("proto", func() ([]byte, error) { return proto.Marshal(m.event) })
	if err != nil {
		return nil, err
	}
	if m.isEvent() {
		return append(b, event...), nil
	}
	b = protowire.AppendTag(b, eventField, protowire.BytesType)
	return proto.MarshalOptions{}.MarshalAppend(protowire.AppendBytes(b, event), m.Message)
}

// appendJSON appends the JSON form.
func (m *sharedMessage) appendJSON(b []byte) ([]byte, error) {
	event, err := m.shared.Form("json", func() ([]byte, error) { return protojson.Marshal(m.event) })
	if err != nil {
		return nil, err
	}
	if m.isEvent() {
		return append(b, event...), nil
	}
	rest, err := protojson.Marshal(m.Message)
	if err != nil {
		return nil, err
	}
	b = append(append(append(b, '{'), eventName...), event...)
	if len(rest) > len("{}") {
		b = append(b, ',')
	}
	return append(b, rest[len("{"):]...), nil
}
