package markdown

import (
	"strings"
	"testing"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// FuzzStream: whatever text comes, in pieces of whatever length, lines fit and have no control characters, what waits is
// bounded, and without colors the same text gives the same lines however it was parted.
func FuzzStream(f *testing.F) {
	f.Add(sample, 3, 20)
	f.Add("~~~\n```\n~~~\n> - 1. a\n\n\tb", 1, 8)
	f.Add("&#27;[2J<b>\u202e|[x](y \"z\")![", 2, 80)
	f.Fuzz(func(t *testing.T, source string, piece, width int) {
		source = source[:min(len(source), 64<<10)]
		width = 8 + int(uint(width)%200)
		all := shown(t, source, len(source)+1, width)
		if parted := shown(t, source, 1+int(uint(piece)%64), width); len(source) < maxBlock && all != parted {
			t.Errorf("whole:\n%q\nin pieces:\n%q", all, parted)
		}
	})
}

func shown(t *testing.T, source string, piece, width int) string {
	t.Helper()
	style := Style{Width: width}
	var s Stream
	var out []string
	show := func(blocks []Block) {
		for _, b := range blocks {
			for _, line := range style.Lines(b) {
				if ansi.StringWidth(line) > width {
					t.Fatalf("%q takes more than %d cells", line, width)
				}
				if i := strings.IndexFunc(line, unicode.IsControl); i >= 0 {
					t.Fatalf("%q has a control character", line)
				}
				out = append(out, line)
			}
		}
	}
	for rest := source; rest != ""; {
		n := min(piece, len(rest))
		show(s.Add(rest[:n]))
		rest = rest[n:]
		if len(s.tail) > maxBlock {
			t.Fatalf("%d bytes wait", len(s.tail))
		}
	}
	show(s.Close())
	return strings.Join(out, "\n")
}
