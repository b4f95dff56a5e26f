package session

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/record"
)

const (
	// imagePiece bounds how much of an image goes into one hint, in bytes: as text in JSON it is a third larger.
	imagePiece = 160 << 10
	// maxImage bounds an image. Of a session whose image is larger observers are served by the owner.
	maxImage = 16 << 20
)

// want asks for the hints of a session, and for an image of it.
type want struct {
	Key   string `json:"k"`
	Image bool   `json:"i,omitempty"`
}

// hint is what the owner of a session says to those who follow it: of a fact, which is in the log, of a delta, of a
// call that no client can run, or a piece of an image.
type hint struct {
	Epoch int64 `json:"e"`
	Pos   int64 `json:"p,omitempty"`
	Prev  int64 `json:"v,omitempty"`

	Delta    *hintDelta    `json:"d,omitempty"`
	Unserved *hintUnserved `json:"u,omitempty"`
	Piece    *imagePart    `json:"i,omitempty"`

	size int
}

// hintDelta is a record.Delta. Its text is bytes: JSON would take what is not UTF-8 for something else.
type hintDelta struct {
	MessageID string   `json:"m"`
	Path      []string `json:"a"`
	Text      []byte   `json:"t"`
	Thought   bool     `json:"h,omitempty"`
}

func (d *hintDelta) delta() record.Delta {
	return record.Delta{MessageID: d.MessageID, Path: d.Path, Text: string(d.Text), Thought: d.Thought}
}

type hintUnserved struct {
	CallID  string    `json:"c"`
	Expires time.Time `json:"x"`
}

// imagePart is the n-th of some pieces of an image, which is named by a number.
type imagePart struct {
	ID   uint64 `json:"id"`
	N    int    `json:"n"`
	Of   int    `json:"of"`
	Data []byte `json:"b"`
}

// image is live.Image.
type image struct {
	Epoch, Applied, Pos int64
	Partials            []render.Image
	Unserved            []hintUnserved
}

// hintOf is the hint that another server receives.
func hintOf(h live.Hint) hint {
	out := hint{Epoch: h.Epoch, Pos: h.Pos, Prev: h.Prev}
	if d := h.Delta; d != nil {
		out.Delta = &hintDelta{MessageID: d.MessageID, Path: d.Path, Text: []byte(d.Text), Thought: d.Thought}
	}
	if u := h.Unserved; u != nil {
		out.Unserved = &hintUnserved{CallID: u.Call.ID, Expires: u.Expires}
	}
	return out
}

// piecesOf cuts an image into hints. It returns none for one that is too large.
func piecesOf(img live.Image, id uint64) ([]hint, error) {
	out := image{Epoch: img.Epoch, Applied: img.Applied, Pos: img.Pos, Partials: img.Partials}
	for _, u := range img.Unserved {
		out.Unserved = append(out.Unserved, hintUnserved{CallID: u.Call.ID, Expires: u.Expires})
	}
	data, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	if len(data) > maxImage {
		return nil, fmt.Errorf("session: an image has %d bytes, at most %d are sent", len(data), maxImage)
	}
	n := (len(data) + imagePiece - 1) / imagePiece
	hints := make([]hint, 0, n)
	for i := range n {
		part := &imagePart{ID: id, N: i, Of: n, Data: data[i*imagePiece : min((i+1)*imagePiece, len(data))]}
		hints = append(hints, hint{Epoch: img.Epoch, Piece: part})
	}
	return hints, nil
}

// album puts the pieces of an image together, which arrive in order, or not at all. The zero value has none.
type album struct {
	id   uint64
	next int
	data []byte
}

// add adds a piece, and returns the image whose last piece it is, else nil: also for one that cannot be read.
func (a *album) add(p *imagePart) *live.Image {
	if p.N == 0 {
		*a = album{id: p.ID}
	}
	if p.ID != a.id || p.N != a.next || p.N >= p.Of || len(a.data)+len(p.Data) > maxImage {
		*a = album{next: -1}
		return nil
	}
	a.data = append(a.data, p.Data...)
	if a.next++; a.next < p.Of {
		return nil
	}
	var img image
	err := json.Unmarshal(a.data, &img)
	*a = album{next: -1}
	if err != nil {
		return nil
	}
	out := &live.Image{Epoch: img.Epoch, Applied: img.Applied, Pos: img.Pos, Partials: img.Partials}
	for _, u := range img.Unserved {
		out.Unserved = append(out.Unserved, render.Unserved{
			Call: record.ToolCall{ID: u.CallID}, Expires: u.Expires,
		})
	}
	return out
}
