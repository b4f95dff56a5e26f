package toolschema

import (
	"encoding/json"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/rawjson"
)

// Response returns the JSON Schema that the response has to follow; nil for none. It keeps the
// order of the keys, since models write in that order.
func Response(cfg *genai.GenerateContentConfig) (json.RawMessage, error) {
	switch {
	case cfg.ResponseJsonSchema != nil:
		return rawjson.Marshal(cfg.ResponseJsonSchema)
	case cfg.ResponseSchema != nil:
		return rawjson.Marshal(JSONSchema(cfg.ResponseSchema))
	default:
		return nil, nil
	}
}
