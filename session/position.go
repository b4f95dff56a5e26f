package session

import (
	"fmt"
	"unicode/utf8"

	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/record"
)

// maxPiece bounds the text of one delta, and of deltas that are joined.
const maxPiece = 64 << 10

// message is a message on its way: what has been shown of it, and where.
type message struct {
	id             string
	path           []string
	text, thoughts []byte
	marks          record.Marks
	last           int64 // position of the last mark
}

// deltasOf returns a message's deltas after a position, as items. Its texts may go
// on behind what the marks cover.
func deltasOf(e *record.Event, after int64) (out []item, err error) {
	err = e.Deltas(after, func(pos int64, d *record.Delta) {
		out = append(out, item{pos: pos, delta: d, size: len(d.Text)})
	})
	return out, err
}

// soFar is a message on its way as an event.
func (m *message) soFar() *record.Event {
	return &record.Event{MessageID: m.id, Path: m.path, Text: string(m.text), Thoughts: string(m.thoughts), Marks: m.marks}
}

// publishDelta shows a piece of a message to whoever watches, and remembers its
// place.
func (s *Session) publishDelta(a *attempt, d record.Delta) {
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
	for d.Text != "" && s.deltas < position.MaxDeltas {
		piece := d
		piece.Text = d.Text[:pieceLen(d.Text)]
		d.Text = d.Text[len(piece.Text):]
		pos := position.Of(s.seq, position.Deltas+s.deltas)
		s.deltas++
		m.marks = m.marks.Append(m.last, pos, len(piece.Text), d.Thought)
		m.last = pos
		if d.Thought {
			m.thoughts = append(m.thoughts, piece.Text...)
		} else {
			m.text = append(m.text, piece.Text...)
		}
		s.publishLocked(item{pos: pos, delta: &piece, size: len(piece.Text)})
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
		items, err := deltasOf(m.soFar(), after)
		if err != nil {
			return nil, fmt.Errorf("session %s: message %s: %w", s.id, m.id, err)
		}
		out = append(out, items...)
	}
	return out, nil
}
