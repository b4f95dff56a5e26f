package chat

import (
	"bytes"
	"io"
	"sync"
)

// Notes is where a program writes what people should know. While a screen has the terminal, it shows them. Its methods
// may be called from any goroutine.
type Notes struct {
	// Out is where they go else.
	Out io.Writer

	mu   sync.Mutex // protects the fields below
	show func(string)
	line []byte // without its end
}

// maxNote bounds a line, in bytes.
const maxNote = 64 << 10

// Write is that of io.Writer.
func (n *Notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	show := n.show
	if show == nil {
		defer n.mu.Unlock()
		return n.Out.Write(p)
	}
	var lines []string
	n.line = append(n.line, p...)
	for {
		end := bytes.IndexByte(n.line, '\n')
		if end < 0 && len(n.line) > maxNote {
			end = len(n.line) - 1
		}
		if end < 0 {
			break
		}
		lines = append(lines, string(n.line[:end]))
		n.line = append(n.line[:0], n.line[end+1:]...)
	}
	n.mu.Unlock()
	for _, line := range lines {
		show(line)
	}
	return len(p), nil
}

// redirect has lines shown until restore is called. n may be nil.
func (n *Notes) redirect(show func(string)) (restore func()) {
	if n == nil {
		return func() {}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.show = show
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.show = nil
		if len(n.line) > 0 {
			_, _ = n.Out.Write(append(n.line, '\n'))
		}
		n.line = nil
	}
}
