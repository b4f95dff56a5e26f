package session

import (
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/record"
)

// WarningsProto is the protocol's form; in is put before the fields.
func WarningsProto(in string, warnings []record.Warning) []*agentdv1.Warning {
	var out []*agentdv1.Warning
	for _, w := range warnings {
		out = append(out, &agentdv1.Warning{Code: w.Code, Field: in + w.Field, Message: w.Message})
	}
	return out
}
