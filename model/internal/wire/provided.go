package wire

// Bytes turns offsets that count the characters of text, by code points, into
// offsets in bytes; both 0 when text has no such part.
func Bytes(text string, start, end int) (from, to int) {
	if start < 0 || end <= start {
		return 0, 0
	}
	n := 0
	for i := range text {
		if n == start {
			from = i
		}
		if n == end {
			return from, i
		}
		n++
	}
	if n == end {
		return from, len(text)
	}
	return 0, 0
}
