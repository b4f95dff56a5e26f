package render

import (
	"encoding/json"
	"math"

	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/logjson"
)

// stateUpdate is the protocol's form of keys and their values: a Struct, and where that
// bends a number, the JSON text too.
func stateUpdate(delta map[string]any) *agentdv1.RunResponse_StateUpdate {
	c := structs{exact: true}
	u := &agentdv1.RunResponse_StateUpdate{StateDelta: c.object(delta)}
	if c.exact {
		return u
	}
	data, err := logjson.Marshal(delta)
	if err != nil {
		return &agentdv1.RunResponse_StateUpdate{} // not reached: delta came out of JSON
	}
	u.StateDeltaJson = string(data)
	if c.strange {
		var values map[string]any
		if err := logjson.Unmarshal(data, &values); err != nil {
			return &agentdv1.RunResponse_StateUpdate{} // not reached either
		}
		return stateUpdate(values)
	}
	return u
}

// structs makes Structs of JSON values. A number is the nearest float64; one beyond all of
// those is the largest of its sign, since the JSON form of a Struct can hold no infinity,
// and a text would be of another type than the client expects.
type structs struct {
	exact   bool // so far each number is written in JSON as it was before
	strange bool // a value is of a type that JSON is not read into
}

func (c *structs) object(object map[string]any) *structpb.Struct {
	s := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(object))}
	for name, v := range object {
		s.Fields[name] = c.value(v)
	}
	return s
}

func (c *structs) value(v any) *structpb.Value {
	switch v := v.(type) {
	case json.Number:
		f, _ := v.Float64() // infinite with an error
		f = min(max(f, -math.MaxFloat64), math.MaxFloat64)
		if text, err := json.Marshal(f); err != nil || string(text) != v.String() {
			c.exact = false
		}
		return structpb.NewNumberValue(f)
	case string:
		return structpb.NewStringValue(v)
	case bool:
		return structpb.NewBoolValue(v)
	case map[string]any:
		return structpb.NewStructValue(c.object(v))
	case []any:
		list := &structpb.ListValue{Values: make([]*structpb.Value, 0, len(v))}
		for _, item := range v {
			list.Values = append(list.Values, c.value(item))
		}
		return structpb.NewListValue(list)
	case nil:
		return structpb.NewNullValue()
	default:
		c.exact, c.strange = false, true
		return structpb.NewNullValue()
	}
}
