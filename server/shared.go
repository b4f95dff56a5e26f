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
	// replayedName is what the JSON form of a repeated event has more than that of a new one.
	replayedName = `"replayed":true`
)

// replayedField is what the binary form of a repeated event has more than that of a new one.
var replayedField = func() []byte {
	data, _ := proto.Marshal(&agentdv1.RunResponse{Replayed: true}) // one number
	return data
}()

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
	IsKept() bool
}

// shared returns what to send for a shared event. response is without its event, or the event.
func shared(e session.Placed, response proto.Message) *sharedMessage {
	return &sharedMessage{Message: response, event: e.Message, shared: e.Shared}
}

// isEvent reports whether the event is the whole response.
func (m *sharedMessage) isEvent() bool { return m.Message == proto.Message(m.event) }

// isRepeated reports whether the event is repeated, which its form does not say.
func (m *sharedMessage) isRepeated() bool { return m.shared.IsKept() && m.event.GetReplayed() }

// own returns the event for its form: a kept one may not be changed, and may be new for others.
func (m *sharedMessage) own() *agentdv1.RunResponse {
	if !m.shared.IsKept() {
		return m.event
	}
	own := proto.CloneOf(m.event)
	own.Replayed = false
	clean(own)
	return own
}

// appendBinary appends the binary form.
func (m *sharedMessage) appendBinary(b []byte) ([]byte, error) {
	event, err := m.shared.Form("proto", func() ([]byte, error) { return proto.Marshal(m.own()) })
	if err != nil {
		return nil, err
	}
	var more []byte
	if m.isRepeated() {
		more = replayedField
	}
	if m.isEvent() {
		return append(append(b, event...), more...), nil
	}
	b = protowire.AppendTag(b, eventField, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(event)+len(more)))
	b = append(append(b, event...), more...)
	return proto.MarshalOptions{}.MarshalAppend(b, m.Message)
}

// appendJSON appends the JSON form.
func (m *sharedMessage) appendJSON(b []byte) ([]byte, error) {
	event, err := m.shared.Form("json", func() ([]byte, error) { return protojson.Marshal(m.own()) })
	if err != nil {
		return nil, err
	}
	if m.isEvent() {
		return m.appendEvent(b, event), nil
	}
	rest := []byte("{}")
	if proto.Size(m.Message) > 0 {
		if rest, err = protojson.Marshal(m.Message); err != nil {
			return nil, err
		}
	}
	b = m.appendEvent(append(append(b, '{'), eventName...), event)
	if len(rest) > len("{}") {
		b = append(b, ',')
	}
	return append(b, rest[len("{"):]...), nil
}

// appendEvent appends the JSON form of the event, whose form is not empty: it has a seq.
func (m *sharedMessage) appendEvent(b, form []byte) []byte {
	if !m.isRepeated() {
		return append(b, form...)
	}
	b = append(append(b, '{'), replayedName...)
	return append(append(b, ','), form[len("{"):]...)
}
