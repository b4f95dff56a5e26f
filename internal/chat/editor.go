package chat

import (
	"slices"
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/apzuk3/agentd/internal/cli"
)

const (
	// maxTyped is how many characters a message may have that is typed, or pasted.
	maxTyped = 200_000
	// maxInputRows is how many rows of a message are shown.
	maxInputRows = 8
	// maxRemembered is how many messages can be got back, and maxRememberedText how long one may be, in bytes.
	maxRemembered, maxRememberedText = 500, 16 << 10
)

// editor is the text that a person is typing.
type editor struct {
	text []rune
	at   int // the cursor is before this character
}

func (e *editor) String() string { return string(e.text) }

func (e *editor) set(text string) {
	e.text = []rune(text)
	e.at = len(e.text)
}

// insert adds a text at the cursor. Of it only what a terminal can show counts.
func (e *editor) insert(text string) {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\t", "    ").Replace(text)
	r := []rune(cli.Clean(text))
	r = r[:min(len(r), max(maxTyped-len(e.text), 0))]
	e.text = slices.Insert(e.text, e.at, r...)
	e.at += len(r)
}

// remove takes away what is between the cursor and another place.
func (e *editor) remove(to int) {
	from := e.at
	if to < from {
		from, to = to, from
	}
	e.text = slices.Delete(e.text, from, to)
	e.at = from
}

// key does what a key says, if it is one of an editor.
func (e *editor) key(k tea.KeyPressMsg) {
	switch k.String() {
	case "left", "ctrl+b":
		e.at = max(e.at-1, 0)
	case "right", "ctrl+f":
		e.at = min(e.at+1, len(e.text))
	case "home", "ctrl+a":
		e.at = e.line(-1)
	case "end", "ctrl+e":
		e.at = e.line(1)
	case "alt+b", "alt+left", "ctrl+left":
		e.at = e.word(-1)
	case "alt+f", "alt+right", "ctrl+right":
		e.at = e.word(1)
	case "backspace", "ctrl+h":
		e.remove(max(e.at-1, 0))
	case "delete", "ctrl+d":
		e.remove(min(e.at+1, len(e.text)))
	case "ctrl+w", "alt+backspace":
		e.remove(e.word(-1))
	case "alt+d":
		e.remove(e.word(1))
	case "ctrl+u":
		e.remove(e.line(-1))
	case "ctrl+k":
		e.remove(e.line(1))
	case "ctrl+j", "shift+enter":
		e.insert("\n")
	default:
		e.insert(k.Text)
	}
}

// line is the place where the cursor's line begins or ends.
func (e *editor) line(step int) int {
	at := e.at
	if step < 0 {
		for at > 0 && e.text[at-1] != '\n' {
			at--
		}
		return at
	}
	for at < len(e.text) && e.text[at] != '\n' {
		at++
	}
	return at
}

// word is the place where the word before or behind the cursor begins or ends.
func (e *editor) word(step int) int {
	at := e.at
	if step < 0 {
		for at > 0 && unicode.IsSpace(e.text[at-1]) {
			at--
		}
		for at > 0 && !unicode.IsSpace(e.text[at-1]) {
			at--
		}
		return at
	}
	for at < len(e.text) && unicode.IsSpace(e.text[at]) {
		at++
	}
	for at < len(e.text) && !unicode.IsSpace(e.text[at]) {
		at++
	}
	return at
}

// rows are the text in rows of a width, and where in them the cursor is.
func (e *editor) rows(width int) (rows []string, row, column int) {
	width = max(width, 2)
	var b strings.Builder
	used := 0
	end := func() {
		rows = append(rows, b.String())
		b.Reset()
		used = 0
	}
	for i, r := range e.text {
		w := ansi.StringWidth(string(r))
		if r != '\n' && used+w > width-1 { // the cursor needs a cell, too
			end()
		}
		if i == e.at {
			row, column = len(rows), used
		}
		if r == '\n' {
			end()
			continue
		}
		b.WriteRune(r)
		used += w
	}
	if e.at == len(e.text) {
		row, column = len(rows), used
	}
	end()
	return rows, row, column
}

// vertical moves the cursor a row up or down, and reports whether there is one.
func (e *editor) vertical(step, width int) bool {
	rows, row, column := e.rows(width)
	if row+step < 0 || row+step >= len(rows) {
		return false
	}
	for { // rows know no places: the cursor walks
		if step < 0 {
			e.at--
		} else {
			e.at++
		}
		_, r, c := e.rows(width)
		over := step > 0 && e.at < len(e.text) && (r > row+step)
		switch {
		case r == row+step && (step < 0 && c <= column || step > 0 && (c >= column || e.at == len(e.text))):
			return true
		case over:
			e.at--
			return true
		case e.at <= 0 || e.at >= len(e.text):
			return true
		}
	}
}

// remembered are messages that were sent, oldest first.
type remembered struct {
	all   []string
	at    int    // which is shown; len(all): what is being typed
	draft string // what was being typed
}

func (h *remembered) add(text string) {
	if len(text) <= maxRememberedText && (len(h.all) == 0 || h.all[len(h.all)-1] != text) {
		h.all = append(h.all, text)
	}
	if len(h.all) > maxRemembered {
		h.all = slices.Delete(h.all, 0, len(h.all)-maxRemembered)
	}
	h.at = len(h.all)
}

// show puts the message before or behind the one that is shown into the editor.
func (h *remembered) show(e *editor, step int) {
	to := h.at + step
	if to < 0 || to > len(h.all) {
		return
	}
	if h.at == len(h.all) {
		h.draft = e.String()
	}
	if h.at = to; to == len(h.all) {
		e.set(h.draft)
		return
	}
	e.set(h.all[to])
}
