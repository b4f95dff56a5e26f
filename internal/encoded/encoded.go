// Package encoded keeps what the conversation and the settings of an agent are on a provider's wire, so that a call
// encodes what is new since the last one and nothing else. It is a part of agentd, not an API.
//
// It relies on what model.Request says: contents are shared between calls and never change, so that one is known by its
// address. It knows no wire: what pieces and settings depend on besides the content, or the configuration, is in the
// name of the wire.
package encoded

import (
	"bytes"
	"io"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/genai"
)

// Room bounds what conversations keep together, in bytes; what is beyond is encoded for each call. Its methods may be
// called from any goroutine.
type Room struct {
	max  int64
	used atomic.Int64
}

// NewRoom returns room for so many bytes.
func NewRoom(most int64) *Room { return &Room{max: most} }

// Bytes is what the conversations keep.
func (r *Room) Bytes() int { return int(r.used.Load()) }

// take takes n bytes, or tells that they are not there.
func (r *Room) take(n int) bool {
	if r.used.Add(int64(n)) > r.max {
		r.used.Add(int64(-n))
		return false
	}
	return true
}

func (r *Room) give(n int) { r.used.Add(int64(-n)) }

// Piece is a part of a content as it is on the wire, or a message of its own: what it is, is the adapter's own
// business.
type Piece struct {
	// Kind is the adapter's own, such as the role.
	Kind int
	// JSON is the piece. It is not changed.
	JSON []byte
	// Of is what else the adapter knows of the piece; often nil. It is small, and is not changed.
	Of any
}

// Conversation is that of one agent on one branch. A nil one keeps nothing. Its methods may be called from any
// goroutine.
type Conversation struct {
	room *Room

	mu       sync.Mutex // protects the fields below
	wire     string
	items    []item
	settings settings
	left     any // by Put
	leftSize int
}

// Conversation returns one that keeps in this room.
func (r *Room) Conversation() *Conversation { return &Conversation{room: r} }

// item is a content and its pieces; of is nil if they are not kept.
type item struct {
	of     *genai.Content
	pieces []Piece
}

// settings is what the rest of a request is on the wire.
type settings struct {
	wire string
	of   genai.GenerateContentConfig
	json []byte
}

// Pieces returns the pieces of each content. It calls encode for those that it does not have on this wire, in their
// order.
func (c *Conversation) Pieces(
	wire string, contents []*genai.Content, encode func(*genai.Content) ([]Piece, error),
) ([][]Piece, error) {
	out := make([][]Piece, 0, len(contents))
	if c == nil {
		for _, content := range contents {
			pieces, err := encode(content)
			if err != nil {
				return nil, err
			}
			out = append(out, pieces)
		}
		return out, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wire != wire {
		c.wire = wire
		c.cutLocked(0)
	}
	c.cutLocked(len(contents))
	for i, content := range contents {
		if i < len(c.items) && c.items[i].of == content && content != nil {
			out = append(out, c.items[i].pieces)
			continue
		}
		pieces, err := encode(content)
		if err != nil {
			return nil, err
		}
		out = append(out, pieces)
		c.putLocked(i, content, pieces)
	}
	return out, nil
}

// cutLocked forgets all but the first n items.
func (c *Conversation) cutLocked(n int) {
	for i := n; i < len(c.items); i++ {
		c.room.give(size(c.items[i].pieces))
	}
	if n < len(c.items) {
		clear(c.items[n:])
		c.items = c.items[:n]
	}
}

// putLocked keeps the pieces of the i-th content if there is room.
func (c *Conversation) putLocked(i int, content *genai.Content, pieces []Piece) {
	if i == len(c.items) {
		c.items = append(c.items, item{})
	}
	c.room.give(size(c.items[i].pieces))
	c.items[i] = item{}
	if c.room.take(size(pieces)) {
		c.items[i] = item{content, pieces}
	}
}

// What a Piece takes besides its JSON, and what its Of may.
const (
	pieceBytes = 48
	ofBytes    = 256
)

// size is about what pieces take in memory.
func size(pieces []Piece) int {
	n := 0
	for i := range pieces {
		n += len(pieces[i].JSON) + pieceBytes
		if pieces[i].Of != nil {
			n += ofBytes
		}
	}
	return n
}

// Settings returns what cfg is on this wire, if it equals that of the last KeepSettings.
func (c *Conversation) Settings(wire string, cfg *genai.GenerateContentConfig) (json []byte, known bool) {
	if c == nil {
		return nil, false
	}
	c.mu.Lock()
	last := c.settings
	c.mu.Unlock()
	if last.json == nil || last.wire != wire || !reflect.DeepEqual(&last.of, cfg) {
		return nil, false
	}
	return last.json, true
}

// KeepSettings keeps what cfg is on this wire, if there is room. Neither may change any more.
func (c *Conversation) KeepSettings(wire string, cfg *genai.GenerateContentConfig, json []byte) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.room.give(len(c.settings.json))
	c.settings = settings{}
	if c.room.take(len(json)) {
		c.settings = settings{wire, *cfg, json}
	}
}

// Put leaves v, which takes about so many bytes, for the next Take, if there is room. It is the caller's no more.
func (c *Conversation) Put(v any, bytes int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takeLocked()
	if c.room.take(bytes) {
		c.left, c.leftSize = v, bytes
	}
}

// Take returns what Put has left, and removes it: it is the caller's alone. It returns nil if there is nothing.
func (c *Conversation) Take() any {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takeLocked()
}

func (c *Conversation) takeLocked() any {
	v := c.left
	c.room.give(c.leftSize)
	c.left, c.leftSize = nil, 0
	return v
}

// Forget gives back all room. What c keeps afterwards takes it again.
func (c *Conversation) Forget() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takeLocked()
	c.cutLocked(0)
	c.room.give(len(c.settings.json))
	c.settings = settings{}
}

// Body is a request's body, in segments that it shares with other requests.
type Body struct {
	segments [][]byte
	length   int64
}

// NewBody returns a body of these segments, which must not change.
func NewBody(segments ...[]byte) *Body {
	b := &Body{segments: segments}
	for _, s := range segments {
		b.length += int64(len(s))
	}
	return b
}

// Grow makes room for n more segments.
func (b *Body) Grow(n int) { b.segments = slices.Grow(b.segments, n) }

// Add adds segments, which must not change.
func (b *Body) Add(segments ...[]byte) {
	for _, s := range segments {
		if len(s) > 0 {
			b.segments = append(b.segments, s)
			b.length += int64(len(s))
		}
	}
}

// Len is the length of the body.
func (b *Body) Len() int64 { return b.length }

// small is the length up to which a body is read from one copy: net/http writes the headers apart from what it does not
// know to be in memory.
const small = 16 << 10

// Reader returns a reader of the whole body, as often as it is called.
func (b *Body) Reader() io.ReadCloser {
	if b.length <= small {
		return io.NopCloser(bytes.NewReader(slices.Concat(b.segments...)))
	}
	return &reader{rest: b.segments}
}

// reader reads segments.
type reader struct {
	rest [][]byte
	at   int // in the first one
}

func (r *reader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && len(r.rest) > 0 {
		m := copy(p[n:], r.rest[0][r.at:])
		n += m
		if r.at += m; r.at == len(r.rest[0]) {
			r.rest, r.at = r.rest[1:], 0
		}
	}
	return n, nil
}

// Close does nothing.
func (*reader) Close() error { return nil }
