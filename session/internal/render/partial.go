package render

import (
	"bytes"
	"iter"
	"unicode/utf8"

	"github.com/apzuk3/agentd/session/record"
)

// maxPiece bounds the text of one delta, and of deltas that are joined.
const maxPiece = 64 << 10

// Pieces cuts a delta, between runes, into deltas of at most maxPiece bytes.
func Pieces(d record.Delta) iter.Seq[record.Delta] {
	return func(yield func(record.Delta) bool) {
		for text := d.Text; text != ""; {
			piece := d
			piece.Text = text[:pieceLen(text)]
			text = text[len(piece.Text):]
			if !yield(piece) {
				return
			}
		}
	}
}

// pieceLen returns how much of a text goes into one delta.
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

// Partial is a message whose deltas are shown and whose event is not in the log yet.
type Partial struct {
	// ID is the message's id, and Path its agent's path.
	ID   string
	Path []string

	text, thoughts []byte
	marks          record.Marks
	last           int64 // position of the last mark
}

// Add adds a piece that is shown at a position, and returns its item.
func (p *Partial) Add(pos int64, piece record.Delta) Item {
	p.marks = p.marks.Append(p.last, pos, len(piece.Text), piece.Thought)
	p.last = pos
	if piece.Thought {
		p.thoughts = append(p.thoughts, piece.Text...)
	} else {
		p.text = append(p.text, piece.Text...)
	}
	return Item{Pos: pos, Delta: &piece, Size: len(piece.Text)}
}

// First returns the position of the first delta, 0 before it.
func (p *Partial) First() int64 { return p.marks.First() }

// Marks returns the places of the deltas so far.
func (p *Partial) Marks() record.Marks { return bytes.Clone(p.marks) }

// Size returns the bytes of the texts so far.
func (p *Partial) Size() int { return len(p.text) + len(p.thoughts) }

// Image is a partial as it is at a moment.
type Image struct {
	ID                    string
	Path                  []string
	Text, Thoughts, Marks []byte
	Last                  int64 // position of the last mark
}

// Image returns the partial as it is now. It has memory of its own.
func (p *Partial) Image() Image {
	return Image{
		ID: p.ID, Path: p.Path, Last: p.last,
		Text: bytes.Clone(p.text), Thoughts: bytes.Clone(p.thoughts), Marks: p.Marks(),
	}
}

// PartialOf returns the partial of an image, which takes its memory over. It refuses an image whose marks are not those
// of its texts.
func PartialOf(i Image) (*Partial, error) {
	p := &Partial{ID: i.ID, Path: i.Path, text: i.Text, thoughts: i.Thoughts, marks: i.Marks, last: i.Last}
	if _, err := p.Items(0); err != nil {
		return nil, err
	}
	return p, nil
}

// Items returns the deltas after a position.
func (p *Partial) Items(after int64) ([]Item, error) {
	return deltasOf(&record.Event{
		MessageID: p.ID, Path: p.Path, Text: string(p.text), Thoughts: string(p.thoughts), Marks: p.marks,
	}, after)
}

// deltasOf returns the deltas of an event's message after a position. Its texts may be longer
// than what the marks cover.
func deltasOf(e *record.Event, after int64) ([]Item, error) {
	out := make([]Item, 0, e.Marks.Count(after))
	err := e.Deltas(after, func(pos int64, d *record.Delta) {
		out = append(out, Item{Pos: pos, Delta: d, Size: len(d.Text)})
	})
	return out, err
}
