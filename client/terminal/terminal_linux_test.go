package terminal_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/client/terminal"
	"github.com/apzuk3/agentd/internal/test/ttytest"
)

// askOn asks, and returns when the prompt is on the screen.
func askOn(ctx context.Context, term *ttytest.Terminal, p *terminal.Prompter, prompt string) <-chan asked {
	done := make(chan asked, 1)
	mark := term.Mark()
	go func() {
		line, err := p.Ask(ctx, prompt)
		done <- asked{line, err}
	}()
	term.Await(mark, prompt)
	return done
}

// What is typed counts only behind its own prompt: not what was typed before any
// prompt, nor for a question that was taken back, nor the beginning of a line.
func TestTypedAhead(t *testing.T) {
	term := ttytest.Open(t)
	p := terminal.New(term.TTY, term.TTY)
	term.Type("y\n")

	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	first := askOn(ctx, term, p, "Approve one? ")
	term.Type("y") // the person is about to press Enter
	cancel(over)
	if got := <-first; !errors.Is(got.err, over) || got.line != "" {
		t.Fatalf("the first question got %+v", got)
	}
	term.Type("\n")
	term.Type("yes\n")
	term.Type("ye")

	second := askOn(t.Context(), term, p, "Approve two? ")
	term.Type("no\n")
	if got := <-second; got.err != nil || got.line != "no" {
		t.Errorf("the second question got %+v, want what was typed behind it", got)
	}
	third := askOn(t.Context(), term, p, "Why? ")
	term.Type("because\n")
	if got := <-third; got.err != nil || got.line != "because" {
		t.Errorf("the third question got %+v", got)
	}
}

// An input that ends is no answer, also behind the beginning of a line; a terminal
// can take another question then.
func TestTerminalEnds(t *testing.T) {
	term := ttytest.Open(t)
	p := terminal.New(term.TTY, term.TTY)
	const ctrlD = "\x04"
	first := askOn(t.Context(), term, p, "One? ")
	term.Type("y")
	term.Press(ctrlD + ctrlD)
	if got := <-first; got.err == nil || got.line != "" {
		t.Errorf("got %+v, want no answer", got)
	}
	second := askOn(t.Context(), term, p, "Two? ")
	term.Type("y\n")
	if got := <-second; got.err != nil || got.line != "y" {
		t.Errorf("got %+v", got)
	}
}

// The end of a prompt can be read without waiting for more to come.
func TestReadAllEnds(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close(); _ = w.Close() }()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("interrupted")
	cancel(why)
	if got, err := terminal.ReadAll(ctx, r, 100); !errors.Is(err, why) || got != "" {
		t.Errorf("got %q, %v", got, err)
	}
	_, _ = w.WriteString("hello")
	_ = w.Close()
	if got, err := terminal.ReadAll(t.Context(), r, 5); err != nil || got != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, in := range []string{"hello", strings.Repeat("x", 1<<20)} {
		if _, err := terminal.ReadAll(t.Context(), strings.NewReader(in), 4); err == nil || err.Error() != "more than 4 bytes" {
			t.Errorf("got %v", err)
		}
	}
}

// A terminal may announce input and take it back, as it does on Ctrl-C, before it is
// read: the read ends with its context all the same.
func TestReadWithoutInput(t *testing.T) {
	term := ttytest.Open(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("interrupted")
	cancel(why)
	if n, err := terminal.ReadAside(ctx, term.TTY, make([]byte, 10)); n != 0 || !errors.Is(err, why) {
		t.Errorf("read %d bytes, %v", n, err)
	}
}
