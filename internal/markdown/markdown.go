// Package markdown shows Markdown on a terminal: as lines that fit a width, with or without colors.
//
// A text that is still being written is parted into blocks by a [Stream], so that what is complete can be shown while
// the rest comes. Whatever the source says, lines have no control characters but the colors of this package.
//
// The syntax is goldmark's. The package knows neither terminals nor what is talked about.
package markdown

import (
	"fmt"
	"html"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// Style shows texts.
type Style struct {
	// Width is how many cells a line may take; at least 8.
	Width int
	// Color allows colors.
	Color bool
}

// Codes of a terminal.
const (
	bold      = "1"
	dim       = "2"
	italic    = "3"
	underline = "4"
	cyan      = "36"
	blue      = "34"
)

// syntax is made when it is first used: it costs time that commands without Markdown do not have to spend.
var syntax = sync.OnceValue(func() parser.Parser {
	return parser.NewParser(
		parser.WithBlockParsers(parser.DefaultBlockParsers()...),
		parser.WithInlineParsers(
			util.Prioritized(parser.NewCodeSpanParser(), 100), util.Prioritized(parser.NewLinkParser(), 200),
			util.Prioritized(parser.NewAutoLinkParser(), 300), util.Prioritized(parser.NewEmphasisParser(), 500),
		),
		parser.WithParagraphTransformers(parser.DefaultParagraphTransformers()...),
	)
})

// Lines are those of a block.
func (s Style) Lines(b Block) []string {
	if b.Code {
		return s.code(b.Text)
	}
	source := []byte(clean(b.Text))
	p := &page{Style: s, source: source}
	p.Width = max(p.Width, 8)
	p.children(syntax().Parse(text.NewReader(source)), "", "")
	return p.lines
}

// Paint is a text in a color, such as "36" or "1;31"; without colors the text itself.
func (s Style) Paint(text, code string) string {
	if !s.Color || text == "" || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// code is lines of code, which are cut where they do not fit, not moved.
func (s Style) code(text string) (out []string) {
	for line := range strings.SplitSeq(clean(text), "\n") {
		line = strings.ReplaceAll(line, "\t", "    ")
		for part := range strings.SplitSeq(ansi.Hardwrap(line, max(s.Width-2, 6), true), "\n") {
			out = append(out, "  "+s.Paint(part, cyan))
		}
	}
	return out
}

// page collects the lines of a document.
type page struct {
	Style
	source []byte
	lines  []string
}

// put adds a line behind what it is moved in by.
func (p *page) put(before, line string) {
	line = strings.TrimRight(before+line, " ")
	if ansi.StringWidth(line) > p.Width { // what moves it in leaves no room
		p.lines = append(p.lines, strings.Split(ansi.Hardwrap(line, p.Width, true), "\n")...)
		return
	}
	p.lines = append(p.lines, line)
}

// children shows the blocks below n. The first line is behind first, the others behind rest.
func (p *page) children(n ast.Node, first, rest string) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if k := c.Kind(); c.PreviousSibling() != nil && k != ast.KindTextBlock && k != ast.KindList {
			p.put(rest, "")
		}
		p.block(c, first, rest)
		first = rest
	}
}

func (p *page) block(n ast.Node, first, rest string) {
	switch n := n.(type) {
	case *ast.Heading:
		p.flow(spans{{strings.Repeat("#", n.Level) + " ", bold}}.add(p.inline(n, bold)), first, rest)
	case *ast.List:
		number := n.Start
		for item := n.FirstChild(); item != nil; item = item.NextSibling() {
			mark := "• "
			if n.IsOrdered() {
				mark = fmt.Sprintf("%d%c ", number, n.Marker)
				number++
			}
			p.item(item, first+mark, rest+strings.Repeat(" ", ansi.StringWidth(mark)))
			first = rest
		}
	case *ast.Blockquote:
		bar := p.Paint("│", dim) + " "
		p.children(n, first+bar, rest+bar)
	case *ast.FencedCodeBlock, *ast.CodeBlock, *ast.HTMLBlock:
		inner := p.Style
		inner.Width -= ansi.StringWidth(rest)
		for _, line := range inner.code(strings.TrimRight(p.raw(n), "\n")) {
			p.put(first, line)
			first = rest
		}
	case *ast.ThematicBreak:
		p.put(first, strings.Repeat("─", max(min(p.Width-ansi.StringWidth(first), 40), 1)))
	default:
		if rows := table(p.raw(n), p.Width-ansi.StringWidth(rest)); rows != nil {
			for _, row := range rows {
				p.put(first, row)
				first = rest
			}
			return
		}
		p.flow(p.inline(n, ""), first, rest)
	}
}

// item shows an item of a list, which may be empty.
func (p *page) item(n ast.Node, first, rest string) {
	before := len(p.lines)
	p.children(n, first, rest)
	if len(p.lines) == before {
		p.put(first, "")
	}
}

// raw is the source of a block.
func (p *page) raw(n ast.Node) string {
	if n.Type() != ast.TypeBlock {
		return ""
	}
	var b strings.Builder
	for i := range n.Lines().Len() {
		line := n.Lines().At(i)
		b.Write(line.Value(p.source))
	}
	return b.String()
}

// span is a text in one style.
type span struct{ text, code string }

type spans []span

func (s spans) add(more spans) spans { return append(s, more...) }

// inline are the spans below n.
func (p *page) inline(n ast.Node, code string) (out spans) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			out = append(out, span{p.plain(c.Segment.Value(p.source)), code})
			switch {
			case c.HardLineBreak():
				out = append(out, span{"\n", ""})
			case c.SoftLineBreak():
				out = append(out, span{" ", code})
			}
		case *ast.String:
			out = append(out, span{p.plain(c.Value), code})
		case *ast.CodeSpan:
			mark := "`"
			if p.Color {
				mark = ""
			}
			out = append(out, span{mark + strings.ReplaceAll(p.verbatim(c), "\n", " ") + mark, join(code, cyan)})
		case *ast.Emphasis:
			out = append(out, p.inline(c, join(code, map[int]string{1: italic, 2: bold}[c.Level]))...)
		case *ast.Link:
			name := p.inline(c, join(code, underline))
			out = append(out, name...)
			if to := clean(string(c.Destination)); to != name.text() {
				out = append(out, span{" (" + to + ")", join(code, dim)})
			}
		case *ast.Image:
			out = append(out, p.inline(c, code)...)
			out = append(out, span{" (" + clean(string(c.Destination)) + ")", join(code, dim)})
		case *ast.AutoLink:
			out = append(out, span{clean(string(c.URL(p.source))), join(code, blue)})
		default:
			out = append(out, p.inline(c, code)...)
		}
	}
	return out
}

func (s spans) text() string {
	var b strings.Builder
	for _, one := range s {
		b.WriteString(one.text)
	}
	return b.String()
}

// verbatim is the text of a span of code.
func (p *page) verbatim(n ast.Node) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			b.Write(t.Segment.Value(p.source))
		}
	}
	return b.String()
}

// plain is text as it is meant: entities may stand for any character.
func (*page) plain(source []byte) string {
	return clean(html.UnescapeString(string(util.UnescapePunctuations(source))))
}

func join(a, b string) string { return strings.Trim(a+";"+b, ";") }

// flow breaks spans into lines. A line is whole by itself: it begins and ends without a style.
func (p *page) flow(text spans, first, rest string) {
	width := max(p.Width-ansi.StringWidth(rest), 4)
	var line strings.Builder
	used := 0
	end := func() {
		p.put(first, line.String())
		first = rest
		line.Reset()
		used = 0
	}
	var word spans
	size := 0
	flush := func(space string) {
		if size > 0 && used > 0 && used+size > width {
			end()
		}
		for _, part := range word {
			for part.text != "" {
				cut := head(part.text, width-used)
				if cut == "" && used == 0 {
					_, n := utf8.DecodeRuneInString(part.text)
					cut = part.text[:n] // it is too wide
				}
				line.WriteString(p.Paint(cut, part.code))
				used += ansi.StringWidth(cut)
				if part.text = part.text[len(cut):]; part.text != "" {
					end()
				}
			}
		}
		word, size = nil, 0
		if space != "" && used > 0 && used < width {
			line.WriteString(space)
			used++
		}
	}
	for _, one := range text {
		for one.text != "" {
			n := strings.IndexFunc(one.text, unicode.IsSpace)
			if n < 0 {
				n = len(one.text)
			}
			if n > 0 {
				word = append(word, span{one.text[:n], one.code})
				size += ansi.StringWidth(one.text[:n])
			}
			if n == len(one.text) {
				break
			}
			space := " "
			if one.text[n] == '\n' {
				space = ""
			}
			flush(space)
			if space == "" {
				end()
			}
			_, size := utf8.DecodeRuneInString(one.text[n:])
			one.text = one.text[n+size:]
		}
	}
	flush("")
	if used > 0 {
		end()
	}
}

// head is the beginning of a text that fits so many cells, or a little less of it.
func head(text string, cells int) string {
	n := 0
	for n < min(len(text), cells) && text[n] >= ' ' && text[n] <= '~' {
		n++
	}
	if n == len(text) || n == cells && text[n] <= '~' {
		return text[:n]
	}
	if n = max(4*cells, 64); n < len(text) { // the rest does not count
		for !utf8.RuneStart(text[n]) {
			n--
		}
		text = text[:n]
	}
	return ansi.Truncate(text, cells, "")
}

// clean is a text without the characters that drive a terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) ||
			r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069') {
			return -1
		}
		return r
	}, s)
}

// table aligns the columns of a table; nil if the text is none, or does not fit.
func table(source string, width int) []string {
	var rows [][]string
	var widths []int
	for line := range strings.Lines(source) {
		line = strings.TrimSpace(clean(line))
		if !strings.HasPrefix(line, "|") {
			return nil
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i, cell := range cells {
			cells[i] = strings.TrimSpace(cell)
			if i == len(widths) {
				widths = append(widths, 1)
			}
			if len(rows) != 1 {
				widths[i] = max(widths[i], ansi.StringWidth(cells[i]))
			}
		}
		rows = append(rows, cells)
	}
	if len(rows) < 2 || strings.Trim(strings.Join(rows[1], ""), "-: ") != "" {
		return nil
	}
	all := 0
	for _, w := range widths {
		all += w + 2
	}
	out := []string{}
	for i, cells := range rows {
		var b strings.Builder
		for j, w := range widths {
			cell := ""
			if j < len(cells) {
				cell = cells[j]
			}
			if i == 1 {
				cell = strings.Repeat("─", w)
			}
			b.WriteString(cell + strings.Repeat(" ", max(w-ansi.StringWidth(cell), 0)+2))
		}
		row := strings.TrimRight(b.String(), " ")
		if all-2 > width {
			out = append(out, strings.Split(ansi.Hardwrap(row, width, true), "\n")...)
			continue
		}
		out = append(out, row)
	}
	return out
}
