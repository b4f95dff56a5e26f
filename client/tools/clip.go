package tools

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/apzuk3/agentd/client/conf"
)

// clip keeps the beginning of a text, and counts the rest. Its methods must not be called concurrently.
type clip struct {
	maxBytes, maxLines, maxWire int

	kept   []byte
	weight int // of kept, see weigh
	wire   int // of kept, see weighWire
	lines  int // line ends in kept
	cut    bool
	bytes  int64 // of all
	breaks int64 // line ends in all
	last   byte  // of all
}

func newClip(limit conf.OutputCap) *clip {
	return &clip{maxBytes: limit.KiB << 10, maxLines: limit.Lines, maxWire: wireRoom}
}

// wireRoom is how much texts may take in a result, which has at most 1 MiB; the rest is for what stands around them.
const wireRoom = 960 << 10

// weigh is how many bytes one byte counts for: of a control character, what a model sees of it.
func weigh(b byte) int {
	if b < ' ' && b != '\n' && b != '\r' && b != '\t' || b == 0x7f {
		return 6
	}
	return 1
}

// weighWire is how many bytes of a result a byte of a text takes at most: a result is JSON in a JSON string. What is no
// ASCII may be a line separator, or no UTF-8.
func weighWire(b byte) int {
	switch {
	case b == '"', b == '\\':
		return 4
	case b == '\n', b == '\r', b == '\t', b == '\b', b == '\f', b >= 0x80:
		return 3
	case b < ' ':
		return 7
	default:
		return 1
	}
}

// wireSize is how many bytes of a result a text takes at most.
func wireSize(text string) (n int) {
	for i := range len(text) {
		n += weighWire(text[i])
	}
	return n
}

// Write takes more of the text. It never fails.
func (c *clip) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.bytes += int64(len(p))
	c.breaks += int64(bytes.Count(p, []byte{'\n'}))
	c.last = p[len(p)-1]
	if c.cut {
		return len(p), nil
	}
	n := 0
	for ; n < len(p); n++ {
		w, wire := weigh(p[n]), weighWire(p[n])
		if c.weight+w > c.maxBytes || c.wire+wire > c.maxWire || c.lines >= c.maxLines {
			c.cut = true
			break
		}
		c.weight += w
		c.wire += wire
		if p[n] == '\n' {
			c.lines++
		}
	}
	c.kept = append(c.kept, p[:n]...)
	return len(p), nil
}

// total is how many lines there were.
func (c *clip) total() int64 {
	if c.bytes > 0 && c.last != '\n' {
		return c.breaks + 1
	}
	return c.breaks
}

// text returns what is kept, and says what was cut.
func (c *clip) text() string {
	if !c.cut {
		return valid(c.kept)
	}
	return valid(wholeRunes(c.kept)) + cutMark(c.bytes, c.total(), len(c.kept) == 0 || c.kept[len(c.kept)-1] == '\n')
}

// cutMark is what text that is cut ends with.
func cutMark(bytes, lines int64, atLine bool) string {
	mark := fmt.Sprintf("[cut: %d bytes, %d lines in all]", bytes, lines)
	if atLine {
		return mark
	}
	return "\n" + mark
}

// wholeRunes drops the beginning of a character at the end.
func wholeRunes(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// valid is a text as the wire takes it.
func valid(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// list counts the entries of a list that is bounded as text is, a line each.
type list struct {
	bytes, lines, wire int
}

func newList(limit conf.OutputCap) *list { return &list{limit.KiB << 10, limit.Lines, wireRoom} }

const (
	// entryOverhead is what an entry of a list takes beside its texts, and entryWire what it takes in a result.
	entryOverhead = 16
	entryWire     = 80
)

// fits takes an entry with some texts, unless there is no room.
func (l *list) fits(texts ...string) bool {
	bytes, wire := entryOverhead, entryWire
	for _, text := range texts {
		bytes += len(text)
		wire += wireSize(text)
	}
	if l.lines < 1 || l.bytes < bytes || l.wire < wire {
		return false
	}
	l.lines--
	l.bytes -= bytes
	l.wire -= wire
	return true
}
