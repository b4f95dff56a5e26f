package markdown

import (
	"strings"
	"unicode/utf8"
)

const (
	// maxBlock is how much text, in bytes, may wait for the end of its block, and maxLines how many lines.
	maxBlock, maxLines = 16 << 10, 100
)

// Block is a part of a text that can be shown by itself.
type Block struct {
	// Text is Markdown, or a line of a block of code without its end.
	Text string
	// Code says that it is the latter.
	Code bool
}

// Stream parts a text that comes in pieces into blocks. What it holds is bounded: a block that is too long is parted.
// The zero value is ready for use.
type Stream struct {
	tail  []byte // what is in no block yet: whole lines first
	whole int    // how much of tail are whole lines
	lines int    // how many
	fence string // of the block of code that is open; "" for none
	blank bool   // a list may go on behind the blank line that has come
}

// Add adds a piece, and returns the blocks that are complete.
func (s *Stream) Add(piece string) (done []Block) {
	for piece != "" {
		end := strings.IndexByte(piece, '\n')
		if end < 0 {
			s.tail = append(s.tail, piece...)
			break
		}
		s.tail = append(s.tail, piece[:end+1]...)
		piece = piece[end+1:]
		done = s.line(done)
	}
	if len(s.tail) > maxBlock {
		done = s.cut(done)
	}
	return done
}

// line takes up the line that has just ended.
func (s *Stream) line(done []Block) []Block {
	line := string(s.tail[s.whole:])
	mark := fenceOf(line)
	switch {
	case s.fence != "":
		s.tail = s.tail[:0]
		closes := strings.HasPrefix(mark, s.fence) && strings.Trim(line, " \t\r\n"+mark[:1]) == ""
		if closes {
			s.fence = ""
			return done
		}
		return append(done, Block{Text: strings.TrimRight(line, "\r\n"), Code: true})
	case mark != "":
		s.tail = s.tail[:s.whole]
		done = s.take(done)
		s.fence = mark
		s.tail = s.tail[:0]
		return done
	}
	empty := strings.TrimSpace(line) == ""
	if s.blank && !empty {
		if line[0] != ' ' && line[0] != '\t' && !isItem(line) {
			done = s.take(done)
		}
		s.blank = false
	}
	s.lines++
	s.whole = len(s.tail)
	switch {
	case s.lines > maxLines:
		return s.take(done)
	case empty && isItem(string(s.tail)):
		s.blank = true
	case empty:
		return s.take(done)
	}
	return done
}

// isItem reports whether a text begins with an item of a list.
func isItem(text string) bool {
	text = strings.TrimLeft(text, " ")
	rest := strings.TrimLeft(text, "0123456789")
	if len(rest) < 2 || rest[1] != ' ' {
		return false
	}
	if len(rest) < len(text) {
		return rest[0] == '.' || rest[0] == ')'
	}
	return strings.IndexByte("-*+", rest[0]) >= 0
}

// take makes a block of the whole lines.
func (s *Stream) take(done []Block) []Block {
	text := strings.Trim(string(s.tail[:s.whole]), "\r\n")
	s.tail = append(s.tail[:0], s.tail[s.whole:]...)
	s.whole, s.lines, s.blank = 0, 0, false
	if strings.TrimSpace(text) == "" {
		return done
	}
	return append(done, Block{Text: text})
}

// cut makes a block of what is too long.
func (s *Stream) cut(done []Block) []Block {
	if s.whole == 0 {
		s.whole = len(s.tail)
		for n := 0; n < utf8.UTFMax && s.whole > 0 && !utf8.RuneStart(s.tail[s.whole-1]); n++ {
			s.whole--
		}
		if s.whole--; s.whole <= 0 { // the last character may not be whole
			s.whole = len(s.tail)
		}
	}
	if s.fence != "" {
		text := string(s.tail[:s.whole])
		s.tail = append(s.tail[:0], s.tail[s.whole:]...)
		s.whole, s.lines = 0, 0
		return append(done, Block{Text: text, Code: true})
	}
	return s.take(done)
}

// Rest is what is in no block yet, and whether it is code.
func (s *Stream) Rest() (text string, code bool) { return string(s.tail), s.fence != "" }

// Close returns what is left, and begins anew.
func (s *Stream) Close() (done []Block) {
	if s.fence != "" {
		if text := strings.TrimRight(string(s.tail), "\r\n"); text != "" && fenceOf(text) == "" {
			done = append(done, Block{Text: text, Code: true})
		}
	} else {
		s.whole = len(s.tail)
		done = s.take(done)
	}
	*s = Stream{}
	return done
}

// fenceOf is the mark with which a line begins or ends a block of code, "" if it does not.
func fenceOf(line string) string {
	line = strings.TrimLeft(line, " ")
	for _, c := range []string{"`", "~"} {
		if rest := strings.TrimLeft(line, c); len(line)-len(rest) >= 3 && (c == "~" || !strings.Contains(rest, "`")) {
			return line[:len(line)-len(rest)]
		}
	}
	return ""
}
