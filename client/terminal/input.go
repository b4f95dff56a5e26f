package terminal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxLine is the longest line that a person may type, in bytes.
const maxLine = 1 << 20

var (
	// ErrNobody says that nobody answers: the input has ended. It is no answer, and
	// matches io.EOF.
	ErrNobody error = nobody{}
	// errStale says that a line was begun before its prompt.
	errStale = errors.New("the line was begun for an earlier question")
	// errLine says that a line is too long.
	errLine = fmt.Errorf("the line has more than %d bytes", maxLine)
)

type nobody struct{}

func (nobody) Error() string        { return "nobody is there to answer" }
func (nobody) Is(target error) bool { return target == io.EOF }

// source is where a person's lines come from. One goroutine at a time may use it.
type source interface {
	// discard drops what was typed before now.
	discard()
	// line returns the next line without its end. An input that ends within a line
	// has no more lines.
	line(context.Context) (string, error)
}

// newSource returns the source for an input: a terminal whose reads can be
// interrupted, if the system has it, else any reader.
func newSource(in io.Reader) source {
	if f, ok := in.(*os.File); ok && isTerminal(f) {
		return &keyboard{in: f}
	}
	return &reader{in: bufio.NewReader(in)}
}

// keyboard is a terminal. Nothing reads it while no question is open.
type keyboard struct{ in *os.File }

func (k *keyboard) discard() { flushTyped(k.in) }

func (k *keyboard) line(ctx context.Context) (string, error) {
	var got []byte
	chunk := make([]byte, 4096)
	for {
		n, err := readContext(ctx, k.in, chunk)
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if before, _, found := bytes.Cut(chunk[:n], []byte("\n")); found {
			return string(append(got, before...)), nil
		}
		if got = append(got, chunk[:n]...); len(got) > maxLine {
			return "", errLine
		}
		if err != nil || n == 0 {
			return "", ErrNobody
		}
	}
}

// reader is an input whose reads cannot be interrupted. A question that is taken
// back leaves a goroutine, which ends with the line; the next question drops that
// line, since nobody knows when it was begun.
type reader struct {
	in    *bufio.Reader
	next  chan typed // the line that is being read; nil: none is
	stale bool       // next was begun for a question that is over
}

// typed is a line, or why there is none.
type typed struct {
	line string
	err  error
}

func (*reader) discard() {}

func (r *reader) line(ctx context.Context) (string, error) {
	if r.next == nil {
		next := make(chan typed, 1)
		r.next = next
		go func() {
			line, err := readLine(r.in)
			next <- typed{line, err}
		}()
	}
	select {
	case t := <-r.next:
		stale := r.stale
		r.next, r.stale = nil, false
		if stale && t.err == nil {
			return "", errStale
		}
		return t.line, t.err
	case <-ctx.Done():
		r.stale = true
		return "", context.Cause(ctx)
	}
}

func readLine(in *bufio.Reader) (string, error) {
	var got []byte
	for {
		part, err := in.ReadSlice('\n')
		if got = append(got, part...); len(got) > maxLine {
			return "", errLine
		}
		switch {
		case err == nil:
			return string(got[:len(got)-1]), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return "", ErrNobody
		}
	}
}

// ReadAll reads an input of at most limit bytes to its end, or until ctx ends; a
// read of what is no file then leaves a goroutine, which ends with the read.
func ReadAll(ctx context.Context, in io.Reader, limit int) (string, error) {
	var got bytes.Buffer
	chunk := make([]byte, 32<<10)
	for {
		n, err := readContext(ctx, in, chunk)
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if got.Len()+n > limit {
			return "", fmt.Errorf("more than %d bytes", limit)
		}
		got.Write(chunk[:n])
		switch {
		case errors.Is(err, io.EOF):
			return got.String(), nil
		case err != nil:
			return "", err
		}
	}
}

// readContext is in.Read that ends with ctx, with its cause. It takes nothing of a file
// once ctx has ended, but for input that a terminal announces and takes back, as on Ctrl-C:
// then a read is left that takes what is typed next.
func readContext(ctx context.Context, in io.Reader, p []byte) (int, error) {
	if f, ok := in.(*os.File); ok {
		if waits, err := awaitInput(ctx, f); waits && err != nil {
			return 0, err
		}
	}
	return readAside(ctx, in, p)
}

// readAside reads in a goroutine of its own, which may outlive it.
func readAside(ctx context.Context, in io.Reader, p []byte) (int, error) {
	type outcome struct {
		n   int
		err error
	}
	own := make([]byte, len(p)) // the read may outlive this call
	done := make(chan outcome, 1)
	go func() {
		n, err := in.Read(own)
		done <- outcome{n, err}
	}()
	select {
	case o := <-done:
		return copy(p, own[:o.n]), o.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
