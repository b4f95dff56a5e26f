package record

import (
	"encoding/binary"
	"errors"
	"iter"
)

// Marks are the places of a message's deltas, so that a client can be given exactly the part it lacks, also
// after the message is complete. The zero value is no deltas. It is what Event.Marks holds and an engine
// stores with the event.
type Marks []byte

// mark is the place of one delta of a message.
type mark struct {
	pos     int64
	bytes   int
	thought bool
}

// errMarks is what is wrong with marks that all does not understand.
var errMarks = errors.New("malformed marks")

// Append returns the marks with one more: of a delta at pos that has bytes bytes of the message's text, or
// of its thoughts. last is the position of the mark before, 0 for none; positions rise.
func (m Marks) Append(last, pos int64, bytes int, thought bool) Marks {
	n := uint64(bytes) << 1
	if thought {
		n |= 1
	}
	return binary.AppendUvarint(binary.AppendUvarint(m, uint64(pos-last)), n)
}

// First returns the position of the first delta; 0 for none, and for a mark that is malformed.
func (m Marks) First() int64 {
	for k, err := range m.all() {
		if err == nil {
			return k.pos
		}
	}
	return 0
}

// Count returns how many deltas there are after a position; malformed marks count as far as they go.
func (m Marks) Count(after int64) (n int) {
	for k, err := range m.all() {
		if err == nil && k.pos > after {
			n++
		}
	}
	return n
}

// decode returns the marks.
func (m Marks) decode() ([]mark, error) {
	out := make([]mark, 0, len(m)/2) // each takes two bytes or more
	for k, err := range m.all() {
		if err != nil {
			return nil, err
		}
		out = append(out, k)
	}
	return out, nil
}

// all yields the marks in order, and errMarks at the first one that is malformed.
func (m Marks) all() iter.Seq2[mark, error] {
	return func(yield func(mark, error) bool) {
		pos := int64(0)
		for rest := m; len(rest) > 0; {
			step, n := binary.Uvarint(rest)
			size, k := uint64(0), 0
			if n > 0 {
				size, k = binary.Uvarint(rest[n:])
			}
			if k <= 0 || size>>1 > 1<<31 || step > 1<<62 {
				yield(mark{}, errMarks)
				return
			}
			rest = rest[n+k:]
			if pos += int64(step); pos < 0 {
				yield(mark{}, errMarks)
				return
			}
			if !yield(mark{pos: pos, bytes: int(size >> 1), thought: size&1 == 1}, nil) {
				return
			}
		}
	}
}

// Deltas calls yield with each delta of the event's message after a position, in order. The texts of the
// event may go on behind what the marks cover. An error says that the marks are malformed; yield may have
// been called before.
func (e *Event) Deltas(after int64, yield func(pos int64, d *Delta)) error {
	text, thoughts := e.Text, e.Thoughts
	for k, err := range e.Marks.all() {
		if err != nil {
			return err
		}
		from := &text
		if k.thought {
			from = &thoughts
		}
		if k.bytes > len(*from) {
			return errMarks
		}
		if k.pos > after {
			yield(k.pos, &Delta{MessageID: e.MessageID, Path: e.Path, Text: (*from)[:k.bytes], Thought: k.thought})
		}
		*from = (*from)[k.bytes:]
	}
	return nil
}

// Unshown returns what the marks of an event do not cover.
func (e *Event) Unshown() (text, thoughts string) {
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
