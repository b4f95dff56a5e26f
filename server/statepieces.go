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

// keyOverhead is what a key takes in an update beside its name, twice, and its values: the
// lengths of all of them.
const keyOverhead = 64

// splitState returns at least one update, which together say the same. Only one of a single
// key, in one of its two forms, is larger than a piece: where both are, that for clients
// which know no other comes first, since the other one counts.
func splitState(u *agentdv1.RunResponse_StateUpdate) []*agentdv1.RunResponse_StateUpdate {
	if proto.Size(u) <= maxChunkBytes {
		return []*agentdv1.RunResponse_StateUpdate{u}
	}
	var texts map[string]json.RawMessage
	if err := json.Unmarshal([]byte(u.GetStateDeltaJson()), &texts); err != nil {
		return []*agentdv1.RunResponse_StateUpdate{u} // not reached: the text is the session's own
	}
	all := u.GetStateDelta().GetFields()
	var pieces []*agentdv1.RunResponse_StateUpdate
	var piece *statePiece
	flush := func() {
		if piece != nil {
			pieces, piece = append(pieces, piece.update(u.GetSessionId())), nil
		}
	}
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		n := 2*len(key) + proto.Size(all[key]) + len(texts[key]) + keyOverhead
		if piece != nil && piece.size+n > maxChunkBytes {
			flush()
		}
		if n > maxChunkBytes {
			pieces = append(pieces, &agentdv1.RunResponse_StateUpdate{
				SessionId: u.GetSessionId(), StateDelta: &structpb.Struct{Fields: map[string]*structpb.Value{key: all[key]}},
			})
			piece = newStatePiece()
			piece.texts[key] = texts[key]
			flush()
			continue
		}
		if piece == nil {
			piece = newStatePiece()
		}
		piece.fields[key], piece.texts[key] = all[key], texts[key]
		piece.size += n
	}
	flush()
	return pieces
}

// statePiece is some of the keys of an update.
type statePiece struct {
	fields map[string]*structpb.Value
	texts  map[string]json.RawMessage
	size   int
}

func newStatePiece() *statePiece {
	return &statePiece{fields: map[string]*structpb.Value{}, texts: map[string]json.RawMessage{}}
}

func (p *statePiece) update(sessionID string) *agentdv1.RunResponse_StateUpdate {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(p.texts) // it came out of JSON
	u := &agentdv1.RunResponse_StateUpdate{
		SessionId: sessionID, StateDeltaJson: string(bytes.TrimSuffix(text.Bytes(), []byte("\n"))),
	}
	if len(p.fields) > 0 {
		u.StateDelta = &structpb.Struct{Fields: p.fields}
	}
	return u
}
