package wire

import (
	"bytes"
	"fmt"

	"github.com/apzuk3/agentd/internal/encoded"
	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/model"
)

// Element returns v as an element of a JSON list that is not its first: with a comma before it.
func Element(v any) ([]byte, error) {
	data, err := rawjson.Marshal(v)
	return append([]byte{','}, data...), err
}

// hole is where the conversation goes into the settings of a request. No JSON text holds this byte.
const hole = 0

// Settings encodes a request whose list at key, which holds the conversation, is empty. first is what the list begins
// with; it may be empty.
func Settings(request any, key string, first []byte) ([]byte, error) {
	data, err := rawjson.Marshal(request)
	if err != nil {
		return nil, err
	}
	// In a text each quote has a backslash before it: what is found is the key.
	before, after, found := bytes.Cut(data, []byte(`"`+key+`":[]`))
	if !found {
		return nil, fmt.Errorf("the request has no list %q", key)
	}
	return bytes.Join([][]byte{before, []byte(`"` + key + `":[`), first, {hole, ']'}, after}, nil), nil
}

// Around returns what stands before and after the conversation in what Settings has returned.
func Around(settings []byte) (before, after []byte) {
	before, after, _ = bytes.Cut(settings, []byte{hole})
	return before, after
}

// SettingsKey names all that the settings of a request depend on besides its configuration: wire is what they depend on
// besides the request.
func SettingsKey(wire string, req *model.Request, names *Names) string {
	key := fmt.Sprintf("%s/%d/%t", wire, names.State(), req.ToolSearch)
	if req.Cache != nil {
		key += fmt.Sprintf("/cache %v %q", req.Cache.TTL, req.Cache.Key)
	}
	if len(req.Deferred) > 0 {
		key += fmt.Sprintf("/deferred %q", req.Deferred)
	}
	return key
}

// Keep returns the settings of a request: those kept for key, or what encode returns, which are kept from now on.
func Keep(req *model.Request, key string, encode func() ([]byte, error)) ([]byte, error) {
	settings, known := req.Encoded.Settings(key, req.Config)
	if known {
		return settings, nil
	}
	settings, err := encode()
	if err == nil {
		req.Encoded.KeepSettings(key, req.Config, settings)
	}
	return settings, err
}

// Count is how many pieces there are.
func Count(pieces [][]encoded.Piece) int {
	n := 0
	for _, of := range pieces {
		n += len(of)
	}
	return n
}
