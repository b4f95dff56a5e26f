package session

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/record"
)

// place is what a cursor names. The zero value is the beginning of a session.
type place struct {
	// at is the position of the last message.
	at int64
	// from is the record with which rendering begins for what comes after at: that of
	// the start of the turn at at, or the one behind its end. 0 is the first record.
	from int64
}

// behind is the place of the next message that a view of the whole session renders,
// which may be the start of a turn, or its end.
func (p place) behind(seq int64, starts, ends bool) place {
	switch {
	case starts:
		return place{at: seq, from: position.Record(seq)}
	case ends:
		return place{at: seq, from: position.Record(seq) + 1}
	default:
		return place{at: seq, from: p.from}
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

// cursor is the text that names a place; "" is the beginning.
func (p place) cursor(sessionID string) string {
	if p == (place{}) {
		return ""
	}
	data := binary.BigEndian.AppendUint64([]byte{cursorVersion}, hashOf(sessionID))
	data = binary.AppendUvarint(binary.AppendUvarint(data, uint64(p.at)), uint64(p.from))
	return base64.RawURLEncoding.EncodeToString(data)
}

// placeOf reads what cursor has written for the same session.
func placeOf(cursor, sessionID string) (place, error) {
	if cursor == "" {
		return place{}, nil
	}
	data, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(data) <= 1+cursorHash || data[0] != cursorVersion {
		return place{}, badCursor("cursor is none that reading a session has given")
	}
	if binary.BigEndian.Uint64(data[1:]) != hashOf(sessionID) {
		return place{}, badCursor("cursor is of another session than %q", sessionID)
	}
	at, n := binary.Uvarint(data[1+cursorHash:])
	from, k := binary.Uvarint(data[1+cursorHash+max(n, 0):])
	p := place{at: int64(at), from: int64(from)}
	if n <= 0 || k <= 0 || p.at < 0 || p.from < 0 || p.cursor(sessionID) != cursor {
		return place{}, badCursor("cursor is none that reading a session has given")
	}
	return p, nil
}

func badCursor(format string, args ...any) *fault.Error {
	return fault.Errorf(fault.Invalid, format, args...).Breaking("cursor", fault.RuleFormat)
}

// checkPlace refuses a place that the session does not have.
func (s *Session) checkPlace(ctx context.Context, p place) error {
	last := lock.Get(&s.mu, func() int64 { return s.seq })
	if position.Record(p.at) > last {
		return fault.Errorf(fault.Invalid, "cursor: session %q has not come that far", s.id).Breaking("cursor", fault.RuleRange)
	}
	if p.from == 0 {
		return nil
	}
	// Rendering begins where nothing before it matters.
	if p.from <= position.Record(p.at)+1 {
		for rec, err := range s.records(ctx, max(p.from-2, 0), 2) {
			switch {
			case err != nil:
				return err
			case rec.Seq == p.from-1 && rec.Kind == record.KindTurnEnded, rec.Seq == p.from && rec.Kind == record.KindTurnStarted:
				return nil
			}
			if rec.Seq >= p.from {
				break
			}
		}
	}
	return badCursor("cursor is none that reading a session has given")
}
