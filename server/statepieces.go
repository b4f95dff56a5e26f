package server

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// keyOverhead is the size of a key in an update beside its name, twice, and its values:
// the lengths of all of them.
const keyOverhead = 64

// splitState returns at least one update; together they say the same. Only an update
// with a single key, in one of its two forms, may be larger than a piece. If both forms
// exist, the one for old clients comes first, since the other one counts.
func splitState(u *agentdv1.RunResponse_StateUpdate) []*agentdv1.RunResponse_StateUpdate {
	if proto.Size(u) <= maxChunkBytes {
		return []*agentdv1.RunResponse_StateUpdate{u}
	}
	all := u.GetStateDelta().GetFields()
	var texts map[string]json.RawMessage
	if text := u.GetStateDeltaJson(); text != "" {
		if err := json.Unmarshal([]byte(text), &texts); err != nil {
			return []*agentdv1.RunResponse_StateUpdate{u} // not reached: the text is the session's own
		}
	}
	var pieces []*agentdv1.RunResponse_StateUpdate
	piece := &statePiece{}
	flush := func() {
		if piece.keys > 0 {
			pieces, piece = append(pieces, piece.update(u.GetSessionId())), &statePiece{}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		n := 2*len(key) + proto.Size(all[key]) + len(texts[key]) + keyOverhead
		if piece.size+n > maxChunkBytes {
			flush()
		}
		if n > maxChunkBytes && texts != nil {
			piece.add(key, all[key], nil)
			flush()
			piece.add(key, nil, texts[key])
			flush()
			continue
		}
		piece.add(key, all[key], texts[key])
		piece.size += n
	}
	flush()
	return pieces
}

// statePiece is some of the keys of an update. The zero value has none.
type statePiece struct {
	fields map[string]*structpb.Value
	texts  map[string]json.RawMessage
	keys   int
	size   int
}

// add adds a key, in one form or in both.
func (p *statePiece) add(key string, value *structpb.Value, text json.RawMessage) {
	if p.keys++; p.keys == 1 {
		p.fields, p.texts = map[string]*structpb.Value{}, map[string]json.RawMessage{}
	}
	if value != nil {
		p.fields[key] = value
	}
	if text != nil {
		p.texts[key] = text
	}
}

func (p *statePiece) update(sessionID string) *agentdv1.RunResponse_StateUpdate {
	u := &agentdv1.RunResponse_StateUpdate{SessionId: sessionID}
	if len(p.fields) > 0 {
		u.StateDelta = &structpb.Struct{Fields: p.fields}
	}
	if len(p.texts) > 0 {
		var text bytes.Buffer
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(p.texts) // it came out of JSON
		u.StateDeltaJson = string(bytes.TrimSuffix(text.Bytes(), []byte("\n")))
	}
	return u
}
