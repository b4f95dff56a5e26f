package wire

import (
	"bytes"
	"math"
	"unicode/utf8"
)

// Scan reads a JSON value from its beginning to its end, once, and allocates only the texts that are asked for. It is
// for the events of streams, of which most have one of a few shapes.
//
// It reads less than package encoding/json does, and nothing that encoding/json reads otherwise: it fails on the rest,
// such as a null that is not asked for, names that differ in case from those that are known, and texts that are no
// UTF-8. After that it yields nothing, and Done is false: the caller drops what it has read, and lets encoding/json
// decode the value, or say what is wrong with it. The caller must fail on a member that comes twice where
// encoding/json merges the two.
type Scan struct {
	data   []byte
	at     int
	first  bool // an object or an array has begun, and nothing in it
	failed bool
}

// maxScanDepth bounds the nesting of what Scan skips.
const maxScanDepth = 100

// NewScan returns a Scan of a JSON text.
func NewScan(data []byte) Scan { return Scan{data: data} }

// Fail makes the value one that Scan does not read.
func (s *Scan) Fail() { s.failed, s.at = true, len(s.data) }

// Done reports whether the whole text was one value, and was read.
func (s *Scan) Done() bool {
	s.space()
	return !s.failed && s.at == len(s.data)
}

// Enter begins an object with '{', or an array with '['.
func (s *Scan) Enter(begin byte) {
	s.expect(begin)
	s.first = true
}

// Next reports whether the object that '}' ends, or the array that ']' ends, has another member. If it does, a Key and
// a value, or a value, must be read.
func (s *Scan) Next(end byte) bool {
	first := s.first
	s.first = false
	switch c := s.peek(); {
	case s.failed:
		return false
	case c == end:
		s.at++
		return false
	case first:
		return true
	default:
		s.expect(',')
		return !s.failed
	}
}

// Key returns the name of a member, which is valid as long as the text.
func (s *Scan) Key() []byte {
	text, plain := s.quoted()
	if !plain {
		s.Fail()
	}
	for _, c := range text {
		if c >= utf8.RuneSelf { // it may differ only in case from one that is known
			s.Fail()
		}
	}
	s.expect(':')
	if s.failed {
		return nil
	}
	return text
}

// Unknown skips the value of a member that is none of the known ones.
func (s *Scan) Unknown(key []byte, known ...string) {
	for _, k := range known {
		if len(k) == len(key) && bytes.EqualFold(key, []byte(k)) {
			s.Fail()
		}
	}
	s.Skip()
}

// String returns a text. If it is the same as last, it is last.
func (s *Scan) String(last string) string {
	text, plain := s.quoted()
	switch {
	case s.failed:
		return ""
	case !plain:
		return s.unquote(text)
	case string(text) == last:
		return last
	case !utf8.Valid(text):
		s.Fail()
		return ""
	default:
		return string(text)
	}
}

// Is reports whether a text is the given one, which is plain ASCII.
func (s *Scan) Is(want string) bool {
	text, plain := s.quoted()
	if !plain {
		s.Fail()
	}
	return string(text) == want
}

// Null reads a null, if one comes next, and reports it. encoding/json leaves a text or a number as it was.
func (s *Scan) Null() bool {
	if s.peek() != 'n' {
		return false
	}
	s.literal("null")
	return !s.failed
}

// Once fails on the second of two members that encoding/json merges: the caller has seen the first one.
func (s *Scan) Once(seen *bool) {
	if *seen {
		s.Fail()
	}
	*seen = true
}

// Bool returns a boolean.
func (s *Scan) Bool() bool {
	is := s.peek() == 't'
	if is {
		s.literal("true")
	} else {
		s.literal("false")
	}
	return is && !s.failed
}

// Int returns a number that is not negative and has neither a fraction, nor an exponent, nor many digits.
func (s *Scan) Int() int {
	const maxDigits = 9
	s.peek()
	from := s.at
	s.number()
	digits := s.data[from:s.at]
	if len(digits) > maxDigits {
		s.Fail()
	}
	n := 0
	for _, c := range digits {
		if c < '0' || c > '9' {
			s.Fail()
		}
		n = 10*n + int(c-'0')
	}
	if s.failed {
		return 0
	}
	return n
}

// Tokens returns what Tokens decodes of a number.
func (s *Scan) Tokens() Tokens { return Tokens(min(s.Int(), math.MaxInt32)) }

// Raw returns a value of any kind as it is, which is valid as long as the text.
func (s *Scan) Raw() []byte {
	s.peek()
	from := s.at
	s.Skip()
	if s.failed {
		return nil
	}
	return s.data[from:s.at]
}

// Skip skips a value of any kind.
func (s *Scan) Skip() { s.skip(0) }

func (s *Scan) skip(depth int) {
	if depth > maxScanDepth {
		s.Fail()
	}
	switch c := s.peek(); {
	case s.failed:
	case c == '{':
		for s.Enter('{'); s.Next('}'); {
			s.quoted()
			s.expect(':')
			s.skip(depth + 1)
		}
	case c == '[':
		for s.Enter('['); s.Next(']'); {
			s.skip(depth + 1)
		}
	case c == '"':
		s.quoted()
	case c == 't':
		s.literal("true")
	case c == 'f':
		s.literal("false")
	case c == 'n':
		s.literal("null")
	default:
		s.number()
	}
}

// quoted reads a text, and returns what is between its quotes. It is plain if it has no escapes; those of another one
// are such as JSON knows.
func (s *Scan) quoted() (text []byte, plain bool) {
	s.expect('"')
	if s.failed {
		return nil, false
	}
	data := s.data[s.at:]
	plain = true
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			s.at += i + 1
			return data[:i], plain
		case c < ' ':
			s.Fail()
			return nil, false
		case c == '\\':
			plain = false
			i += escapeLen(data[i:]) - 1
		}
	}
	s.Fail()
	return nil, false
}

// escapeLen returns the length of the escape that data begins with; if it is none, more than data has.
func escapeLen(data []byte) int {
	none := len(data) + 1
	if len(data) < 2 {
		return none
	}
	switch data[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(data) >= 6 && hexRune(data[2:6]) >= 0 {
			return 6
		}
	}
	return none
}

// hexRune returns the number that hexadecimal digits are, -1 if one is none.
func hexRune(digits []byte) rune {
	var r rune
	for _, c := range digits {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return -1
		}
	}
	return r
}

// escapes are the characters that short escapes are for.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unquote returns a text with its escapes resolved.
func (s *Scan) unquote(text []byte) string {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			out = append(out, text...)
			break
		}
		out = append(out, text[:i]...)
		if text = text[i:]; text[1] != 'u' {
			out = append(out, escapes[text[1]])
			text = text[2:]
			continue
		}
		r := hexRune(text[2:6])
		if !utf8.ValidRune(r) { // half of a pair
			s.Fail()
			return ""
		}
		out = utf8.AppendRune(out, r)
		text = text[6:]
	}
	if !utf8.Valid(out) {
		s.Fail()
		return ""
	}
	return string(out)
}

// number reads a number.
func (s *Scan) number() {
	if s.failed {
		return
	}
	if s.has('-') {
		s.at++
	}
	if s.has('0') {
		s.at++
	} else {
		s.digits()
	}
	if s.has('.') {
		s.at++
		s.digits()
	}
	if s.has('e') || s.has('E') {
		s.at++
		if s.has('+') || s.has('-') {
			s.at++
		}
		s.digits()
	}
}

// digits reads at least one digit.
func (s *Scan) digits() {
	from := s.at
	for s.at < len(s.data) && s.data[s.at] >= '0' && s.data[s.at] <= '9' {
		s.at++
	}
	if s.at == from {
		s.Fail()
	}
}

// has reports whether c comes at once.
func (s *Scan) has(c byte) bool { return s.at < len(s.data) && s.data[s.at] == c }

func (s *Scan) literal(want string) {
	s.peek()
	if !bytes.HasPrefix(s.data[s.at:], []byte(want)) {
		s.Fail()
		return
	}
	s.at += len(want)
}

func (s *Scan) expect(c byte) {
	if s.failed || s.peek() != c {
		s.Fail()
		return
	}
	s.at++
}

// peek skips white space and returns the byte behind it, 0 at the end.
func (s *Scan) peek() byte {
	if s.at < len(s.data) && s.data[s.at] > ' ' {
		return s.data[s.at]
	}
	s.space()
	if s.at == len(s.data) {
		return 0
	}
	return s.data[s.at]
}

func (s *Scan) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}
