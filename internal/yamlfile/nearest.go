package yamlfile

import (
	"strings"
	"unicode"
)

// Nearest returns the name that is like key, "" if none is. Names are in snake_case.
func Nearest(key string, names []string) string {
	if len(key) > 64 {
		return ""
	}
	key = snake(key)
	best, least := "", max(2, len(key)/3)+1
	for _, name := range names {
		if n := distance(key, name); n < least {
			best, least = name, n
		}
	}
	return best
}

// snake writes toolNames and tool-names as tool_names.
func snake(s string) string {
	var b strings.Builder
	for i, r := range s {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		if r == '-' || r == ' ' {
			r = '_'
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// distance is how many letters have to be changed, added or removed.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
