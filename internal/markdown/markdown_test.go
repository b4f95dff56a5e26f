package markdown

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

const sample = "# Title\n\nSome *soft* and **loud** words with `code` and a [link](https://example.com/a) that are long enough to wrap.\n\n" +
	"- one\n- two\n  1. deep\n\n- three\n\n  more\n\nnot\n\n> quoted\n\n```go\nfunc main() {}\n```\n\n| a | bb |\n|---|---|\n| 1 | 2 |\n\nA &amp; B &#27;[31m \x1b[31mred\n"

// TestLines: each construct, without colors.
func TestLines(t *testing.T) {
	var s Stream
	var got []string
	style := Style{Width: 40}
	for _, b := range append(s.Add(sample), s.Close()...) {
		got = append(got, style.Lines(b)...)
	}
	want := `# Title
Some soft and loud words with ` + "`code`" + ` and
a link (https://example.com/a) that are
long enough to wrap.
• one
• two
  1. deep
• three

  more
not
│ quoted
  func main() {}
a  bb
─  ──
1  2
A & B [31m [31mred`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

// TestBounds: whatever comes, lines fit, drive no terminal, and little is held.
func TestBounds(t *testing.T) {
	for _, width := range []int{8, 80} {
		for _, piece := range []int{1, 4096} {
			text := strings.Repeat(sample+"日本語"+strings.Repeat("x", 300)+"\n~~~\nopen "+strings.Repeat("y", 50)+"\n", 4) + strings.Repeat("word", 5000)
			var s Stream
			var plain strings.Builder
			show := func(blocks []Block) {
				for _, b := range blocks {
					plain.WriteString(b.Text + "\n")
					for _, line := range (Style{Width: width, Color: true}).Lines(b) {
						if w := ansi.StringWidth(line); w > max(width, 8) {
							t.Fatalf("width %d: %q has %d", width, line, w)
						}
						if bare := ansi.Strip(line); strings.ContainsAny(bare, "\x1b\r\n\a") {
							t.Fatalf("%q", line)
						}
					}
				}
			}
			for rest := text; rest != ""; {
				n := min(piece, len(rest))
				show(s.Add(rest[:n]))
				rest = rest[n:]
				if len(s.tail) > maxBlock+4096 {
					t.Fatalf("%d bytes are held", len(s.tail))
				}
			}
			show(s.Close())
			if got, want := strings.Count(plain.String(), "word"), 5000+4; got < want-4 || got > want+4 {
				t.Errorf("%d of %d words came", got, want)
			}
		}
	}
}
