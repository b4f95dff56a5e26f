package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// A position is a message's place in a session: the sequence number of a
// record, then a slot. Facts have the first slots of their record, the deltas
// that come after it, up to the next record, the rest. So positions rise in the
// order in which things happened, for facts and deltas alike, and a client that
// names the last position it has received names exactly what it has.
const (
	slotBits = 20

	slotStart = 0 // the answer to execute; a retract
	slotState = 1 // state, after the text of the same event
	slotAlone = 2 // the start of an agent that starts with the turn
	// An event: what its deltas have not shown, then the state, then the calls.
	slotThoughts   = 2
	slotText       = 3
	slotLast       = 4
	slotEventState = 5
	slotUser       = 6 // what a user has said, after slotStart
	slotCompleted  = 6 // of a model's answer, which is never a user's
	slotProvided   = 7
	slotCompacted  = 8
	slotCallEnded  = 9
	slotTransfer   = 10
	slotCalls      = 16
	// The end of a turn.
	slotClose  = 1 << 15
	slotAgents = 1<<15 + 1<<14
	slotError  = 1<<16 - 2
	slotEnd    = 1<<16 - 1
	// Deltas.
	slotDeltas = 1 << 16
	maxDeltas  = 1<<slotBits - slotDeltas
)

func position(seq int64, slot int) int64 { return seq<<slotBits | int64(slot) }

// recordOf is the record of a position.
func recordOf(pos int64) int64 { return pos >> slotBits }

// maxPiece bounds the text of one delta, and of deltas that are joined.
const maxPiece = 64 << 10

// mark is the place of one delta of a message.
type mark struct {
	pos     int64
	bytes   int
	thought bool
}

// Marks are the places of a message's deltas, so that a client can be given
// exactly the part it lacks, also after the message is complete. The zero value
// is no deltas. It is what Event.Marks holds and an engine stores with the event.
type Marks []byte

// errMarks is what is wrong with marks that decode does not understand.
var errMarks = errors.New("malformed marks")

// appendMark adds a mark; positions must rise.
func (m Marks) appendMark(last int64, k mark) Marks {
	n := uint64(k.bytes) << 1
	if k.thought {
		n |= 1
	}
	return binary.AppendUvarint(binary.AppendUvarint(m, uint64(k.pos-last)), n)
}

// decode returns the marks.
func (m Marks) decode() ([]mark, error) {
	var out []mark
	pos := int64(0)
	for len(m) > 0 {
		step, n := binary.Uvarint(m)
		if n <= 0 {
			return nil, errMarks
		}
		size, k := binary.Uvarint(m[n:])
		if k <= 0 || size>>1 > 1<<31 || step > 1<<62 {
			return nil, errMarks
		}
		m = m[n+k:]
		if pos += int64(step); pos < 0 {
			return nil, errMarks
		}
		out = append(out, mark{pos: pos, bytes: int(size >> 1), thought: size&1 == 1})
	}
	return out, nil
}

// message is a message on its way: what has been shown of it, and where.
type message struct {
	id             string
	path           []string
	text, thoughts []byte
	marks          Marks
	last           int64 // position of the last mark
}

// deltas returns a message's deltas after a position, as items. Its texts may go
// on behind what the marks cover.
func (e *Event) deltas(after int64) ([]item, error) {
	ks, err := e.Marks.decode()
	if err != nil {
		return nil, err
	}
	text, thoughts := e.Text, e.Thoughts
	out := make([]item, 0, len(ks))
	for _, k := range ks {
		from := &text
		if k.thought {
			from = &thoughts
		}
		if k.bytes > len(*from) {
			return nil, errMarks
		}
		if k.pos > after {
			d := &Delta{MessageID: e.MessageID, Path: e.Path, Text: (*from)[:k.bytes], Thought: k.thought}
			out = append(out, item{pos: k.pos, delta: d, size: k.bytes})
		}
		*from = (*from)[k.bytes:]
	}
	return out, nil
}

// soFar is a message on its way as an event.
func (m *message) soFar() *Event {
	return &Event{MessageID: m.id, Path: m.path, Text: string(m.text), Thoughts: string(m.thoughts), Marks: m.marks}
}

// unshown returns what the marks of an event do not cover.
func (e *Event) unshown() (text, thoughts string) {
	text, thoughts = e.Text, e.Thoughts
	ks, err := e.Marks.decode()
	if err != nil {
		return text, thoughts
	}
	for _, k := range ks {
		if k.thought {
			thoughts = thoughts[min(k.bytes, len(thoughts)):]
		} else {
			text = text[min(k.bytes, len(text)):]
		}
	}
	return text, thoughts
}

// publishDelta shows a piece of a message to whoever watches, and remembers its
// place.
func (s *Session) publishDelta(a *attempt, d Delta) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := a.t
	if t != s.turn || a != t.attempt || t.ended != nil {
		return
	}
	m := t.partials[d.MessageID]
	if m == nil {
		m = &message{id: d.MessageID, path: d.Path}
		t.partials[d.MessageID] = m
	}
	for d.Text != "" && s.deltas < maxDeltas {
		piece := d
		piece.Text = d.Text[:pieceLen(d.Text)]
		d.Text = d.Text[len(piece.Text):]
		k := mark{pos: position(s.seq, slotDeltas+s.deltas), bytes: len(piece.Text), thought: d.Thought}
		s.deltas++
		m.marks = m.marks.appendMark(m.last, k)
		m.last = k.pos
		if d.Thought {
			m.thoughts = append(m.thoughts, piece.Text...)
		} else {
			m.text = append(m.text, piece.Text...)
		}
		s.publishLocked(item{pos: k.pos, delta: &piece, size: len(piece.Text)})
	}
}

// pieceLen is how much of a text goes into one delta: at most maxPiece bytes, cut
// between runes.
func pieceLen(text string) int {
	if len(text) <= maxPiece {
		return len(text)
	}
	n := maxPiece
	for n > maxPiece-utf8.UTFMax && !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}

// partialsLocked returns the deltas after a position of the messages that are
// not complete.
func (s *Session) partialsLocked(t *Turn, after int64) ([]item, error) {
	var out []item
	if t != s.turn {
		return nil, nil
	}
	for _, m := range t.partials {
		items, err := m.soFar().deltas(after)
		if err != nil {
			return nil, fmt.Errorf("session %s: message %s: %w", s.id, m.id, err)
		}
		out = append(out, items...)
	}
	return out, nil
}
