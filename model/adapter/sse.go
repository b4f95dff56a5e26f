package adapter

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/apzuk3/agentd/internal/seam"
)

// Event is one server-sent event.
type Event struct {
	// Name is the event's type, "" if the stream does not name it.
	Name string
	// Data is its data; never empty.
	Data string
}

// maxEvent bounds the data of one event, in bytes.
const maxEvent = 4 << 20

// maxQuoted bounds what an error quotes of a line, in bytes. It is far above what wiretap.Redact
// keeps of a message.
const maxQuoted = 8 << 10

// ReadEvents reads a stream of server-sent events whose lines, and events, have at most maxLine
// bytes (0 means 1 MiB, and 4 MiB for an event). Comments and events without data are skipped; a
// final event without the blank line behind it counts. The iteration ends with the stream, or with
// an error as its last element: that of r, one of a line that is too long, or one about a line that
// no event stream holds, such as a line of HTML. Pass the error to TransportError.
func ReadEvents(r io.Reader, maxLine int) iter.Seq2[Event, error] {
	maxLine = cmp.Or(maxLine, seam.MaxLine)
	return func(yield func(Event, error) bool) {
		maxEvent := max(maxEvent, maxLine)
		var ev Event
		var data []string
		size := 0
		flush := func() bool {
			ev.Data = strings.Join(data, "\n")
			out := ev
			ev, data, size = Event{}, nil, 0
			return out.Data == "" || yield(out, nil)
		}
		lines := bufio.NewScanner(r)
		lines.Buffer(make([]byte, 4<<10), maxLine+2)
		lines.Split(splitLine)
		for first := true; lines.Scan(); first = false {
			line := lines.Text()
			if first {
				line = strings.TrimPrefix(line, "\ufeff") // A stream may begin with a byte order mark.
			}
			if line == "" {
				if !flush() {
					return
				}
				continue
			}
			field, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch field {
			case "data":
				if size += len(value) + 1; size > maxEvent {
					yield(Event{}, fmt.Errorf("%w: an event of the stream is longer than %d bytes",
						seam.ErrResponseTooLong, maxEvent))
					return
				}
				data = append(data, value)
			case "event":
				ev.Name = value
			case "", "id", "retry":
			default:
				// Not cut to what is readable: half a key would not be redacted.
				yield(Event{}, fmt.Errorf("the response is no event stream: it holds the line %q",
					line[:min(len(line), maxQuoted)]))
				return
			}
		}
		if err := lines.Err(); err != nil {
			if errors.Is(err, bufio.ErrTooLong) {
				err = seam.ErrLineTooLong
			}
			yield(Event{}, err)
			return
		}
		flush()
	}
}

// splitLine splits at "\n", "\r\n" and "\r", as event streams may.
func splitLine(data []byte, atEOF bool) (advance int, token []byte, err error) {
	i := bytes.IndexAny(data, "\r\n")
	switch {
	case i < 0 && (!atEOF || len(data) == 0):
		return 0, nil, nil
	case i < 0:
		return len(data), data, nil
	case data[i] == '\n':
		return i + 1, data[:i], nil
	case i+1 == len(data) && !atEOF:
		return 0, nil, nil
	case i+1 < len(data) && data[i+1] == '\n':
		return i + 2, data[:i], nil
	default:
		return i + 1, data[:i], nil
	}
}
