package render

import (
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"slices"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/position"
)

// Place is what a cursor names. The zero value is the beginning of a session.
type Place struct {
	// At is the position of the last message.
	At int64
	// From is the record with which rendering begins for what comes after At: that of
	// the start of the turn at At, or the one after its end. 0 is the first record.
	From int64
}

// after returns the place of the next message that a reader of the whole session renders,
// which may be the start of a turn, or its end.
func (p Place) after(pos int64, starts, ends bool) Place {
	switch {
	case starts:
		return Place{At: pos, From: position.Record(pos)}
	case ends:
		return Place{At: pos, From: position.Record(pos) + 1}
	default:
		return Place{At: pos, From: p.From}
	}
}

// The text of a cursor is base64 of a version, the session's hash, and the numbers of
// a place. Clients may not look into it, so that other versions can name other things.
const (
	cursorVersion = 1
	cursorHash    = 8 // bytes
)

func hashOf(sessionID string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(sessionID)) // a hash takes anything
	return h.Sum64()
}

// Cursor returns the text that names the place; "" is the beginning.
func (p Place) Cursor(sessionID string) string {
	if p == (Place{}) {
		return ""
	}
	data := binary.BigEndian.AppendUint64([]byte{cursorVersion}, hashOf(sessionID))
	data = binary.AppendUvarint(binary.AppendUvarint(data, uint64(p.At)), uint64(p.From))
	return base64.RawURLEncoding.EncodeToString(data)
}

// PlaceOf reads what Cursor has written for the same session. Its errors are of type
// *fault.Error.
func PlaceOf(cursor, sessionID string) (Place, error) {
	if cursor == "" {
		return Place{}, nil
	}
	data, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(data) <= 1+cursorHash || data[0] != cursorVersion {
		return Place{}, ErrNoCursor
	}
	if binary.BigEndian.Uint64(data[1:]) != hashOf(sessionID) {
		return Place{}, badCursor("cursor is of another session than %q", sessionID)
	}
	at, n := binary.Uvarint(data[1+cursorHash:])
	from, k := binary.Uvarint(data[1+cursorHash+max(n, 0):])
	p := Place{At: int64(at), From: int64(from)}
	if n <= 0 || k <= 0 || p.At < 0 || p.From < 0 || p.Cursor(sessionID) != cursor {
		return Place{}, ErrNoCursor
	}
	return p, nil
}

// ErrNoCursor refuses a text that no reading of the session has given.
var ErrNoCursor = badCursor("cursor is none that reading a session has given")

func badCursor(format string, args ...any) *fault.Error {
	return fault.Errorf(fault.Invalid, format, args...).Breaking("cursor", fault.RuleFormat)
}

// Places gives the messages of a reader of the whole session their places. A session that is
// read by several readers, one after the other, has one Places.
type Places struct {
	sessionID string
	at        Place
	reported  map[string]bool // calls of the running turn of which the client knows that nobody has the tool
}

// NewPlaces returns the places after one.
func NewPlaces(sessionID string, at Place) Places { return Places{sessionID: sessionID, at: at} }

// Last returns the place of the last message.
func (p *Places) Last() Place { return p.at }

// Next returns the cursor of the next message, "" for one without a place. ends are what
// [Reader.TakeEnds] returns. repeated says that an earlier reader has rendered the message.
func (p *Places) Next(m *agentdv1.RunResponse, ends []int64) (cursor string, repeated bool) {
	if pos := m.GetSeq(); pos > 0 {
		starts, ends := m.GetExecute() != nil, slices.Contains(ends, pos)
		p.at = p.at.after(pos, starts, ends)
		if starts || ends {
			p.reported = nil
		}
		return p.at.Cursor(p.sessionID), false
	}
	call := m.GetToolCallUnserved().GetToolCallId()
	switch {
	case call == "":
		return "", false
	case p.reported[call]:
		return "", true
	case p.reported == nil:
		p.reported = map[string]bool{}
	}
	p.reported[call] = true
	return "", false
}
