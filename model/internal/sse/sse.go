// Package sse reads server-sent events. The built-in adapters read them here, those of strangers through package
// adapter, which copies each event.
package sse

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/apzuk3/agentd/internal/seam"
)

// Event is one server-sent event. Its bytes are valid until the next one is read.
type Event struct {
	// Name is the event's type, empty if the stream does not name it.
	Name []byte
	// Data is its data; never empty.
	Data []byte
}

// maxEvent bounds the data of one event, in bytes.
const maxEvent = 4 << 20

// maxQuoted bounds what an error quotes of a line, in bytes. It is far above what wiretap.Redact
// keeps of a message.
const maxQuoted = 8 << 10

// Read reads a stream of events as adapter.ReadEvents does, which describes it.
func Read(r io.Reader, maxLine int) iter.Seq2[Event, error] {
	maxLine = cmp.Or(maxLine, seam.MaxLine)
	return func(yield func(Event, error) bool) {
		ev := event{max: max(maxEvent, maxLine)}
		lines := bufio.NewScanner(r)
		lines.Buffer(make([]byte, 4<<10), maxLine+2)
		lines.Split(splitLine)
		for first := true; lines.Scan(); first = false {
			line := lines.Bytes()
			if first {
				line = bytes.TrimPrefix(line, []byte("\ufeff")) // A stream may begin with a byte order mark.
			}
			if len(line) == 0 {
				if !ev.flush(yield) {
					return
				}
				continue
			}
			if err := ev.line(line); err != nil {
				yield(Event{}, err)
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
		ev.flush(yield)
	}
}

// event is an event that is being read. Its buffers serve all events of a stream.
type event struct {
	max   int // bytes of data
	name  []byte
	data  []byte // the lines of data, joined
	lines int    // of data
}

// line adds a line that is not empty.
func (e *event) line(line []byte) error {
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "data":
		if len(e.data)+len(value)+min(e.lines, 1) >= e.max {
			return fmt.Errorf("%w: an event of the stream is longer than %d bytes", seam.ErrResponseTooLong, e.max)
		}
		if e.lines++; e.lines > 1 {
			e.data = append(e.data, '\n')
		}
		e.data = append(e.data, value...)
	case "event":
		e.name = append(e.name[:0], value...)
	case "", "id", "retry":
	default:
		// Not cut to what is readable: half a key would not be redacted.
		return fmt.Errorf("the response is no event stream: it holds the line %q", line[:min(len(line), maxQuoted)])
	}
	return nil
}

// flush yields the event if it has data, and begins the next one.
func (e *event) flush(yield func(Event, error) bool) bool {
	more := len(e.data) == 0 || yield(Event{Name: e.name, Data: e.data}, nil)
	e.name, e.data, e.lines = e.name[:0], e.data[:0], 0
	return more
}

// splitLine splits at "\n", "\r\n" and "\r", as event streams may.
func splitLine(data []byte, atEOF bool) (advance int, token []byte, err error) {
	i := bytes.IndexByte(data, '\n')
	if cr := bytes.IndexByte(data[:cmp.Or(i+1, len(data))], '\r'); cr >= 0 {
		i = cr
	}
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
