package session

import (
	"encoding/json"
	"math"

	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// stateUpdate is the protocol's form of keys and their values: as JSON text, and as a
// Struct for clients that know no other.
func stateUpdate(delta map[string]any) *agentdv1.RunResponse_StateUpdate {
	data, err := marshal(delta)
	if err != nil {
		return &agentdv1.RunResponse_StateUpdate{} // not reached: delta came out of JSON
	}
	var values map[string]any
	if err := unmarshal(data, &values); err != nil {
		return &agentdv1.RunResponse_StateUpdate{} // not reached either
	}
	return &agentdv1.RunResponse_StateUpdate{StateDelta: structOf(values), StateDeltaJson: string(data)}
}

// structOf is an object of JSON as a Struct. A number is the nearest float64; one beyond
// all of those is the largest of its sign, since the JSON form of a Struct can hold no
// infinity, and a text would be of another type than the client expects.
func structOf(object map[string]any) *structpb.Struct {
	s := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(object))}
	for name, v := range object {
		s.Fields[name] = valueOf(v)
	}
	return s
}

func valueOf(v any) *structpb.Value {
	switch v := v.(type) {
	case json.Number:
		f, _ := v.Float64() // infinite with an error
		return structpb.NewNumberValue(min(max(f, -math.MaxFloat64), math.MaxFloat64))
	case string:
		return structpb.NewStringValue(v)
	case bool:
		return structpb.NewBoolValue(v)
	case map[string]any:
		return structpb.NewStructValue(structOf(v))
	case []any:
		list := &structpb.ListValue{Values: make([]*structpb.Value, 0, len(v))}
		for _, item := range v {
			list.Values = append(list.Values, valueOf(item))
		}
		return structpb.NewListValue(list)
	default:
		return structpb.NewNullValue()
	}
}
