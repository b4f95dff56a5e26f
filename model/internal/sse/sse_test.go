package sse

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// read returns the events of a stream, a line each, and its error as the last one.
func read(r io.Reader, maxLine int) string {
	var out strings.Builder
	for ev, err := range Read(r, maxLine) {
		if err != nil {
			fmt.Fprintln(&out, err)
			break
		}
		fmt.Fprintf(&out, "%s %q\n", ev.Name, ev.Data)
	}
	return out.String()
}

// TestRead: an event has its own name and its own data, whatever the one before had.
func TestRead(t *testing.T) {
	const in = "\ufeffevent: first\ndata: one\ndata: two\n\nevent: none\n\ndata: three\n\ndata:\ndata\n\ndata: four"
	const want = "first \"one\\ntwo\"\n \"three\"\n \"\\n\"\n \"four\"\n"
	for _, end := range []string{"\n", "\r", "\r\n"} {
		in := strings.ReplaceAll(in, "\n", end)
		if got := read(strings.NewReader(in), 0); got != want {
			t.Errorf("of %q:\n%swant\n%s", in, got, want)
		}
		if got := read(iotest.OneByteReader(strings.NewReader(in)), 0); got != want {
			t.Errorf("of %q, byte by byte:\n%swant\n%s", in, got, want)
		}
	}
	broken := errors.New("broken")
	if got := read(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)), 0); got != " \"a\"\nbroken\n" {
		t.Errorf("of a broken stream:\n%s", got)
	}
	if got := read(strings.NewReader("data: "+strings.Repeat("x", 8<<10)+"\n\n"), 8<<10); !strings.Contains(got, "line of the stream is too long") {
		t.Errorf("of a line that is too long:\n%s", got)
	}
}

func BenchmarkRead(b *testing.B) {
	const events = 200
	stream := strings.Repeat("data: "+strings.Repeat("x", 200)+"\r\n\r\n", events)
	b.ReportAllocs()
	b.SetBytes(int64(len(stream)))
	for b.Loop() {
		n := 0
		for _, err := range Read(strings.NewReader(stream), 0) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != events {
			b.Fatalf("%d events", n)
		}
	}
}
