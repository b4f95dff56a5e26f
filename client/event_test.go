package client_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// memberTypes is what each member of a RunResponse becomes; nil: it is no event.
var memberTypes = map[protoreflect.Name]client.EventData{
	"execute":               (*client.TurnStarted)(nil),
	"heartbeat":             nil,
	"tool_call":             (*client.ToolCall)(nil),
	"error":                 (*client.Error)(nil),
	"end":                   (*client.End)(nil),
	"output_chunk":          (*client.OutputChunk)(nil),
	"state_update":          (*client.StateUpdate)(nil),
	"tool_call_canceled":    (*client.ToolCallCanceled)(nil),
	"tool_call_announced":   (*client.ToolCallAnnounced)(nil),
	"message_retracted":     (*client.MessageRetracted)(nil),
	"turn_queued":           (*client.TurnQueued)(nil),
	"message_injected":      (*client.MessageInjected)(nil),
	"model_call_retried":    (*client.ModelCallRetried)(nil),
	"tool_call_answered":    (*client.ToolCallAnswered)(nil),
	"interaction_requested": (*client.InteractionRequested)(nil),
	"interaction_resolved":  (*client.InteractionResolved)(nil),
	"model_call_ended":      (*client.ModelCallEnded)(nil),
	"model_call_fell_back":  (*client.ModelCallFellBack)(nil),
	"provider_tools_used":   (*client.ProviderToolsUsed)(nil),
	"raw_payload_received":  (*client.RawPayloadReceived)(nil),
	"history_compacted":     (*client.HistoryCompacted)(nil),
	"goal":                  (*client.GoalEvent)(nil),
	"tool_call_unserved":    (*client.ToolCallUnserved)(nil),
	"message_completed":     (*client.MessageCompleted)(nil),
	"agent_started":         (*client.AgentStarted)(nil),
	"agent_ended":           (*client.AgentEnded)(nil),
	"transferred":           (*client.Transferred)(nil),
	"remote_session":        (*client.RemoteSession)(nil),
}

// filled is a message of which each field is set, down to some depth.
func filled(m protoreflect.Message, depth int) protoreflect.Message {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if o := f.ContainingOneof(); f.IsMap() && f.MapValue().Message() != nil || o != nil && m.WhichOneof(o) != nil {
			continue
		}
		value := m.NewField(f)
		switch {
		case f.IsMap():
			value.Map().Set(scalar(f.MapKey()).MapKey(), scalar(f.MapValue()))
		case f.Message() != nil && depth == 0:
			continue
		case f.IsList() && f.Message() != nil:
			value.List().Append(protoreflect.ValueOfMessage(filled(value.List().NewElement().Message(), depth-1)))
		case f.Message() != nil:
			filled(value.Message(), depth-1)
		case f.IsList():
			value.List().Append(scalar(f))
		default:
			value = scalar(f)
		}
		m.Set(f, value)
	}
	return m
}

func scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("7")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("7"))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(f.Enum().Values().Get(f.Enum().Values().Len() - 1).Number())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(7)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(7)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(7)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(7)
	default:
		return f.Default()
	}
}

// zeroFields are fields that are zero for this test's messages, each with its reason.
var zeroFields = map[string]string{
	"ToolCallAnswered.Error": "an answer has an output or an error",
	"Error.Usage":            "the usage is the end's",
	"Error.Err":              "it is of this side",
}

// Each member of the protocol's oneof has a type of event, and all that it says is in it.
func TestEachMemberHasAnEvent(t *testing.T) {
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	members := (&agentdv1.RunResponse{}).ProtoReflect().Descriptor().Oneofs().ByName("response").Fields()
	for i := range members.Len() {
		member := members.Get(i)
		t.Run(string(member.Name()), func(t *testing.T) {
			want, ok := memberTypes[member.Name()]
			if !ok {
				t.Fatalf("%s has no type of event: add it to dataOf and to this test's list", member.Name())
			}
			m := &agentdv1.RunResponse{Seq: 9, TurnId: "turn", Time: timestamppb.New(at), Replayed: true}
			value := m.ProtoReflect().NewField(member)
			filled(value.Message(), 4)
			m.ProtoReflect().Set(member, value)
			before := proto.CloneOf(m)
			event := client.EventOf(m)
			if want == nil {
				if event != nil {
					t.Errorf("it is the event %+v", event)
				}
				return
			}
			if got := reflect.TypeOf(event.Data); got != reflect.TypeOf(want) {
				t.Fatalf("it is a %v, want %T", got, want)
			}
			if event.Seq != 9 || event.TurnID != "turn" || event.SessionID != "7" || !event.Time.Equal(at) || !event.Replayed {
				t.Errorf("the envelope is %+v", event)
			}
			if got := event.Proto(); got == m || !proto.Equal(got, before) {
				t.Errorf("the message is %v, want a copy of %v", got, before)
			}
			data := reflect.ValueOf(event.Data).Elem()
			for _, f := range reflect.VisibleFields(data.Type()) {
				name := data.Type().Name() + "." + f.Name
				if data.Type().Name() == "GoalEvent" && f.Name != "Kind" && f.Name != "GoalID" {
					continue // TestFieldsOfReplies looks at the others: what has happened has some of them
				}
				if f.IsExported() && zeroFields[name] == "" && data.FieldByIndex(f.Index).IsZero() {
					t.Errorf("%s is not set", name)
				}
			}
		})
	}
	for name := range memberTypes {
		if members.ByName(name) == nil {
			t.Errorf("the protocol has no %s", name)
		}
	}
}

// The five kinds that deployed programs read are in their fields and in Data.
func TestDeployedFields(t *testing.T) {
	for name, want := range memberTypes {
		m := &agentdv1.RunResponse{}
		member := m.ProtoReflect().Descriptor().Fields().ByName(name)
		m.ProtoReflect().Set(member, m.ProtoReflect().NewField(member))
		event := client.EventOf(m)
		if want == nil {
			continue
		}
		set := map[client.EventData]bool{event.OutputChunk: event.OutputChunk != nil, event.StateUpdate: event.StateUpdate != nil,
			event.ToolCall: event.ToolCall != nil, event.Error: event.Error != nil, event.End: event.End != nil}
		for data, is := range set {
			if is != (data == event.Data) {
				t.Errorf("%s: Data is %T, and %T is set: %v", name, event.Data, data, is)
			}
		}
	}
}

// newer is a message of a kind that this client does not know.
func newer(number protowire.Number, seq int64) *agentdv1.RunResponse {
	m := &agentdv1.RunResponse{Seq: seq, TurnId: "turn"}
	raw := protowire.AppendTag(nil, number, protowire.BytesType)
	m.ProtoReflect().SetUnknown(protowire.AppendBytes(raw, []byte{0x0a, 0x01, 'x'}))
	return m
}

// A newer server says what this client does not know: the program gets it, and the
// turn continues.
func TestEventOfANewerServer(t *testing.T) {
	url := serve(t, func(_ context.Context, s *peer) error {
		return steps(
			s.started,
			func() error { return s.send(newer(1999, 5)) },
			func() error { return s.text("hello", true, "root") },
			func() error { return s.end(true, "") },
		)
	})
	var kinds []string
	for event, err := range dial(t, url).Run(t.Context(), llm(), "hi") {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, strings.TrimPrefix(reflect.TypeOf(event.Data).String(), "*client."))
		if d := as[*client.UnknownEvent](event); d != nil {
			if want := newer(1999, 5); d.Number != 1999 || event.Seq != 5 || event.SessionID != session || !proto.Equal(d.Proto(), want) || !proto.Equal(event.Proto(), want) {
				t.Errorf("got %d, %v at %d", d.Number, d.Proto(), event.Seq)
			}
		}
	}
	if want := []string{"TurnStarted", "UnknownEvent", "OutputChunk", "End"}; !slices.Equal(kinds, want) {
		t.Errorf("got %q, want %q", kinds, want)
	}
}

// A lost connection and its return are one event each, in order; the run gives up a
// connection that does not come back.
func TestConnectionEvents(t *testing.T) {
	connection := func(c *client.Client) (kinds []string, last error) {
		for event, err := range c.Run(t.Context(), llm(), "tell") {
			if err != nil {
				return kinds, err
			}
			switch d := event.Data.(type) {
			case *client.ConnectionLost:
				if kinds = append(kinds, "lost"); d.Err == nil || event.Seq != 0 || event.SessionID != session || event.TurnID != "turn" {
					t.Errorf("lost: %+v at %+v", d, event)
				}
			case *client.ConnectionRestored:
				if kinds = append(kinds, "restored"); d.Attempts < 1 || d.After <= 0 {
					t.Errorf("restored: %+v", d)
				}
			case *client.ConnectionAbandoned:
				if kinds = append(kinds, "abandoned"); d.Err == nil || d.Attempts < 1 || d.After <= 0 {
					t.Errorf("abandoned: %+v", d)
				}
			case *client.End:
				kinds = append(kinds, "end")
			}
		}
		return kinds, nil
	}
	t.Run("restored", func(t *testing.T) {
		l := newTurnLog(t, modelTale)
		l.cut = func(stream, sent int) bool { return stream <= 2 && sent == 3 }
		kinds, err := connection(dial(t, host(t, l), quick))
		if want := []string{"lost", "restored", "lost", "restored", "end"}; err != nil || !slices.Equal(kinds, want) {
			t.Errorf("got %q and %v, want %q", kinds, err, want)
		}
	})
	t.Run("abandoned", func(t *testing.T) {
		l := newTurnLog(t, modelTale)
		l.cut = func(stream, sent int) bool { return stream == 1 && sent == 3 || stream > 1 && sent == 0 }
		c := dial(t, host(t, l), client.WithReconnect(client.ReconnectPolicy{MaxElapsed: 200 * time.Millisecond, Base: time.Millisecond, Cap: 10 * time.Millisecond}))
		kinds, err := connection(c)
		if want := []string{"lost", "abandoned"}; !errors.Is(err, client.ErrUnavailable) || !slices.Equal(kinds, want) {
			t.Errorf("got %q and %v, want %q", kinds, err, want)
		}
	})
}
